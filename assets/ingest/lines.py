"""A file as numbered lines, read once, with a digest of its bytes on the way."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from assets.ingest.trace import TraceError

Progress = Callable[[int, int], None]
BUFFER = 1 << 20
BOM = b"\xef\xbb\xbf"


class _Digesting(io.RawIOBase):
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
    """Iterate once over the lines of a plain or gzipped file; afterwards `digest` and `count` are known."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.count = 0
        self.digest = ""
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their ends. A last line without a newline counts; an end of file after one does not."""
        with open_bytes(self.path) as raw:
            digesting = _Digesting(raw, self.path.stat().st_size, self._progress)
            stored = io.BufferedReader(digesting, BUFFER)
            zipped = stored.peek(2)[:2] == b"\x1f\x8b"
            text = io.BufferedReader(gzip.GzipFile(fileobj=stored), BUFFER) if zipped else stored  # type: ignore[arg-type]
            number = 0
            try:
                for number, line in enumerate(text, 1):
                    yield line.removeprefix(BOM) if number == 1 else line
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise TraceError(f"{self.path}: broken gzip after line {number}: {error}") from None
            self.count = number
            self.digest = digesting.hexdigest()


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
    with open_bytes(path) as raw:
        stored = io.BufferedReader(raw, BUFFER)
        zipped = stored.peek(2)[:2] == b"\x1f\x8b"
        try:
            start = (gzip.GzipFile(fileobj=stored) if zipped else stored).read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(f"{path}: broken gzip: {error}") from None
    lines = start.removeprefix(BOM).split(b"\n")
    if len(start) == size and len(lines) > 1:
        lines.pop()
    return [line.strip() for line in lines if line.strip()]


def raw_text(line: bytes) -> str:
    """A line for the quarantine table: what is not UTF-8 stays visible as escapes."""
    return line.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
