"""Files of measurements, one importer per file: each reads what one tool writes into rows of `ground_truth`.

The format is recognised by content; `form` decides where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from assets.accuracy.importers import aiperf, fpm, generic, guidellm, silicon, vllm_bench, vllm_log
from assets.accuracy.importers.about import About
from assets.accuracy.truth import TruthError, TruthSet, throughput_row

__all__ = ["FORMS", "About", "Form", "read_truth"]


@dataclass(frozen=True, slots=True)
class Form:
    """How one tool writes its measurements.

    Attributes:
        recognise: (path, first bytes of the file) -> whether it is one.
        read: (path, what is known about the deployment) -> rows.
    """

    name: str
    title: str
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path, About], TruthSet]


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form("silicon", "table of measured deployments (parquet or CSV)", silicon.recognise, silicon.read),
        Form("vllm_log", "vLLM per-request log (JSON lines)", vllm_log.recognise, vllm_log.read),
        Form("vllm_bench", "vLLM bench result (JSON)", vllm_bench.recognise, vllm_bench.read),
        Form("aiperf", "AIPerf records (JSON lines)", aiperf.recognise, aiperf.read),
        Form("guidellm", "GuideLLM report (JSON)", guidellm.recognise, guidellm.read),
        Form("fpm", "forward-pass telemetry (JSON lines)", fpm.recognise, fpm.read),
        Form("requests", "per-request log of our own columns (CSV or JSON lines)", generic.recognise, generic.read),
    )
}
_HEAD = 1 << 16


def read_truth(path: Path, *, about: About | None = None, form: str | None = None) -> TruthSet:
    """Read a file of measurements.

    Args:
        about: what the file does not say about the deployment; None: nothing.
        form: one of `FORMS`; None: recognised by content.

    Raises:
        TruthError: the file is not recognised, holds no usable row, or a row is at fault.
        OSError: it cannot be read.
    """
    about = about or About(truth_set=path.stem)
    if form is not None and form not in FORMS:
        raise TruthError(f"format {form!r} is not known; there are: {', '.join(FORMS)}")
    if form is None:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
        form = next((each.name for each in FORMS.values() if each.recognise(path, head)), None)
    if form is None:
        known = "; ".join(f"{each.name}: {each.title}" for each in FORMS.values())
        raise TruthError(f"{path}: not a file of measurements that is known here ({known}); name one with --format")
    found = FORMS[form].read(path, about)
    if not found.rows:
        aside = ", ".join(f"{n} {reason}" for reason, n in found.set_aside.items()) or "it is empty"
        raise TruthError(f"{path}: no usable measurement in it ({aside})")
    _insist_on_one_of_each(path, found)
    whole = throughput_row(found.name, found.rows)
    return found if whole is None else replace(found, rows=[*found.rows, whole])


def _insist_on_one_of_each(path: Path, found: TruthSet) -> None:
    """Rows are told apart by what they are called; two of a name would be one measurement."""
    seen: dict[tuple[str, ...], int] = {}
    for row in found.rows:
        key = row["row_id"], row["metric"], row["statistic"], row["grain"]
        if key in seen:
            raise TruthError(
                f"{path}:{row['source_line']}: {row['grain']} {row['row_id']!r} was measured on line {seen[key]} "
                "already; give every one a name of its own"
            )
        seen[key] = row["source_line"]
