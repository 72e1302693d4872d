"""Names that people mistype: the three nearest, and how to see all."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

LIKE = 0.5  # share of two names that agrees, below which one is no misspelling of the other


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` names like `name`, best first. Case and the part before a slash weigh little."""

    def likeness(other: str) -> float:
        a, b = name.casefold(), other.casefold()
        tails = SequenceMatcher(None, a.rpartition("/")[2], b.rpartition("/")[2]).ratio()
        return max(SequenceMatcher(None, a, b).ratio(), tails)

    like = [(likeness(other), other) for other in sorted(set(known))]
    return [other for share, other in sorted(like, key=lambda each: -each[0]) if share >= LIKE][:count]


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """All names, those like `name` in front."""
    known = list(known)
    close = nearest(name, known)
    return [*close, *(each for each in known if each not in close)]


def unknown(kind: str, name: str, known: Iterable[str], everything: str) -> str:
    """Message for a name nobody knows; `everything` says how to list all of them."""
    known = sorted(set(known))
    if not known:
        return f"unknown {kind} {name!r}: there is none in this data; {everything}"
    close = nearest(name, known)
    said = f"nearest: {', '.join(close)}" if close else "no known name is like it"
    return f"unknown {kind} {name!r}; {said}; {everything}"
