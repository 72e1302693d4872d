"""Reading a trace: every line ends up clean, in quarantine, blank, skipped, or as the header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow, TooFewIds
from assets.ingest.generic import insist_on_columns
from assets.ingest.lines import Progress, open_lines, raw_text
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.prepared import is_prepared, read_prepared
from assets.ingest.registry import FORMATS, detect
from assets.ingest.rows import Rows, SomeRowsHaveIds
from assets.ingest.trace import Counts, Quarantine, Trace, TraceError

EVERYTHING = 2**62
NO_ARRIVALS = (
    "the trace has no arrival times; use a traffic.load of type concurrency, burst, constant_rate, poisson, gamma or "
    "diurnal"
)


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    block_tokens: int | None = None,
    cut_tokens: int | None = None,
    columns: Mapping[str, str] | None = None,
    time_unit: str = "ms",
    nested_basis: str = "auto",
    needs_timestamps: bool | None = True,
    needs_output: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Read a trace file, plain or packed with gzip or zstd.

    Args:
        path: the file, or for documents the folder.
        format: one of `FORMATS`; None: found out from the first lines.
        block_tokens: tokens per hash id, where the format has ids; None: what is usual in the format.
        cut_tokens, columns, time_unit, nested_basis: see `Options`.
        needs_timestamps: whether a request without an arrival is a bad row (not so in a closed loop); None: if the
            first row has one.
        needs_output: whether a request for no tokens is a bad row; it is legal otherwise.
        strict: the first bad row is an error.
        progress: called with (bytes read, bytes in all).

    Raises:
        TraceError: no such file, an empty one, an unknown format, no usable row, or with `strict` a bad one.
    """
    path = Path(path)
    if is_prepared(path):
        trace = read_prepared(path, needs_timestamps=needs_timestamps, needs_output=needs_output)
        _insist_on_prepared(trace, format, block_tokens, strict)
        return trace
    chosen, why = choose(path, format, mapped=columns is not None)
    insist_on_columns(path, chosen, columns or {})
    options = Options(
        block_tokens=block_tokens or chosen.block_tokens,
        asserted_block=block_tokens,
        cut_tokens=cut_tokens,
        columns=columns or {},
        time_unit=time_unit,
        nested_basis=nested_basis,
    )
    reading = Reading(path, chosen, why, options, strict, progress)
    try:
        return reading.run(Rows(needs_timestamps=needs_timestamps, needs_output=needs_output, needs_ids=False))
    except SomeRowsHaveIds:
        return reading.run(Rows(needs_timestamps=needs_timestamps, needs_output=needs_output, needs_ids=True))


def choose(path: Path, format: str | None, *, mapped: bool) -> tuple[Format, str]:
    """The format that was named, or the one that is found out; and why."""
    if format is None:
        return detect(path, mapped=mapped)
    if format in FORMATS:
        return FORMATS[format], "named in the configuration"
    raise TraceError(f"{path}: format {format!r} is not one of {', '.join(FORMATS)}")


def _insist_on_prepared(trace: Trace, format: str | None, block_tokens: int | None, strict: bool) -> None:
    """What is asked of a source now must be what it was prepared with."""
    if format is not None and format != trace.format:
        raise TraceError(
            f"{trace.path}: was prepared as {trace.format}, not as {format}; prepare it again, or leave it out"
        )
    if block_tokens is not None and trace.hash_ids is not None and block_tokens != trace.hash_block_tokens:
        raise TraceError(
            f"{trace.path}: was prepared with ids of {trace.hash_block_tokens} tokens, not {block_tokens}; "
            "prepare it again"
        )
    bad = trace.quarantine
    if strict and len(bad):
        where = f" in {bad.field[0]}={bad.value[0]}" if bad.field[0] else ""
        raise TraceError(f"{trace.path}: line {bad.source_line[0]}: {bad.reason[0]}{where}: {bad.raw[0][:200]}")


class Batch(NamedTuple):
    """Some rows and bad rows, in file order; see `Rows.drain`."""

    rows: dict[str, Any]
    block_tokens: int
    quarantine: Quarantine


class End(NamedTuple):
    """What is known after the last line."""

    parser: Parser
    counts: Counts
    digest: str
    has_timestamps: bool


class Reading:
    """One file and how it is to be read."""

    def __init__(
        self, path: Path, format: Format, why: str, options: Options, strict: bool, progress: Progress | None
    ) -> None:
        self._path, self._format, self._why = path, format, why
        self._options, self._strict, self._progress = options, strict, progress

    def run(self, rows: Rows) -> Trace:
        """The whole trace in memory."""
        quarantine = Quarantine()
        end = self._read(rows, quarantine, lambda: None, EVERYTHING)
        columns, order = rows.columns()
        quarantine.sort()
        return Trace(
            **columns,
            hash_block_tokens=end.parser.block_tokens,
            quarantine=quarantine,
            counts=end.counts,
            path=str(self._path),
            format=self._format.name,
            why=self._why,
            digest=end.digest,
            notes={**order, **end.parser.notes()},
        )

    def stream(self, keep: Callable[[Batch], None], *, batch_rows: int, needs_ids: bool) -> End:
        """Hand over a batch of rows at a time, and forget it."""
        rows = Rows(needs_timestamps=None, needs_output=False, needs_ids=needs_ids)
        quarantine = Quarantine()

        def flush() -> None:
            keep(Batch(rows.drain(), self._parser.block_tokens, quarantine))
            quarantine.clear()

        end = self._read(rows, quarantine, flush, batch_rows)
        flush()
        return end

    def _read(self, rows: Rows, quarantine: Quarantine, flush: Callable[[], None], batch_rows: int) -> End:
        self._short = ShortRows()
        lines = open_lines(self._path, self._format.layout, self._progress)
        parser = self._parser = self._format.reader(self._options)
        n_clean = n_bad = 0
        n_blank = n_header = n_skipped = n_records = n_rows = 0
        whole, kept = parser.whole, parser.kept
        for number, line in enumerate(lines, 1):
            if not line.strip():
                n_blank += 1
                continue
            if n_records == 0 and n_header == 0 and parser.header(line):
                n_header = 1
                continue
            if n_records == 0 and rows.needs_timestamps and not parser.timed:
                raise TraceError(f"{self._path}: {NO_ARRIVALS}")
            try:
                if whole:
                    found = parser.take(n_rows, number, line)
                    n_skipped += not found
                    n_records += bool(found)
                    n_rows += found
                    continue
                for row in parser.rows(line):
                    rows.add(n_rows, number, row)
                    n_rows += 1
                kept()
            except BadRow as bad:
                self._set_aside(quarantine, number, bad, line)
                n_rows += 1
            n_records += 1
            if len(rows) + len(quarantine) >= batch_rows:
                n_clean, n_bad = n_clean + len(rows), n_bad + len(quarantine)
                flush()
        for ordinal, number, text, made in parser.finish():
            try:
                if isinstance(made, BadRow):
                    raise made
                rows.add(ordinal, number, made)
            except BadRow as bad:
                self._set_aside(quarantine, number, bad, text)
        counts = Counts(
            lines=lines.count,
            header=n_header,
            blank=n_blank,
            rows_read=n_rows,
            clean=n_clean + len(rows),
            quarantined=n_bad + len(quarantine),
            skipped=n_skipped,
            records=n_records,
        )
        if counts.lines != n_header + n_blank + n_skipped + n_records or n_rows != counts.clean + counts.quarantined:
            raise AssertionError(f"{self._path}: lines got lost: {counts}")
        self._insist_on_rows(counts, quarantine)
        return End(parser, counts, lines.digest, rows.has_timestamps)

    def _set_aside(self, quarantine: Quarantine, number: int, bad: BadRow, line: bytes) -> None:
        if self._strict:
            where = f" in {bad.field}={bad.text}" if bad.field else ""
            raise TraceError(f"{self._path}: line {number}: {bad.reason}{where}: {raw_text(line)[:200]}")
        if isinstance(bad, TooFewIds):
            self._short.add(bad)
        quarantine.add(number, bad.reason, bad.field, bad.text, raw_text(line))

    def _insist_on_rows(self, counts: Counts, quarantine: Quarantine) -> None:
        """An empty trace, or one without a usable row, is no input."""
        if counts.clean:
            return
        path = self._path
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
            f"{path}: no usable row among {counts.rows_read} (read as {self._format.title}): {reasons}\n{examples}\n"
            f"  {self._remedy(quarantine)}"
        )

    def _remedy(self, quarantine: Quarantine) -> str:
        """What to do about the fault that most rows have."""
        most = Counter(zip(quarantine.reason, quarantine.field)).most_common(1)  # none: written out and forgotten
        reason, field = most[0][0] if most else ("", None)
        if (reason, field) == ("missing_field", "timestamp"):
            return NO_ARRIVALS
        if reason != "hash_count_mismatch" or not self._short.block_tokens:
            return "Is it another format? Say which with traffic.source.format"
        block, fit = self._short.block_tokens, self._short.fit()
        if block == self._options.asserted_block:
            given = f"traffic.source.block_size={block} (--block-size of commands on traces) is what was asked for"
        elif block == self._format.block_tokens:
            given = f"{block} tokens per hash id are usual in this format"
        else:
            return f"The file says {block} tokens per hash id, its rows would fit {fit}; mend the file"
        return f"{given}, the rows would fit {fit}: set traffic.source.block_size to what the ids were made with"


class ShortRows:
    """Rows with fewer ids than their prompts need, and the block sizes at which they would have just as many."""

    def __init__(self) -> None:
        self.block_tokens = 0
        self._low, self._high = 1, EVERYTHING

    def add(self, row: TooFewIds) -> None:
        self.block_tokens = row.block_tokens
        if row.ids:
            self._low = max(self._low, -(-row.prompt // row.ids))
        if row.ids > 1:
            self._high = min(self._high, -(-row.prompt // (row.ids - 1)) - 1)

    def fit(self) -> str:
        """A power of two where there is one: nobody hashes in other blocks by choice."""
        usual = 1 << (self._low - 1).bit_length()
        if usual <= self._high < 2 * usual:
            return str(usual)
        # Without an end: some rows have more ids than they need, or none has two.
        return f"{self._low} to {self._high}" if self._low <= self._high < EVERYTHING else f"{self._low} or more"
