"""Lengths of made-up requests: one number, or a distribution to draw from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StrictInt, Tag, model_validator
from pydantic_core import PydanticCustomError

from sim.config.base import Count, NonNegativeInt, Section

Positive = Annotated[float, Field(gt=0, le=2**31 - 1)]


class _Bounded(Section):
    """Draws are rounded to whole tokens and then kept inside these bounds."""

    min: Count = 1
    max: Count = 2**31 - 1

    @model_validator(mode="after")
    def _in_order(self) -> _Bounded:
        if self.min > self.max:
            text = f"min={self.min} is above max={self.max}; swap them"
            raise PydanticCustomError("unavailable", "{text}", {"text": text})
        return self


class Uniform(_Bounded):
    """Every whole number from min to max alike."""

    type: Literal["uniform"]
    min: Count
    max: Count


class UniformRange(Section):
    """Every whole number from `at_least` of the length to the length alike, as InferenceMAX draws them."""

    type: Literal["uniform_range"]
    tokens: Count
    at_least: Annotated[float, Field(gt=0, le=1)] = 0.8


class Normal(_Bounded):
    """Bell-shaped."""

    type: Literal["normal"]
    mean: Positive
    std: Annotated[float, Field(ge=0, le=2**31 - 1)]


class LogNormal(_Bounded):
    """The logarithm is bell-shaped: many short ones and a long tail. `sigma` is the logarithm's standard deviation."""

    type: Literal["log_normal"]
    median: Positive
    sigma: Annotated[float, Field(ge=0, le=20)]


class Empirical(Section):
    """Drawn from a list of lengths; one that stands there twice comes twice as often."""

    type: Literal["empirical"]
    tokens: Annotated[list[Annotated[StrictInt, Field(gt=0, le=2**31 - 1)]], Field(min_length=1)]


Distribution = Uniform | UniformRange | Normal | LogNormal | Empirical
NUMBER = "number"


def _kind(value: Any) -> str | None:
    if isinstance(value, dict):
        return value.get("type")
    return getattr(value, "type", NUMBER)


_DRAWN = (
    Annotated[Uniform, Tag("uniform")]
    | Annotated[UniformRange, Tag("uniform_range")]
    | Annotated[Normal, Tag("normal")]
    | Annotated[LogNormal, Tag("log_normal")]
    | Annotated[Empirical, Tag("empirical")]
)
Lengths = Annotated[Annotated[Count, Tag(NUMBER)] | _DRAWN, Discriminator(_kind)]
LengthsOrZero = Annotated[Annotated[NonNegativeInt, Tag(NUMBER)] | _DRAWN, Discriminator(_kind)]
