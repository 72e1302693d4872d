"""Text known only as runs of equal names (a trace id, some generated output), cut into blocks of any size.

A trace id stands for a block of tokens that are alike in nothing but this id (rule WL-8). Where a reader joins such
blocks itself, history and new input, their borders no longer fall on multiples of the block size. So the joined text is
cut anew, and a block's id is a digest of what it is made of: two blocks have one id exactly when they hold the same.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

Run = tuple[object, int]  # what it is, tokens


class Text:
    """A growing text; ids of its whole blocks are worked out once."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ids = array("q")
        self._open: list[Run] = []  # what follows the last whole block
        self.tokens = 0

    def copy(self) -> Text:
        """The same text, to go on from."""
        other = Text(self._block_tokens)
        other._ids, other._open, other.tokens = self._ids[:], list(self._open), self.tokens
        return other

    def append(self, runs: Iterable[Run]) -> None:
        """Add runs at the end."""
        for what, count in runs:
            self.tokens += count
            while count > 0:
                filled = sum(each for _, each in self._open)
                part = min(count, self._block_tokens - filled)
                if self._open and self._open[-1][0] == what:
                    self._open[-1] = (what, self._open[-1][1] + part)
                else:
                    self._open.append((what, part))
                count -= part
                if filled + part == self._block_tokens:
                    self._ids.append(_id(self._open))
                    self._open = []

    def ids(self) -> array[int]:
        """One id per block, the last, partly filled one included."""
        found = self._ids[:]
        if self._open:
            found.append(_id(self._open))
        return found


def blocks(ids: Iterable[int], block_tokens: int, tokens: int) -> Iterable[Run]:
    """A prompt's ids as runs, the last one cut to the prompt's length."""
    for each in ids:
        yield each, min(block_tokens, tokens)
        tokens -= block_tokens
        if tokens <= 0:
            return


def _id(runs: list[Run]) -> int:
    return int.from_bytes(hashlib.blake2b(repr(runs).encode(), digest_size=8).digest(), "little", signed=True)
