"""Long runs made of arithmetic instead of a replay: as many passes as asked for, and nothing to compute.

Requests follow each other on one rank; each computes its prompt in one pass and then makes a token per pass.
`python -m tests.assets.desk.large 10000000` measures a diff of two of them.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from assets.desk.pair import Recorded
from perf_db.commit import read_commit
from perf_db.layout import Layout
from perf_db.writer import Identity, RunWriter
from sim.result import TABLES
from tests.perf_db.hand_made import run_facts

PER_REQUEST = 10  # passes
PASS_NS = 5_000_000
CUT = 1 << 17


def long_run(root: Path, run_id: str, n_passes: int, *, dearer_from: int | None = None) -> Recorded:
    """A run of `n_passes`; from pass `dearer_from` on, each takes a nanosecond longer."""
    n = n_passes // PER_REQUEST
    layout = Layout(root)
    with RunWriter(layout, run_id, Identity(np.arange(n)), lambda: None) as writer:
        for low in range(0, n * PER_REQUEST, CUT):
            p = np.arange(low, min(low + CUT, n * PER_REQUEST))
            first = p % PER_REQUEST == 0
            price = _price(p, dearer_from)
            start = _start(p, dearer_from)
            _write(
                writer,
                "passes",
                pass_no=p,
                group_pass_no=p,
                chosen_ns=start,
                start_ns=start,
                prefill_ns=np.where(first, price, 0),
                decode_ns=np.where(first, 0, price),
                end_ns=start + price,
                n_prefill=first,
                prefill_tokens=100 * first,
                n_decode=~first,
                decode_kv_tokens=np.where(first, 0, 100 + p % PER_REQUEST),
                scheduled_tokens=np.where(first, 100, 1),
                chunk_tokens=100 * first,
                n_tokens=np.ones(len(p)),
                n_continuing=~first,
                n_admitted=first,
                n_completed=p % PER_REQUEST == PER_REQUEST - 1,
                n_running=np.ones(len(p)),
                active_blocks=np.full(len(p), 8),
                free_blocks=np.full(len(p), 8),
                prefill_cell=np.full(len(p), -1),
                decode_cell=np.full(len(p), -1),
            )
        for low in range(0, n, CUT):
            r = np.arange(low, min(low + CUT, n))
            p, last = r * PER_REQUEST, r * PER_REQUEST + PER_REQUEST - 1
            start, first_ns = _start(p, dearer_from), _start(p + 1, dearer_from)
            last_ns = _start(last + 1, dearer_from)
            one = np.ones(len(r))
            _write(
                writer,
                "requests",
                request=r,
                arrival_ns=p * PASS_NS,
                admitted_ns=start,
                first_token_ns=first_ns,
                second_token_ns=_start(p + 2, dearer_from),
                last_token_ns=last_ns,
                end_ns=last_ns,
                prompt_tokens=100 * one,
                requested_tokens=PER_REQUEST * one,
                output_tokens=PER_REQUEST * one,
                n_admissions=one,
                n_spans=one,
            )
            _write(writer, "spans", request=r, first_pass=p, n_tokens=PER_REQUEST * one, n_passes=PER_REQUEST * one)
            _write(writer, "admissions", request=r, pass_no=p, chosen_ns=start, start_ns=start, order_no=r)
            _write(writer, "chunks", request=r, pass_no=p, n_tokens=100 * one, prompt_tokens=100 * one)
        total = _start(np.array([n * PER_REQUEST]), dearer_from) - _start(np.array([0]), dearer_from)
        prefill = _price(np.arange(n) * PER_REQUEST, dearer_from).sum()
        _write(writer, "evidence", phase=np.array([0, 1]), total_ns=np.append(prefill, total - prefill))
        writer.metrics([("run", "ttft", "mean", 1.0 if dearer_from is None else 2.0, "ms", n)])
        end = _start(np.array([n * PER_REQUEST]), dearer_from)
        writer.commit(run_facts(end_ns=int(end[0]), replay_id=f"x-{run_id}"))
    return Recorded(read_commit(layout.commit_file(run_id)), layout.root)


def _price(p: np.ndarray, dearer_from: int | None) -> np.ndarray:
    return PASS_NS + (p >= (dearer_from if dearer_from is not None else 1 << 62))


def _start(p: np.ndarray, dearer_from: int | None) -> np.ndarray:
    return p * PASS_NS + (0 if dearer_from is None else np.maximum(p - dearer_from, 0))


def _write(writer: RunWriter, table: str, **columns: np.ndarray) -> None:
    n = len(next(iter(columns.values())))
    writer.rows(table, {name: columns.get(name, np.zeros(n)).astype(np.int64) for name in TABLES[table]})


def main() -> None:
    from assets.desk.diff import diff_runs
    from assets.desk.text import diff_text

    n = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        base = long_run(Path(folder), "base", n)
        head = long_run(Path(folder), "head", n, dearer_from=n - n // 10)
        before = time.perf_counter()
        found = diff_runs(base, head)
        seconds = time.perf_counter() - before
    print(diff_text(found))
    print(f"{n:,} passes: {seconds:.1f} s, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
