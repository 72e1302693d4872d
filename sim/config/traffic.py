"""What arrives and when it ends: `traffic`, in three parts, source, load and stop."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr
from pydantic_core import PydanticCustomError

from sim.config.base import Count, Milliseconds, NonNegativeInt, Section, Seed, only
from sim.config.lengths import Lengths, LengthsOrZero
from sim.config.shape import Step

TRACE_FORMATS = (
    "mooncake",
    "mooncake-delta",
    "agentic_mooncake",
    "dynamo",
    "weka",
    "applied_compute_agentic",
    "qwen_bailian",
    "azure",
    "burstgpt",
    "vidur",
    "splitwise",
    "vllm_log",
    "csv",
    "jsonl",
    "parquet",
)
MAPPED_FORMATS = ("csv", "jsonl", "parquet")  # those whose columns the configuration names


def _has_reciprocal(value: float) -> float:
    # Rates below the smallest normal float have no usable reciprocal.
    if value < sys.float_info.min:
        raise ValueError("must be greater than 0")
    return value


Rate = Annotated[float, AfterValidator(_has_reciprocal)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1)]
NO_IMAGES = "images are not modelled; remove it"
NO_TOKENIZER = "tokenizer time is not modelled; remove it"
NO_SNAPSHOT = "plays start at their beginning; remove it"
NO_PRIMERS = "requests that are made up to warm a cache are not modelled; remove it, or use traffic.warmup"
NO_PROFILE = "use traffic.stop; remove it"


def _trace_format(name: str) -> str:
    if name not in TRACE_FORMATS:
        raise PydanticCustomError("unavailable", "{text}", {"text": f"use one of {', '.join(TRACE_FORMATS)}"})
    return name


class Synthetic(Section):
    """Independent requests."""

    type: Literal["synthetic"]
    input_tokens: Lengths = 1024
    output_tokens: LengthsOrZero = 128
    shared_prefix_ratio: Share = 0.0
    prefix_groups: NonNegativeInt = 0
    images: Annotated[Any, only(None, because=NO_IMAGES)] = None
    tokenization: Annotated[Any, only(None, because=NO_TOKENIZER)] = None


class SessionShape(Section):
    """The same four fields as `SyntheticSession` has, in a mapping of their own (the other spelling in use)."""

    turns: Annotated[int, Field(ge=2)] | None = None
    shared_prefix_ratio: Share | None = None
    prefix_groups: NonNegativeInt | None = None
    inter_turn_delay_ms: Milliseconds | None = None


class SyntheticSession(Section):
    """Conversations: each turn's prompt is the whole conversation so far plus new tokens."""

    type: Literal["synthetic-session"]
    new_input_tokens_per_turn: Lengths = 1024
    output_tokens_per_turn: LengthsOrZero = 128
    turns_per_session: Annotated[int, Field(ge=2)] = 4
    shared_prefix_ratio: Share = 0.0
    prefix_groups: NonNegativeInt = 0
    inter_turn_delay_ms: Milliseconds = 0.0
    session: SessionShape | None = None
    tokenization: Annotated[Any, only(None, because=NO_TOKENIZER)] = None

    @property
    def shape(self) -> dict[str, Any]:
        """Turns, prefix sharing and think time, whichever spelling gave them, under the flat names."""
        own = self.session or SessionShape()
        given = own.model_dump(exclude_none=True)
        return {
            "turns_per_session": given.get("turns", self.turns_per_session),
            "shared_prefix_ratio": given.get("shared_prefix_ratio", self.shared_prefix_ratio),
            "prefix_groups": given.get("prefix_groups", self.prefix_groups),
            "inter_turn_delay_ms": given.get("inter_turn_delay_ms", self.inter_turn_delay_ms),
        }


class Columns(Section):
    """What a file calls our columns; a name that is left out is ours."""

    prompt_tokens: Name | None = None
    output_tokens: Name | None = None
    arrival: Name | None = None
    delay: Name | None = None
    session_id: Name | None = None
    request_id: Name | None = None
    dp_rank: Name | None = None
    hash_ids: Name | None = None


class QuarantineLimits(Section):
    """Share of a trace's rows that may be set aside: beyond the one a warning, beyond the other nothing is replayed.

    `reasons` gives a share to single reasons, beyond which nothing is replayed.
    """

    warn_above: Share | None = None
    fail_above: Share = 0.5
    reasons: dict[str, Share] = Field(default_factory=dict)


class Trace(Section):
    """Recorded requests in a file."""

    type: Literal["trace"]
    path: Annotated[str, Field(min_length=1)] | None = None
    paths: Annotated[list[StrictStr], Field(min_length=1)] | None = None
    format: Annotated[str, AfterValidator(_trace_format)] | None = None  # None: recognised by content
    block_size: Count | None = None  # tokens per hash id; None: as usual in the format
    columns: Columns | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None  # of columns; None: ms
    strict: bool = False  # the first bad row is an error
    quarantine: QuarantineLimits = QuarantineLimits()
    shape: list[Step] = Field(default_factory=list)  # another trace of this one, step by step
    nested_timestamp_basis: Literal["auto", "relative", "absolute"] | None = None  # Weka; None: auto
    tokenization: Annotated[Any, only(None, because=NO_TOKENIZER)] = None

    @property
    def file(self) -> str:
        """The one path, whichever spelling gave it."""
        return self.path if self.path is not None else (self.paths or [""])[0]


Source = Annotated[Synthetic | SyntheticSession | Trace, Field(discriminator="type")]


class Concurrency(Section):
    """A closed loop: as many requests (or sessions) at once as there are slots."""

    type: Literal["concurrency"]
    concurrency: Count = 10


class OpenLoad(Section):
    """Arrivals at a rate: requests, or sessions where the source has sessions."""

    requests_per_second: Rate | None = None
    sessions_per_second: Rate | None = None

    @property
    def rate(self) -> float | None:
        return self.requests_per_second if self.requests_per_second is not None else self.sessions_per_second


class ConstantRate(OpenLoad):
    """Equal gaps."""

    type: Literal["constant_rate"]


class Poisson(OpenLoad):
    """Exponential gaps."""

    type: Literal["poisson"]
    seed: Seed | None = None  # None: the run's seed


class Gamma(OpenLoad):
    """Gamma gaps with the mean of the rate; shape 1 is Poisson, larger is more even, smaller burstier."""

    type: Literal["gamma"]
    shape: Rate
    seed: Seed | None = None


class Diurnal(OpenLoad):
    """Poisson arrivals whose rate rises and falls: lowest at the start, highest half a period later."""

    type: Literal["diurnal"]
    amplitude: Share = 0.5  # the rate swings between (1 - amplitude) and (1 + amplitude) times its mean
    period_seconds: Annotated[float, Field(gt=0, le=1e9)] = 86_400.0
    seed: Seed | None = None


class Burst(Section):
    """Everything at time zero."""

    type: Literal["burst"]


class TraceTimestamps(Section):
    """The trace's own times, `speedup` times as fast.

    With `agentic_lanes`, that many sessions or plays run at once, the next one when one has ended; inside each the
    times are the trace's own.
    """

    type: Literal["trace_timestamps"]
    speedup: Rate = 1.0
    agentic_lanes: Count | None = None
    agentic_snapshot: Annotated[Any, only(None, because=NO_SNAPSHOT)] = None
    agentic_warmup: Annotated[Any, only(None, False, because=NO_PRIMERS)] = None
    agentic_profile: Annotated[Any, only(None, because=NO_PROFILE)] = None


Load = Annotated[
    Concurrency | ConstantRate | Poisson | Gamma | Diurnal | Burst | TraceTimestamps,
    Field(discriminator="type"),
]


class Stop(Section):
    """When the run ends: a count (of requests, sessions, or either per unit of load), and a cap on virtual time.

    `turns` ends a load of sessions when that many requests have been sent, in whatever sessions; these still end.
    """

    requests: Count | None = None
    requests_per_load_unit: Rate | None = None
    sessions: Count | None = None
    sessions_per_load_unit: Rate | None = None
    turns: Count | None = None
    max_virtual_time_seconds: Annotated[float, Field(gt=0, le=9e9)] | None = None


class Warmup(Section):
    """The first requests of the source run like the others, and do not count in any metric."""

    requests: Count | None = None
    requests_per_load_unit: Rate | None = None


class Traffic(Section):
    """Given as a whole or not at all: a traffic section replaces the default, it is not merged with it."""

    source: Source
    load: Load
    stop: Stop = Stop()
    warmup: Warmup | None = None
    # Requests for zero tokens: vLLM refuses them, so the default does too in its profile (None).
    zero_output: Literal["refuse", "prefill_only", "quarantine"] | None = None
    tokenization: Annotated[Any, only(None, because=NO_TOKENIZER)] = None

    @property
    def load_unit(self) -> float | None:
        """What the per-load-unit stops multiply: slots, or the rate."""
        if isinstance(self.load, Concurrency):
            return self.load.concurrency
        return self.load.rate if isinstance(self.load, OpenLoad) else None

    @property
    def warmup_requests(self) -> int:
        """Leading requests that do not count."""
        if self.warmup is None:
            return 0
        per_unit = self.warmup.requests_per_load_unit
        return self.warmup.requests or max(1, round((per_unit or 0) * (self.load_unit or 0)))

    @property
    def count(self) -> int | None:
        """Requests (or sessions, for a session source) to replay; None: all that the trace has."""
        stop = self.stop
        fixed = stop.requests if stop.requests is not None else stop.sessions
        if fixed is not None:
            return fixed
        per_unit = stop.requests_per_load_unit or stop.sessions_per_load_unit
        return max(1, round(per_unit * self.load_unit)) if per_unit and self.load_unit else None


DEFAULT_TRAFFIC = {
    "source": {"type": "synthetic", "input_tokens": 1024, "output_tokens": 128},
    "load": {"type": "concurrency", "concurrency": 10},
    "stop": {"requests": 100},
}
