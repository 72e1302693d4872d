"""The whole configuration of one run, and what the engine takes from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from sim.config.base import Limit, Section, Seed, only
from sim.config.engine import DEFAULT_BLOCKS, Engine, KvTransfer, Worker, Workers
from sim.config.host import front_end
from sim.config.speculation import from_nextn
from sim.config.timing import DefaultTiming
from sim.config.traffic import Trace, Traffic
from sim.models import layers_of, max_context_tokens
from sim.spec import EngineSpec, Routing, Speculation, Timing, Transfer

# Settings of an estimator that is not asked when the timing is given.
ESTIMATOR = ("estimation_mode", "fallback_policy", "database_mode", "enable_shared_layer", "strict_provenance")
ROLES = ("aggregated", "prefill", "decode")
NO_SEARCH = "a search is not a run; write one concrete configuration"


class Router(Section):
    """Placement of requests on ranks: in turn, or where they cost least (RT-4)."""

    policy: Annotated[  # kv_router is the name other files have for kv_aware
        Any, only("round_robin", "kv_aware", "kv_router", because="use round_robin or kv_aware")
    ] = "round_robin"
    overlap_credit: Annotated[float, Field(ge=0, le=1)] = 1.0
    prefill_load_scale: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    temperature: Annotated[
        Any, only(None, 0, 0.0, because="ranks are not drawn by chance: the least cost wins; use 0, or remove it")
    ] = None
    prefill_load_model: Annotated[
        Any, only(None, "none", {"type": "none"}, because="prompts count by their tokens; remove it")
    ] = None

    @property
    def routing(self) -> Routing | None:
        """What the engine needs to know; None: requests take turns."""
        if self.policy == "round_robin":
            return None
        return Routing(float(self.overlap_credit), float(self.prefill_load_scale))


class Planner(Section):
    """Scaling while the run goes on, which we have none of."""

    policy: Annotated[Any, only("disabled", because="runtime scaling is not modelled; use disabled")] = "disabled"


class Sla(Section):
    """Limits for goodput, ms: TTFT and/or mean ITL, or E2E alone."""

    ttft_ms: Limit | None = None
    itl_ms: Limit | None = None
    e2e_ms: Limit | None = None


class Evaluation(Section):
    """How the run is judged."""

    sla: Sla | None = None
    ttft: Literal["decode", "prefill"] = "decode"


def _run_name(name: str) -> str:
    # Commands take "last" for the latest run, so that a run of this name could not be asked for.
    if name == "last":
        raise PydanticCustomError("taken", "{text}", {"text": "means the latest run in commands; choose another name"})
    return name


class RunConfig(Section):
    """One run: traffic, deployment and what to record. Made by `sim.config.load_run_config` only."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), AfterValidator(_run_name)] | None = None
    profile: Literal["vllm", "parity", "trtllm"] = "vllm"
    seed: Seed = 42
    output: Annotated[str, Field(min_length=1)] | None = None
    traffic: Traffic
    engine: Engine
    router: Router = Router()
    planner: Planner = Planner()
    evaluation: Evaluation = Evaluation()
    optimization: Annotated[Any, only(None, because=NO_SEARCH)] = None
    optimizer: Annotated[Any, only(None, because=NO_SEARCH)] = None

    @property
    def sla(self) -> Sla | None:
        """Limits for goodput; None when there are none."""
        limits = self.evaluation.sla
        return limits if limits and (limits.ttft_ms or limits.itl_ms or limits.e2e_ms) else None

    @property
    def ttft_ends(self) -> Literal["decode", "prefill"] | None:
        """What TTFT counts to with separate pools: a decode worker's first token, or the prompt computed. None with one
        pool: its prefill makes the first token, so that they are the same instant."""
        return self.evaluation.ttft if self.engine.mode == "disaggregated" else None

    @property
    def max_model_len(self) -> int | None:
        """Longest sequence in tokens; None for no limit."""
        found = self.engine.context_length
        return max_context_tokens(self.engine.model) if found == "max" else found

    @property
    def worker(self) -> Worker:
        """The workers that make tokens: all of them, or with separate pools those that decode."""
        workers = self.engine.workers
        found = workers.decode if workers.aggregated is None else workers.aggregated
        assert found is not None, "checked with the configuration"
        return found

    @property
    def sides(self) -> tuple[RunConfig, ...]:
        """This configuration; with separate pools one for each, prefill first, as if there was no other."""
        workers = self.engine.workers
        if workers.aggregated is not None:
            return (self,)
        assert workers.prefill is not None and workers.decode is not None, "checked with the configuration"
        return self._alone(workers.prefill), self._alone(workers.decode)

    def _alone(self, worker: Worker) -> RunConfig:
        """The same with these workers only; they choose synchronously unless told otherwise."""
        asked = worker.scheduler.async_scheduling is True
        scheduler = worker.scheduler.model_copy(update={"async_scheduling": asked})
        alone = Workers(aggregated=worker.model_copy(update={"scheduler": scheduler}))
        of_none = {"mode": "aggregated", "workers": alone, "kv_transfer": None, "conditional_disaggregation": None}
        others = {"router": Router(), "evaluation": Evaluation(sla=self.evaluation.sla)}
        return self.model_copy(update={"engine": self.engine.model_copy(update=of_none), **others})

    @property
    def gpus_per_worker(self) -> int | tuple[int, int]:
        """GPUs of one replica, of a prefill and of a decode one with separate pools; expert and MoE-tensor shares
        divide these and add none."""
        shapes = [side.worker.parallelism for side in self.sides]
        found = [shape.tensor * shape.attention_data for shape in shapes]
        return found[0] if len(found) == 1 else (found[0], found[1])

    @property
    def zero_output(self) -> Literal["refuse", "prefill_only", "quarantine"]:
        """What becomes of requests for no tokens; unset: as the profile's engine does."""
        if self.traffic.zero_output is not None:
            return self.traffic.zero_output
        return "refuse" if self.profile == "vllm" else "prefill_only"

    @property
    def async_scheduling(self) -> bool:
        """Whether the next pass is chosen while one runs; unset: on for vLLM, but for ngram drafts (6.3), and no other
        backend has it. In separate pools each role has its own, off unless asked for; see `sides`."""
        if self.engine.mode == "disaggregated" or self.profile == "trtllm":
            return False
        if self.speculation is not None and self.speculation.kind == "ngram":
            return False
        return self.worker.scheduler.async_scheduling is not False

    @property
    def speculation(self) -> Speculation | None:
        """How drafts are made and accepted, whichever way it was written down."""
        engine = self.engine
        if engine.speculation is not None:
            return engine.speculation.spec(self.seed)
        if not engine.nextn:
            return None
        return from_nextn(engine.nextn, float(engine.nextn_accepted or 0), self.seed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Things that are allowed and yet probably not meant."""
        if self.engine.mode == "disaggregated":
            prefill, decode = self.sides
            of_sides = tuple(
                f"{role}: {said}"
                for role, side in (("prefill", prefill), ("decode", decode))
                for said in side._pool_warnings
            )
            return of_sides + self.transfer_warnings
        worker = self.worker
        found = []
        if self.evaluation.ttft != "decode":
            found.append(
                f"evaluation.ttft={self.evaluation.ttft} acts only with mode: disaggregated; "
                "with one pool the prefill makes the first token"
            )
        if worker.scheduler.max_batched_tokens < worker.scheduler.max_sequences:
            found.append(
                f"max_batched_tokens={worker.scheduler.max_batched_tokens} is below "
                f"max_sequences={worker.scheduler.max_sequences}: a full batch cannot decode in one pass"
            )
        if "capacity" not in worker.kv_cache.model_fields_set:
            found.append(
                f"kv_cache.capacity is not given: {worker.kv_cache.capacity.blocks:,} blocks per rank are assumed"
            )
        if worker.scheduler.prefill_schedule_interval > 1 and worker.parallelism.attention_data == 1:
            found.append("prefill_schedule_interval acts only with attention_data above 1")
        if worker.parallelism.attention_data > 1 and self.async_scheduling:
            found.append("async_scheduling with attention_data above 1 has never been compared with a real engine")
        return tuple(found)

    @property
    def _pool_warnings(self) -> tuple[str, ...]:
        """The same of one side of separate pools."""
        if not self.async_scheduling:
            return self.warnings
        return (*self.warnings, "async_scheduling in separate pools has never been compared with a real engine")

    @property
    def estimation_mode(self) -> str | None:
        """Which estimator prices passes; None where the timing is given."""
        timing = self.worker.timing
        if not isinstance(timing, DefaultTiming):
            return None
        return self.engine.estimation_mode or timing.forward_model or "auto"

    @property
    def given_blocks(self) -> int | None:
        """Usable KV blocks per rank where the configuration says so; None: they follow from memory."""
        return self.worker.kv_cache.capacity.blocks

    def engine_spec(self, *, timing: Timing | None = None, blocks: int | None = None) -> EngineSpec:
        """What the engine needs to know.

        Args:
            timing: prices made from performance data, for `timing.type: default`.
            blocks: usable KV blocks per rank where they follow from memory.
        """
        worker = self.worker
        scheduler, cap = worker.scheduler, self.traffic.stop.max_virtual_time_seconds
        return EngineSpec(
            profile=self.profile,
            timing=worker.timing.spec() if timing is None else timing,
            workers=worker.parallelism.replicas,
            dp=worker.parallelism.attention_data,
            block_tokens=worker.kv_cache.block_size,
            blocks=blocks or worker.kv_cache.capacity.blocks or DEFAULT_BLOCKS,
            max_num_seqs=scheduler.max_sequences,
            max_batched_tokens=scheduler.max_batched_tokens,
            max_model_len=self.max_model_len,
            prefix_caching=worker.kv_cache.prefix_caching,
            chunked_prefill=scheduler.chunked_prefill,
            async_scheduling=self.async_scheduling,
            preemption=scheduler.preemption_mode,
            prefill_schedule_interval=scheduler.prefill_schedule_interval,
            watermark=float(scheduler.watermark),
            reserve_full_isl=scheduler.reserve_full_isl is not False,
            boundary_arrivals=scheduler.boundary_arrivals,
            speculation=self.speculation,
            capacity_policy=scheduler.capacity_policy or "guaranteed_no_evict",
            speedup_ratio=float(worker.speedups.speedup_ratio),
            decode_speedup_ratio=float(worker.speedups.decode_speedup_ratio),
            stop_ns=None if cap is None else round(cap * 1e9),
            front=front_end(self.engine.tokenization, self.engine.host),
            routing=self.router.routing,
        )

    @property
    def local_prefill_tokens(self) -> int | None:
        """Most that a decode worker may lack of a prompt it prefills itself; None: it prefills none."""
        given = self.engine.conditional_disaggregation
        return None if given is None else given.local_prefill_tokens

    def transfer(self, bytes_per_token: float | None) -> Transfer:
        """KV transfers between separate pools; `bytes_per_token` over all ranks of a replica, None unknown."""
        given = self.engine.kv_transfer or KvTransfer()
        rate = given.bandwidth_gb_per_second
        return Transfer(
            bytes_per_token=bytes_per_token,
            bytes_per_second=None if rate is None else float(rate) * 1e9,
            missing_only=given.timing_mode == "destination_missing",
            fixed_bytes=float(given.fixed_state_bytes),
            fallback_ns=round(float(given.fallback_ms) * 1e6),
            links=given.links,
            sharing=given.sharing,
            first_byte_ns=round(float(given.first_byte_ms) * 1e6),
            failure_rate=float(given.failure_rate),
            retries=given.retries,
            timeout_ns=None if given.timeout_ms is None else max(round(float(given.timeout_ms) * 1e6), 1),
            seed=self.seed,
            layers=0 if given.overlap is None else given.overlap.layers,
        )

    @property
    def transfer_warnings(self) -> tuple[str, ...]:
        """Settings of transfers that change nothing as they stand."""
        given = self.engine.kv_transfer or KvTransfer()
        found = []
        if given.bandwidth_gb_per_second is None:
            found.append(self._without_bandwidth(given))
        if given.overlap is not None and (layers := layers_of(self.engine.model)) and given.overlap.layers > layers:
            found.append(
                f"kv_transfer.overlap.layers={given.overlap.layers} is above the {layers} layers of "
                f"engine.model={self.engine.model!r}"
            )
        if given.links == "none" and "sharing" in given.model_fields_set:
            found.append("kv_transfer.sharing acts only where kv_transfer.links are shared")
        if given.retries and not given.failure_rate:
            found.append("kv_transfer.retries acts only with a failure_rate")
        return tuple(found)

    @staticmethod
    def _without_bandwidth(given: KvTransfer) -> str:
        """What transfers take whose rate nobody gave; a `fallback_ms` that is written down is an answer, 0 too."""
        unset = "kv_transfer.bandwidth_gb_per_second is not set"
        if "fallback_ms" in given.model_fields_set:
            return f"every transfer takes kv_transfer.fallback_ms={given.fallback_ms:g}: {unset}"
        if given.first_byte_ms:
            return f"transfers take kv_transfer.first_byte_ms and no more: {unset}; give it, or kv_transfer.fallback_ms"
        return f"transfers take no time: {unset}; give it, or kv_transfer.fallback_ms"

    def canonical(self) -> dict[str, Any]:
        """What identifies the run, defaults filled in, ready for JSON and a digest.

        Left out: the name and the output folder, which change nothing, file paths, since bytes identify a file, and
        what is said about bad rows.
        Different spellings of one thing (`session.turns`, `context_length: max`, 1 for 1.0) come out equal.
        """
        values = self.model_dump(exclude={"name", "output", "router", "planner", "optimization", "optimizer"})
        if self.router.routing is not None:
            values["router"] = {"policy": "kv_aware"} | asdict(self.router.routing)
        values["zero_output"] = self.zero_output
        values["max_model_len"] = self.max_model_len
        for role in ROLES:
            worker = getattr(self.engine.workers, role)
            if worker is None:
                continue
            values["engine"]["workers"][role]["timing"] = worker.timing.canonical()
            scheduler = values["engine"]["workers"][role]["scheduler"]
            asked = worker.scheduler.async_scheduling is True
            scheduler["async_scheduling"] = self.async_scheduling if role == "aggregated" else asked
            if scheduler["capacity_policy"] == "guaranteed_no_evict":
                scheduler["capacity_policy"] = None  # the default, said aloud
            scheduler["reserve_full_isl"] = worker.scheduler.reserve_full_isl is not False
        if self.ttft_ends != "prefill":
            values["evaluation"].pop("ttft")  # the default, or without effect
        values["traffic"].pop("zero_output")
        for name in ("context_length", "nextn", "nextn_accepted", *ESTIMATOR):
            values["engine"].pop(name)
        transfer = values["engine"]["kv_transfer"]
        for name, neutral in _ADDED_TO_TRANSFERS.items():
            if transfer is not None and transfer[name] == neutral:
                transfer.pop(name)
        values["engine"]["speculation"] = None if self.speculation is None else asdict(self.speculation)
        host, tokenization = self.engine.host, self.engine.tokenization
        values["engine"]["host"] = None if host is None else host.canonical()
        if tokenization is not None and not tokenization.ms_per_1024_tokens:
            values["engine"]["tokenization"] = None
        modes = [side.estimation_mode for side in self.sides]
        if any(modes):
            values["engine"]["estimation_mode"] = modes[0] if len(modes) == 1 else modes
        if not any(values["engine"]["precision"].values()):
            values["engine"].pop("precision")
        source = values["traffic"]["source"]
        if isinstance(self.traffic.source, Trace):
            for name in ("path", "paths", "quarantine"):
                source.pop(name)
            for step in source["shape"]:
                step.pop("path", None)
            if not source["shape"]:
                source.pop("shape")
        elif hasattr(self.traffic.source, "shape"):
            source.pop("session")
            source.update(self.traffic.source.shape)
        load = values["traffic"]["load"]
        if "seed" in load:
            load["seed"] = self.load_seed
        return _without_neutral(values)

    @property
    def load_seed(self) -> int:
        """Seed of the arrival process: the load's own, or the run's."""
        own = getattr(self.traffic.load, "seed", None)
        return self.seed if own is None else own


# Settings that later releases added, and what asks for none of them: then they are not part of a run's identity.
_ADDED_TO_TRANSFERS = {
    name: KvTransfer.model_fields[name].default
    for name in ("links", "sharing", "first_byte_ms", "failure_rate", "retries", "timeout_ms")
}


def _without_neutral(values: Any) -> Any:
    """Drop what is absent and write whole floats as floats' shortest form, so that equal runs have equal JSON."""
    if isinstance(values, dict):
        return {name: _without_neutral(each) for name, each in values.items() if each is not None}
    if isinstance(values, list):
        return [_without_neutral(each) for each in values]
    return int(values) if isinstance(values, float) and values.is_integer() else values
