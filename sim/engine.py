"""The engine: a replay in compiled code behind a plain function.

Cost follows events (arrivals, admissions, completions, preemptions), not tokens: see docs/engine.md. `sim.reference` is
the specification; both give the same tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import sim.state as S
from sim.collect import Collector
from sim.errors import Deadlock, Livelock, ReplayError, TimingError, WorkloadError
from sim.explain import CLOCK_MESSAGE, blocked_message, livelock_message
from sim.inputs import Workload
from sim.loop import run
from sim.plays import followers, openers
from sim.prefix import share
from sim.result import MemorySink, Outcome, Sink
from sim.settle import LIVELOCK_CHOICES
from sim.setup import allocate, config_of, inputs_of, log_rows, router_of
from sim.spec import Deployment, EngineSpec, FlatTiming, PoolsSpec, Routing, Speculation
from sim.speculation.setup import drafting_of
from sim.state import State
from sim.timing.compiled import compile_timing
from sim.timing.count import load as load_counter
from sim.timing.plain import CLOCK_END_NS, PlainPricer, Work

PATIENCE = 200_000  # passes between two looks at the progress bar and at Ctrl-C


def replay(
    spec: Deployment, workload: Workload, sink: Sink, *, progress: Callable[[int, int], None] | None = None
) -> Outcome:
    """Replay `workload` on `spec`, handing finished rows to `sink` as it goes.

    Args:
        progress: called with (requests ended, requests in all) between stretches of passes.

    Raises:
        Deadlock, Livelock, TimingError: the replay cannot be completed; what reached the sink must be thrown away.
        WorkloadError: the workload breaks its own contract (unsorted arrivals, lengths out of range).
    """
    if isinstance(spec, PoolsSpec):
        if any(side.front is not None for side in spec.sides):
            raise WorkloadError("separate pools know no front end; leave it out")
        from sim.pools import engine  # its kernels are compiled only for those who use them

        return engine.replay(spec, workload, sink, progress=progress)
    check(spec, workload)
    kernels_of(spec)()
    began = time.perf_counter()
    shared = share(workload, spec.block_tokens, caching=spec.prefix_caching)
    follow = followers(workload)
    config, inputs = config_of(spec, workload), inputs_of(workload, shared, follow, spec.front)
    # A worker may write this many rows of one kind between two looks at the logs.
    rows = spec.dp * (4 * config.seqs + 8)
    state, prices = allocate(spec, workload, shared, follow, config, rows), compile_timing(spec)
    state = state._replace(route=router_of(spec.routing, len(workload), spec.ranks, shared))
    drafting = drafting_of(spec, len(workload), config.seqs, log_rows(rows), config.mask)
    collector = Collector(spec, workload, config, state, sink, drafting)
    status = run_to_end(
        lambda: run(config, inputs, state, drafting, prices, rows, PATIENCE), collector, state, len(workload), progress
    )
    if status in (S.DEADLOCK, S.LIVELOCK, S.BAD_PRICE):
        raise _error(status, spec, state)
    return outcome_of(began, collector, state, len(workload), status, progress)


def run_to_end(
    step: Callable[[], int], collector: Collector, state: State, total: int, progress: Callable[[int, int], None] | None
) -> int:
    """Run kernels until the replay has ended, their logs handed over in between; the status it ended with."""
    while True:
        status = step()
        collector.drain()
        if status not in (S.DRAIN, S.PAUSE):
            return status
        if progress is not None:
            progress(int(state.g[S.N_DONE]), total)


def outcome_of(
    began: float, collector: Collector, state: State, total: int, status: int,
    progress: Callable[[int, int], None] | None,
) -> Outcome:  # fmt: skip
    """What a replay of `total` requests that ended came to; its engine's clock began at `began`."""
    gaps = collector.finish(stopped=status == S.STOPPED_AT_CAP)
    outcome = Outcome(
        end_ns=int(state.g[S.NOW]),
        engine_ms=(time.perf_counter() - began - collector.sink_seconds) * 1e3,
        n_passes=int(state.g[S.TOTAL_PASSES]),
        n_requests=total,
        peak_active_blocks=int(state.g[S.PEAK_ACTIVE]),
        latencies=gaps,
        lookups=collector.evidence.lookups(),
    )
    if progress is not None:
        progress(total, total)
    return outcome


_loaded: set[tuple[bool, bool]] = set()


def kernels_of(spec: Deployment) -> Callable[[], None]:
    """What loads the machine code that this deployment runs on."""
    if isinstance(spec, PoolsSpec):
        from sim.pools import engine

        return partial(engine.load_kernels, drafting=spec.speculation is not None, routing=spec.looks_at_ranks)
    return partial(load_kernels, drafting=spec.speculation is not None, routing=spec.routing is not None)


def load_kernels(*, drafting: bool = False, routing: bool = False) -> None:
    """Load the compiled kernels, or compile them on the first use on a machine (about half a minute).

    Loading code is start-up, not replaying, so it happens before the engine's clock starts.

    Args:
        drafting: those of replays with speculative decoding, which are compiled apart.
        routing: those of replays behind a KV-aware router, likewise.
    """
    if (drafting, routing) in _loaded:
        return
    _loaded.add((drafting, routing))
    load_counter()
    one, ids = np.ones(1, np.int64), np.zeros(1, np.int64)
    tiny = Workload(ids, one, one, hash_offsets=np.array([0, 1]), hash_ids=ids)
    spec = EngineSpec(timing=FlatTiming(1.0), blocks=1, max_num_seqs=1, stop_ns=0)
    if drafting:
        spec = replace(spec, speculation=Speculation("mtp", 1, (0.0,)))
    if routing:
        spec = replace(spec, routing=Routing())
    replay(spec, tiny, MemorySink())


def _error(status: int, spec: EngineSpec, state: State) -> ReplayError:
    """The error of a replay that cannot go on."""
    now, rank = int(state.g[S.NOW]), int(state.g[S.BLAME_RANK])
    if status == S.LIVELOCK:
        victim = int(state.r[rank, S.WAIT_HEAD])
        return Livelock(livelock_message(spec, victim, rank // spec.dp, rank % spec.dp, LIVELOCK_CHOICES, now))
    if status == S.DEADLOCK:
        heads = [int(state.r[k, head]) for k in range(spec.ranks) for head in (S.WAIT_HEAD, S.RUN_HEAD, S.INBOX_HEAD)]
        r = next(head for head in heads if head >= 0)
        prompt = int(state.q[r, S.PROMPT])
        return Deadlock(blocked_message(spec, r, prompt, prompt + int(state.q[r, S.RECEIVED]), now))
    return bad_price(spec, state, rank)


def bad_price(spec: EngineSpec, state: State, rank: int) -> TimingError:
    """The error of a pass of `rank` whose duration is none."""
    pricer = PlainPricer(spec)
    for batch in state.b[rank]:
        try:
            pricer.price(Work(*(int(batch[c]) for c in (S.B_NP, S.B_TP, S.B_KVP, S.B_B, S.B_KV))))
        except TimingError as error:
            return error
    return TimingError(CLOCK_MESSAGE)


def check(spec: EngineSpec, load: Workload, *, pins: bool = True) -> None:
    """Compiled code does not check bounds, so this is where a malformed workload stops.

    Args:
        pins: `spec` is the whole deployment, whose ranks pins name.

    Raises:
        WorkloadError: naming the column and the first offending request.
    """
    n = len(load)
    columns = {"arrival_ns": load.arrival_ns, "prompt_tokens": load.prompt_tokens, "output_tokens": load.output_tokens}
    optional = ("hashed_tokens", "session", "delay_ns", "pinned_rank", "pinned_prefill_rank", "not_before_ns")
    columns |= {name: getattr(load, name) for name in optional}
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise WorkloadError(f"workload column {name} has {len(values)} rows, arrival_ns has {n}")

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            raise WorkloadError(f"request {int(bad.argmax())}: {what}")

    limit = 2**31 - 1 - 2**20
    refuse(load.prompt_tokens < 1, "prompt_tokens must be at least 1")
    refuse(load.output_tokens < 0, "output_tokens must not be negative")
    refuse(load.prompt_tokens + load.output_tokens > limit, f"prompt and output together exceed {limit} tokens")
    if pins and load.pinned_rank is not None:
        refuse(load.pinned_rank >= spec.dp, f"pinned_rank must be below the {spec.dp} attention-DP ranks of a worker")
    if pins and load.pinned_prefill_rank is not None:
        refuse(load.pinned_prefill_rank >= 0, "pinned_prefill_rank names a rank of a prefill pool, and there is none")
    for name in ("delay_ns", "not_before_ns"):
        times = getattr(load, name)
        if times is not None:
            refuse(times < 0, f"{name} must not be negative")
            refuse(times > CLOCK_END_NS, f"{name} must be at most {CLOCK_END_NS}, 146 years")
    if load.wait_offsets is not None:
        _check_waits(load, refuse)
    if load.send_limit is not None and load.send_limit < 1:
        raise WorkloadError(f"send_limit={load.send_limit} must be at least 1")
    if load.warmup < 0:
        raise WorkloadError(f"warmup={load.warmup} must not be negative")
    if load.hashed_tokens is not None:
        refuse(load.hashed_tokens < 0, "hashed_tokens must not be negative")
    if load.concurrency is None:
        firsts = load.arrival_ns
        if load.session is not None:
            firsts = firsts[openers(np.asarray(load.session)) == np.arange(n)]
        refuse(firsts < 0, "arrival_ns must not be negative")
        refuse(firsts > CLOCK_END_NS, f"arrival_ns must be at most {CLOCK_END_NS}, 146 years")
        if n and (np.diff(firsts) < 0).any():
            raise WorkloadError(
                f"arrivals go back in time after request {int((np.diff(firsts) < 0).argmax())}: sort the workload"
            )
    elif load.concurrency < 1:
        raise WorkloadError(f"concurrency={load.concurrency} must be at least 1")
    if load.hash_offsets is not None:
        if len(load.hash_offsets) != n + 1 or load.hash_ids is None or load.hash_offsets[-1] != len(load.hash_ids):
            raise WorkloadError(
                "hash_offsets must have one entry more than there are requests and end at len(hash_ids)"
            )
        if load.hash_offsets[0] < 0 or (np.diff(load.hash_offsets) < 0).any():
            raise WorkloadError("hash_offsets must not be negative, nor decrease")
        if load.hash_block_tokens < 1:
            raise WorkloadError(f"hash_block_tokens={load.hash_block_tokens} must be at least 1")
    if spec.profile == "vllm" and spec.max_batched_tokens < spec.max_num_seqs:
        raise WorkloadError(
            f"max_batched_tokens={spec.max_batched_tokens} is below max_num_seqs={spec.max_num_seqs}: vLLM refuses "
            "this; raise scheduler.max_batched_tokens, lower scheduler.max_sequences, or use profile parity"
        )
    if spec.profile == "vllm" and spec.preemption == "fifo":
        raise WorkloadError("preemption 'fifo' does not exist in vLLM; use 'lifo', or profile parity")


def _check_waits(load: Workload, refuse: Callable[[np.ndarray, str], None]) -> None:
    """Waits point back within their play, so that nobody can wait for itself in the end."""
    n, offsets, on = len(load), load.wait_offsets, load.wait_on
    delay, dispatch = load.wait_delay_ns, load.wait_on_dispatch
    if load.session is None or offsets is None or on is None or delay is None or dispatch is None:
        raise WorkloadError("wait_offsets need session, wait_on, wait_delay_ns and wait_on_dispatch beside them")
    if len(offsets) != n + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] != len(on):
        raise WorkloadError("wait_offsets must begin at 0, not decrease, and end at len(wait_on) after every request")
    if len(delay) != len(on) or len(dispatch) != len(on):
        raise WorkloadError("wait_on, wait_delay_ns and wait_on_dispatch must be equally long")
    who = np.repeat(np.arange(n), np.diff(offsets))
    session = np.asarray(load.session)

    def any_of(bad: np.ndarray) -> np.ndarray:
        return np.bincount(who[bad], minlength=n) > 0

    refuse(any_of((on < 0) | (on >= who)), "wait_on must name an earlier request")
    refuse(any_of(session[on] != session[who]) | any_of(session[who] < 0), "may wait for requests of its own play only")
    refuse(any_of(delay < 0), "wait_delay_ns must not be negative")
    refuse(any_of(delay > CLOCK_END_NS), f"wait_delay_ns must be at most {CLOCK_END_NS}, 146 years")
