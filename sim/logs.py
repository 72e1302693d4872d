"""Which columns kernels write themselves, in the order of their logs."""

from __future__ import annotations

import numpy as np

from sim.result import TABLES, Columns

# What kernels leave out where nobody drafts; those that draft write these behind the others.
DRAFT_COLUMNS = {
    "passes": ("n_rounds", "n_drafts", "n_accepted", "n_bursts"),
    "spans": ("n_passes",),
    "chunks": ("n_drafts",),
    "pressure": ("reserving",),
}


def logged(table: str, *, drafting: bool) -> tuple[str, ...]:
    """Columns of a kernel log: the rank index stands for worker and rank in the worker."""
    late = DRAFT_COLUMNS.get(table, ())
    names = ["rank" if name == "worker" else name for name in TABLES[table] if name not in ("dp_rank", *late)]
    names += ["previous_pass"] if table == "spans" else []
    names += late if drafting else ()
    return tuple(names + (["first_burst"] if drafting and table == "spans" else []))


def without_drafts(table: str, columns: Columns) -> Columns:
    """Add the columns that kernels leave out, where every request makes one token a pass."""
    for name in DRAFT_COLUMNS.get(table, ()):
        single = name in ("n_bursts", "n_passes")
        columns[name] = columns["n_tokens"] if single else np.zeros(len(columns["rank"]), np.int64)
    return columns
