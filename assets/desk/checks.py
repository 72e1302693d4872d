"""What a check of the desk is: a query over one committed run that returns what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one run.

    Attributes:
        severity: "error" breaks a law, so that no figure of the run means anything; "warning" asks to look at it.
        table: the result table it is about.
        claim: what holds when nothing is found.
        query: SELECT of row_key (text) and figure (number) of every row that does not pass. `$run` is the run id.
        says: what the figure of the worst row is; `{figure}` and `{key}` are filled in.
    """

    name: str
    severity: Severity
    table: str
    claim: str
    query: str
    says: str
