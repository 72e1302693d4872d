"""How many drafts held: the figures of table `acceptance` (rule 8.5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.result import MOST_DRAFTS, Columns

Row = tuple[str, str, str, float | None, str, int]


class Acceptance(NamedTuple):
    """Rounds of a replay. A round is one request in one pass that verified drafts for it; those beside its own prompt
    (profiles parity and trtllm) are left out.

    Attributes:
        rounds: by accepted drafts, 0 to 5, before the end of an output clips them.
        drafts: drafts verified.
    """

    rounds: tuple[int, ...] = (0,) * (MOST_DRAFTS + 1)
    drafts: int = 0

    @property
    def forwards(self) -> int:
        return sum(self.rounds)

    @property
    def accepted(self) -> int:
        return sum(n * rounds for n, rounds in enumerate(self.rounds))

    @property
    def tokens(self) -> int:
        """Accepted drafts and the token that every round makes anyway."""
        return self.forwards + self.accepted

    @property
    def mean_length(self) -> float | None:
        return self.tokens / self.forwards if self.forwards else None

    def add(self, table: Columns, warmup: int = 0) -> Acceptance:
        """With more rows of table `acceptance`; requests below `warmup` do not count."""
        mine = table["request"] >= warmup
        more = [int(table[f"accepted_{n}"].sum(where=mine)) for n in range(MOST_DRAFTS + 1)]
        rounds = tuple(a + b for a, b in zip(self.rounds, more, strict=True))
        return Acceptance(rounds, self.drafts + int(np.sum(table["n_drafts"], where=mine)))

    def rows(self, most: int) -> list[Row]:
        """Rows of the metrics table; `most`: drafts of a round."""
        n = self.forwards
        shares = [sum(self.rounds[position:]) for position in range(1, most + 1)]
        return [
            ("run", "decode_forwards", "total", n, "rounds", n),
            ("run", "drafts", "verified", self.drafts, "tokens", n),
            ("run", "drafts", "accepted", self.accepted, "tokens", n),
            ("run", "accept_length", "mean", self.mean_length, "tokens", n),
            *(
                ("run", "acceptance", f"position_{i}", share / n if n else None, "ratio", n)
                for i, share in enumerate(shares, start=1)
            ),
        ]

    def summary(self) -> dict[str, float | int | None]:
        """Under the reference simulator's key names."""
        return {
            "decode_forwards": self.forwards,
            "accepted_tokens_including_base": self.tokens,
            "mean_accept_length": self.mean_length,
        }
