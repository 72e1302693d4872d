"""The formats we read, and how a file's format is found out."""

from __future__ import annotations

from pathlib import Path

from assets.ingest import (
    agentic_mooncake,
    applied_compute,
    azure,
    burstgpt,
    dynamo,
    generic,
    mooncake,
    mooncake_delta,
    qwen_bailian,
    splitwise,
    vidur,
    vllm_log,
    weka,
)
from assets.ingest.lines import head, is_parquet, raw_text
from assets.ingest.parser import Format
from assets.ingest.trace import TraceError

# More formats go here, one file each.
FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        mooncake.FORMAT,
        mooncake_delta.FORMAT,
        agentic_mooncake.FORMAT,
        dynamo.FORMAT,
        weka.FORMAT,
        applied_compute.FORMAT,
        qwen_bailian.FORMAT,
        azure.FORMAT,
        burstgpt.FORMAT,
        vidur.FORMAT,
        splitwise.FORMAT,
        vllm_log.FORMAT,
        generic.CSV,
        generic.JSONL,
        generic.PARQUET,
    )
}


def detect(path: Path, *, mapped: bool = False) -> tuple[Format, str]:
    """The format of a file, and why.

    Args:
        mapped: the configuration names the columns, so only the kind of file is in question.

    Raises:
        TraceError: no such file, an empty one, or one that no format (or more than one) recognises.
    """
    if is_parquet(path):
        return generic.PARQUET, "a parquet file"
    lines = head(path)
    if not lines:
        raise TraceError(f"{path}: the trace is empty")
    if mapped:
        chosen = generic.JSONL if lines[0].startswith(b"{") else generic.CSV
        return chosen, f"columns are named in the configuration, and the first line is {chosen.name.upper()}"
    found = [(each, why) for each in FORMATS.values() if (why := each.recognise(lines))]
    if len(found) == 1:
        return found[0]
    names = ", ".join(FORMATS)
    if found:
        guesses = "; ".join(f"{each.name}: {why}" for each, why in found)
        raise TraceError(f"{path}: could be of several formats ({guesses}); say which with format: {names}")
    first = raw_text(lines[0])
    shown = first if len(first) <= 120 else first[:117] + "..."
    raise TraceError(
        f"{path}: the format is not recognised; the first line is {shown!r}. "
        f"If it is one of {names}, say so with traffic.source.format. If it has columns of its own names, say which is "
        "which with traffic.source.columns"
    )
