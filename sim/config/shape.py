"""Steps that make another trace of a trace, before any load: `traffic.source.shape`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from pydantic import Field

from sim.config.base import Count, NonNegativeInt, Section, Seed

Seconds = Annotated[float, Field(ge=0, le=9e9)]
Factor = Annotated[float, Field(ge=sys.float_info.min, le=1e9)]


class SliceSeconds(Section):
    """Requests (and sessions) that arrive from `start` on and before `end`."""

    type: Literal["slice_seconds"]
    start: Seconds = 0.0
    end: Seconds | None = None


class SliceRows(Section):
    """Requests by their place in order of arrival, from `start` on and before `end`."""

    type: Literal["slice_rows"]
    start: NonNegativeInt = 0
    end: Count | None = None


class Sample(Section):
    """About this share of requests (and sessions)."""

    type: Literal["sample"]
    share: Annotated[float, Field(gt=0, le=1)]
    seed: Seed = 42


class SpeedUp(Section):
    """Arrivals and think times divided by the factor."""

    type: Literal["speed_up"]
    factor: Factor


class Clip(Section):
    """At most so many tokens."""

    type: Literal["clip"]
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None


class Scale(Section):
    """Lengths multiplied."""

    type: Literal["scale"]
    prompt: Factor = 1.0
    output: Factor = 1.0


class Merge(Section):
    """Another trace, mixed in by time."""

    type: Literal["merge"]
    path: Annotated[str, Field(min_length=1)]
    format: str | None = None
    offset_seconds: Seconds = 0.0
    same_ids: bool = False  # whether equal hash ids of the two mean equal text


Step = Annotated[
    SliceSeconds | SliceRows | Sample | SpeedUp | Clip | Scale | Merge,
    Field(discriminator="type"),
]
