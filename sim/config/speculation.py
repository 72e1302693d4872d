"""Speculative decoding: `engine.speculation`, and `engine.nextn` as the older way to write MTP down."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from sim import spec
from sim.config.acceptance import conditional, read_measured
from sim.config.base import Count, Section, Seed
from sim.result import MOST_DRAFTS

Drafts = Annotated[int, Field(ge=1, le=MOST_DRAFTS)]
Rate = Annotated[float, Field(ge=0, le=1)]


class Measured(Section):
    """Acceptance as an engine reports it: a file, or shares per position, or counts per position."""

    path: Annotated[str, Field(min_length=1)] | None = None
    per_position: list[Rate] | None = None
    drafts: Count | None = None
    accepted_per_position: list[Annotated[int, Field(ge=0)]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("path"), str):
            return values
        doubled = sorted(set(values) - {"path"})
        if doubled:
            raise ValueError(f"give either path or the figures, not both: {', '.join(doubled)}")
        return {**values, **read_measured((info.context or {}).get("base"), values["path"])}

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Measured:
        counts = self.drafts is not None, self.accepted_per_position is not None
        if all(counts) == (self.per_position is not None) or any(counts) != all(counts):
            raise ValueError("give per_position, or drafts with accepted_per_position, or path")
        self.rates()
        return self

    def rates(self) -> tuple[float, ...]:
        """Conditional acceptance rates, one per position."""
        if self.per_position is not None:
            return conditional(self.per_position)
        assert self.drafts is not None and self.accepted_per_position is not None
        return conditional([self.drafts, *self.accepted_per_position], first=True)


class Speculation(Section):
    """A drafter, how much it proposes and how much of that holds."""

    kind: Literal["ngram", "mtp", "eagle"]
    num_speculative_tokens: Drafts
    acceptance_rates: list[Rate] | None = None
    measured: Measured | None = None
    seed: Seed | None = None  # None: the run's
    trigger_rate: Rate = 1.0
    max_batch_size: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    @model_validator(mode="after")
    def _rates_fit(self) -> Speculation:
        if (self.acceptance_rates is None) == (self.measured is None):
            raise ValueError("needs either acceptance_rates or measured")
        if self.acceptance_rates is not None and len(self.acceptance_rates) != self.num_speculative_tokens:
            raise ValueError(
                f"acceptance_rates has {len(self.acceptance_rates)} rates; it needs one per draft, "
                f"{self.num_speculative_tokens}"
            )
        if self.measured is not None and len(self.measured.rates()) < self.num_speculative_tokens:
            raise ValueError(
                f"measured has {len(self.measured.rates())} positions; {self.num_speculative_tokens} drafts need as "
                "many"
            )
        if self.kind != "ngram" and self.trigger_rate != 1:
            raise ValueError("trigger_rate is for kind: ngram, the others always have something to propose; remove it")
        return self

    def spec(self, seed: int) -> spec.Speculation:
        rates = self.acceptance_rates if self.measured is None else self.measured.rates()
        assert rates is not None
        return spec.Speculation(
            kind=self.kind,
            drafts=self.num_speculative_tokens,
            rates=tuple(float(rate) for rate in rates[: self.num_speculative_tokens]),
            seed=seed if self.seed is None else self.seed,
            trigger_rate=float(self.trigger_rate),
            max_batch=self.max_batch_size,
        )


def from_nextn(nextn: int, accepted: float, seed: int) -> spec.Speculation:
    """MTP of `nextn` heads of which `accepted` drafts hold on average: the whole part surely, then the fraction, then
    none. 2.2 of 3 becomes 1, 1, 0.2 (8.1)."""
    rates = [min(1.0, max(0.0, accepted - position)) for position in range(nextn)]
    return spec.Speculation("mtp", nextn, tuple(rates), seed)
