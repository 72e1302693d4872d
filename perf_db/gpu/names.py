"""Names that people mistype: the three nearest, and how to see all."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` names most like `name`, best first. Case and the part before a slash weigh little."""

    def likeness(other: str) -> float:
        a, b = name.casefold(), other.casefold()
        tails = SequenceMatcher(None, a.rpartition("/")[2], b.rpartition("/")[2]).ratio()
        return max(SequenceMatcher(None, a, b).ratio(), tails)

    return sorted(sorted(set(known)), key=likeness, reverse=True)[:count]


def unknown(kind: str, name: str, known: Iterable[str], everything: str) -> str:
    """Message for a name nobody knows; `everything` says how to list all of them."""
    known = sorted(set(known))
    if not known:
        return f"unknown {kind} {name!r}: there is none in this data; {everything}"
    return f"unknown {kind} {name!r}; nearest: {', '.join(nearest(name, known))}; {everything}"
