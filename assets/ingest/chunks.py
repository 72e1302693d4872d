"""A file in pieces that end at line ends: for readers that look at many lines at once."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from assets.ingest.lines import BOM, BROKEN, Digesting, Progress, open_bytes, unpacked
from assets.ingest.trace import TraceError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

CHUNK = 16 << 20
Item = TypeVar("Item")


class Chunk:
    """Some lines of a file.

    Attributes:
        first: number of its first line, from 1.
        starts, ends: shape (n,), where each line begins and ends (without its newline) in `data`.
    """

    def __init__(self, data: bytes, first: int) -> None:
        self.data, self.first = data, first
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        last = [] if data.endswith(b"\n") else [len(data)]
        self.ends = np.append(newlines, np.array(last, np.int64)).astype(np.int64)
        self.starts = np.append(np.zeros(1, np.int64), self.ends[:-1] + 1)[: len(self.ends)]

    def __len__(self) -> int:
        return len(self.ends)

    def line(self, i: int) -> bytes:
        """Line i of the chunk, without its newline."""
        return self.data[self.starts[i] : self.ends[i]]

    def count(self, character: bytes) -> np.ndarray:
        """How often a character occurs in each line. Shape (n,)."""
        places = np.flatnonzero(np.frombuffer(self.data, np.uint8) == character[0])
        return np.searchsorted(places, self.ends) - np.searchsorted(places, self.starts)

    def blank(self) -> np.ndarray:
        """Which lines hold nothing but white space. Shape (n,), bool."""
        found = self.ends == self.starts
        for i in np.flatnonzero(self.ends - self.starts < 64).tolist():
            found[i] = not self.line(i).strip()
        long = np.flatnonzero((self.ends - self.starts >= 64) & (np.frombuffer(self.data, np.uint8)[self.starts] <= 32))
        for i in long.tolist():
            found[i] = not self.line(i).strip()
        return found

    def strings(self) -> pa.Array:
        """The lines as an arrow array, newlines included (they are white space). Lines that are no UTF-8 are blank."""
        import pyarrow as pa

        offsets = np.append(self.starts, len(self.data)).astype(np.int32)
        return pa.StringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(self._text()))

    def asked(self, con: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
        """The answer to a question about table `chunk`, whose one column is `line`; in the order of the lines."""
        import pyarrow as pa

        # In small batches, so that every thread has some.
        lines = pa.table({"line": self.strings()}).to_batches(max_chunksize=8192)
        con.register("chunk", pa.Table.from_batches(lines))
        try:
            return con.sql(sql).to_arrow_table().combine_chunks()
        finally:
            con.unregister("chunk")

    def _text(self) -> bytes | bytearray:
        if self.data.isascii():
            return self.data
        text, at = bytearray(self.data), 0
        while at < len(text):
            try:
                codecs.utf_8_decode(memoryview(self.data)[at:], "strict", True)
                break
            except UnicodeDecodeError as error:
                line = int(np.searchsorted(self.ends, at + error.start))
                start, end = int(self.starts[line]), int(self.ends[line])
                text[start:end] = b" " * (end - start)
                at = end + 1
        return text


def ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """The same items, made by another thread while the caller works on the ones before."""
    with ThreadPoolExecutor(1) as pool:
        source = iter(items)
        waiting = deque(pool.submit(next, source, None) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not None:
                waiting.append(pool.submit(next, source, None))
                yield item
        finally:
            for each in waiting:
                each.cancel()


class Chunks:
    """Iterate once; afterwards `digest` and `count` (of lines) are known."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.count = 0
        self.digest = ""
        self._path, self._progress = path, progress

    def __iter__(self) -> Iterator[Chunk]:
        with open_bytes(self._path) as raw:
            digesting = Digesting(raw, self._path.stat().st_size, self._progress)
            stream = unpacked(digesting)
            rest, at_start = b"", True
            try:
                while data := stream.read(CHUNK):
                    if at_start:
                        data, at_start = data.removeprefix(BOM), False
                    cut = data.rfind(b"\n") + 1
                    if cut == 0:
                        rest += data
                        continue
                    yield self._chunk(rest + data[:cut])
                    rest = data[cut:]
            except BROKEN as error:
                raise TraceError(f"{self._path}: broken after line {self.count}: {error}") from None
            if rest:
                yield self._chunk(rest)
            self.digest = digesting.hexdigest()

    def _chunk(self, data: bytes) -> Chunk:
        chunk = Chunk(data, self.count + 1)
        self.count += len(chunk)
        return chunk
