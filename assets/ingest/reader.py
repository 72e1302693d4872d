"""Reading a trace: every line ends up clean, in quarantine, blank, or as the header."""

from __future__ import annotations

from pathlib import Path

from assets.ingest.fields import BadRow
from assets.ingest.lines import Lines, Progress, raw_text
from assets.ingest.registry import FORMATS, Format, detect
from assets.ingest.rows import Rows, SomeRowsHaveIds
from assets.ingest.trace import Counts, Quarantine, Trace, TraceError


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    block_tokens: int = 512,
    needs_timestamps: bool = True,
    needs_output: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Read a trace file, plain or gzipped.

    Args:
        path: the file.
        format: one of `FORMATS`; None: found out from the first lines.
        block_tokens: tokens per hash id, where the format has ids.
        needs_timestamps: whether a request without an arrival is a bad row (not so in a closed loop).
        needs_output: whether a request for no tokens is a bad row; it is legal otherwise.
        progress: called with (bytes read, bytes in all).

    Raises:
        TraceError: no such file, an empty one, an unknown format, or no usable row.
    """
    path = Path(path)
    if format is None:
        chosen, why = detect(path)
    elif format in FORMATS:
        chosen, why = FORMATS[format], "named in the configuration"
    else:
        raise TraceError(f"{path}: format {format!r} is not one of {', '.join(FORMATS)}")
    needs = {"needs_timestamps": needs_timestamps, "needs_output": needs_output}
    try:
        return _read(path, chosen, why, block_tokens, progress, Rows(**needs, needs_ids=False))
    except SomeRowsHaveIds:
        return _read(path, chosen, why, block_tokens, progress, Rows(**needs, needs_ids=True))


def _read(path: Path, format: Format, why: str, block_tokens: int, progress: Progress | None, rows: Rows) -> Trace:
    lines = Lines(path, progress)
    parser = format.parser(block_tokens)
    quarantine = Quarantine()
    parse, add = parser.row, rows.add
    n_blank = n_header = n_rows = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            n_blank += 1
            continue
        if n_rows == 0 and n_header == 0 and parser.header(line):
            n_header = 1
            continue
        try:
            add(n_rows, number, parse(line))
        except BadRow as bad:
            quarantine.add(number, bad.reason, bad.field, bad.text, raw_text(line))
        n_rows += 1
    counts = Counts(lines.count, n_header, n_blank, n_rows, len(rows), len(quarantine))
    if counts.lines != n_header + n_blank + n_rows or n_rows != counts.clean + counts.quarantined:
        raise AssertionError(f"{path}: lines got lost: {counts}")
    _insist_on_rows(path, format, counts, quarantine)
    columns, order = rows.columns()
    return Trace(
        **columns,
        hash_block_tokens=block_tokens,
        quarantine=quarantine,
        counts=counts,
        path=str(path),
        format=format.name,
        why=why,
        digest=lines.digest,
        notes={**order, **parser.notes()},
    )


def _insist_on_rows(path: Path, format: Format, counts: Counts, quarantine: Quarantine) -> None:
    """An empty trace, or one without a usable row, is no input."""
    if counts.clean:
        return
    if not counts.rows_read:
        raise TraceError(f"{path}: the trace is empty ({counts.lines} lines, none of them a row)")
    reasons = ", ".join(f"{count} x {reason}" for reason, count in quarantine.reasons().items())
    examples = "\n".join(
        f"  line {line}: {reason}{f' in {field}' if field else ''}: {raw if len(raw) <= 120 else raw[:117] + '...'}"
        for line, reason, field, raw in list(
            zip(quarantine.source_line, quarantine.reason, quarantine.field, quarantine.raw)
        )[:3]
    )
    raise TraceError(
        f"{path}: no usable row among {counts.rows_read} (read as {format.title}): {reasons}\n{examples}\n"
        "  Is it another format? Say which with traffic.source.format"
    )
