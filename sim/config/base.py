"""What the sections of the configuration share: strictness, number types, and fields that few values may have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class ConfigError(ValueError):
    """The configuration is unusable. The message names each field, its value, what is allowed and what to do."""


class Section(BaseModel):
    """One mapping of the file. Unknown fields are errors, nothing is coerced, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


# Bounds keep every figure and every product of two inside the engine's 64-bit integers.
Count = Annotated[int, Field(gt=0, le=2**31 - 1)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]
Ratio = Annotated[float, Field(ge=0)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Limit = Annotated[float, Field(gt=0)]


def same(value: Any, other: Any) -> bool:
    """Equal and of one type: `true` is not 1, and 0 is not `false`."""
    return type(value) is type(other) and value == other


def only(*allowed: Any, because: str) -> AfterValidator:
    """For a field that people's files carry: accept the values that ask for nothing we lack, refuse the others.

    Args:
        allowed: values that mean nothing here, hence change nothing.
        because: why any other value is refused, and what to write instead.
    """

    def check(value: Any) -> Any:
        if any(same(value, each) for each in allowed):
            return value
        raise PydanticCustomError("unavailable", "{because}", {"because": because})

    return AfterValidator(check)


MOST = 2**31 - 1  # of anything counted


def count_or(*words: str) -> AfterValidator:
    """For a field that takes a positive whole number or one of a few words; one fault, not one per alternative."""

    def check(value: Any) -> Any:
        if value is None or value in words or (type(value) is int and 0 < value <= MOST):
            return value
        text = f"write a whole number from 1 to {MOST:,}, or {' or '.join(words)}"
        raise PydanticCustomError("count_or_word", "{text}", {"text": text})

    return AfterValidator(check)
