"""Cases that ask for something the engine does not model yet."""

from __future__ import annotations


class Unsupported(Exception):
    """The case cannot be run yet; it is skipped by name.

    Attributes:
        area: what is missing, in a word or two ("speculation").
        reason: the field and value that need it.
    """

    def __init__(self, area: str, reason: str) -> None:
        super().__init__(f"{area}: {reason}")
        self.area, self.reason = area, reason
