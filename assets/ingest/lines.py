"""A file as numbered lines, read once, with a digest of its bytes on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.ingest.trace import TraceError

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int, int], None]
BUFFER = 1 << 20
BOM = b"\xef\xbb\xbf"


class Digesting(io.RawIOBase):
    """The file's bytes as stored, counted into a digest while they pass."""

    def __init__(self, file: io.RawIOBase, size: int, progress: Progress | None) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._hash = hashlib.blake2b(digest_size=16)
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        count = self._file.readinto(buffer) or 0
        self._hash.update(memoryview(buffer)[:count])
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._size)
        return count

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class Lines:
    """Iterate once over the lines of a plain or packed file; afterwards `digest` and `count` are known."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.count = 0
        self.digest = ""
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their ends. A last line without a newline counts; an end of file after one does not."""
        with open_bytes(self.path) as raw:
            digesting = Digesting(raw, self.path.stat().st_size, self._progress)
            number = 0
            try:
                for number, line in enumerate(unpacked(digesting), 1):
                    yield line.removeprefix(BOM) if number == 1 else line
            except BROKEN as error:
                raise TraceError(f"{self.path}: broken {_packing(self.path)} after line {number}: {error}") from None
            self.count = number
            self.digest = digesting.hexdigest()


class Documents:
    """JSON documents: one per line, or one per file (however it is laid out), or one per file of a folder."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.count = 0
        self.digest = ""
        self._path, self._progress = path, progress

    def __iter__(self) -> Iterator[bytes]:
        hashes = []
        for path in _files(self._path):
            lines = Lines(path, self._progress)
            texts = list(lines)
            hashes.append(lines.digest)
            if len(texts) > 1 and not _is_json(texts[0]):
                texts = [b"".join(texts)]
            for text in texts:
                self.count += 1
                yield text
        self.digest = hashes[0] if len(hashes) == 1 else joined_digest(hashes)


class ParquetRows:
    """Rows of a parquet file as JSON lines, a batch at a time."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.count = 0
        self.digest = ""
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        import pyarrow as pa

        try:
            for batch in self.batches(16_384):
                for line in row_texts(batch):
                    self.count += 1
                    yield line
        except pa.ArrowException as error:
            raise TraceError(f"{self.path}: broken parquet after row {self.count}: {error}") from None

    def batches(self, rows: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """So many rows at a time; all columns, or those of these names that are there."""
        import pyarrow.parquet as pq

        with open_bytes(self.path) as raw:
            digesting = Digesting(raw, self.path.stat().st_size, self._progress)
            while digesting.read(BUFFER):
                pass
            self.digest = digesting.hexdigest()
        yield from pq.ParquetFile(self.path).iter_batches(batch_size=rows, columns=columns)


def row_texts(batch: pa.RecordBatch) -> list[bytes]:
    """Each row as a line of JSON; times are wall-clock text, to the last digit."""
    import json

    import pyarrow as pa

    names, columns = batch.schema.names, list(batch.columns)
    columns = [each.cast(pa.string()) if pa.types.is_timestamp(each.type) else each for each in columns]
    rows = pa.RecordBatch.from_arrays(columns, names).to_pylist()
    return [json.dumps(row, default=str).encode() for row in rows]


def digest_of(path: Path) -> str:
    """Digest of a trace's bytes, as reading it gives it: of the file, or of all files of a folder."""
    hashes = []
    for file in _files(path):
        with open_bytes(file) as raw:
            digesting = Digesting(raw, file.stat().st_size, None)
            while digesting.read(BUFFER):
                pass
            hashes.append(digesting.hexdigest())
    return hashes[0] if len(hashes) == 1 else joined_digest(hashes)


def joined_digest(hashes: list[str]) -> str:
    """One digest for several files."""
    return hashlib.blake2b("".join(hashes).encode(), digest_size=16).hexdigest()


Source = Lines | Documents | ParquetRows


def open_lines(path: Path, layout: str, progress: Progress | None = None) -> Source:
    """What to iterate over for a format of this layout."""
    if layout == "documents":
        return Documents(path, progress)
    return ParquetRows(path, progress) if layout == "parquet" else Lines(path, progress)


def is_parquet(path: Path) -> bool:
    """Whether the file's first bytes say so."""
    if path.is_dir():
        return False
    with open_bytes(path) as raw:
        return raw.read(4) == b"PAR1"


def _is_json(line: bytes) -> bool:
    import json

    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _files(path: Path) -> list[Path]:
    """The file, or the JSON files of a folder by name. Links could lead anywhere, and are refused."""
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.name.endswith(ENDINGS))
    if not found:
        raise TraceError(f"{path}: no file in this folder ends in {', '.join(ENDINGS)}")
    for each in found:
        if each.is_symlink():
            raise TraceError(f"{each}: is a link; put the file itself into the folder")
    return found


ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, OSError)


def unpacked(raw: io.RawIOBase) -> Any:
    """The text of a file, whether plain or packed."""
    stored = io.BufferedReader(raw, BUFFER)
    start = stored.peek(4)[:4]
    if start[:2] == GZIP:
        return io.BufferedReader(gzip.GzipFile(fileobj=stored), BUFFER)  # type: ignore[arg-type]
    if start == ZSTD:
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(stored), "zstd"), BUFFER)  # type: ignore[arg-type]
    return stored


def _packing(path: Path) -> str:
    with open_bytes(path) as raw:
        return "zstd" if raw.read(4) == ZSTD else "gzip"


def open_bytes(path: Path) -> io.FileIO:
    """The file, or an error that says what is wrong with it."""
    try:
        return io.FileIO(path)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such trace file") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: is a folder; name one trace file") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


def head(path: Path, size: int = 1 << 18) -> list[bytes]:
    """The first non-blank lines (without ends), as far as `size` bytes reach; a line cut off there is left out."""
    path = _files(path)[0] if path.is_dir() else path
    with open_bytes(path) as raw:
        try:
            start = unpacked(raw).read(size)
        except BROKEN as error:
            raise TraceError(f"{path}: broken {_packing(path)}: {error}") from None
    lines = start.removeprefix(BOM).split(b"\n")
    if len(start) == size and len(lines) > 1:
        lines.pop()
    return [line.strip() for line in lines if line.strip()]


def raw_text(line: bytes) -> str:
    """A line for the quarantine table: what is not UTF-8 stays visible as escapes."""
    return line.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
