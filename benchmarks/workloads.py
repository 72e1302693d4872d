"""The workloads both engines replay: as a case file, which both read, and as our own configuration for tables on disk.

The letters and shapes are those of a public comparison that the other engine's authors made; rows that would come from
its private generator are drawn here instead, so that both engines answer the same input.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from assets.synthetic import poisson_arrivals

BLOCK_TOKENS = {"vllm": 64, "trtllm": 32}
BLOCKS = 16_384
TRACE_BLOCK_TOKENS = 512
TRANSFER_GB, KV_BYTES = 50.0, 131_072  # between separate pools: GB/s, bytes per token
SEED = 7


@dataclass(frozen=True)
class Target:
    """What a workload has to reach; None where nothing is asked.

    Attributes:
        engine: the other engine's time over ours.
        summary_only, with_tables: the same of whole processes.
        rss_mib: peak memory; None means less than the other engine's.
    """

    engine: float | None
    summary_only: float | None = None
    with_tables: float | None = None
    rss_mib: float | None = 400


@dataclass(frozen=True)
class Workload:
    """One comparison."""

    key: str
    title: str
    target: Target
    backend: str = "vllm"
    fixed: bool = False  # 1 ms per prefill and per decode part; else the built-in polynomial
    blocks: int = BLOCKS
    replicas: int = 1
    pools: tuple[int, int] | None = None  # prefill and decode workers, in pools of their own
    ranks: int = 1
    concurrency: int | None = None
    count: int | None = None
    rate: float | None = None
    prompt_tokens: int = 1024
    output_tokens: int = 128
    trace: Path | None = None
    drafter: str = "mtp"
    rates: tuple[float, ...] = ()  # conditional acceptance of the drafts of a round

    @property
    def draws(self) -> bool:
        """Whether chance has a part in it; each engine draws from a generator of its own."""
        return any(0 < rate < 1 for rate in self.rates)

    @property
    def block_tokens(self) -> int:
        return BLOCK_TOKENS[self.backend]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write (case file, configuration) into `folder`, and the rows both read if there are any."""
        case, config = folder / f"{self.key}.json", folder / f"{self.key}.yaml"
        trace = self.trace
        if trace is None and self.rate is not None:
            trace = folder / f"{self.key}.jsonl"
            self._write_rows(trace)
        case.write_text(json.dumps(self.case(trace), indent=1) + "\n")
        config.write_text(yaml.safe_dump(self.config(trace), sort_keys=False))
        return case, config

    def case(self, trace: Path | None) -> dict[str, Any]:
        """In the other engine's field names."""
        timing = {"type": "fixed", "prefill_ms": 1.0, "decode_ms": 1.0} if self.fixed else {"type": "polynomial"}
        engine = {
            "backend": self.backend,
            "block_size": self.block_tokens,
            "num_gpu_blocks": self.blocks,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "timing_model": timing,
        }
        if self.rates:
            # To the other engine a drafter is its acceptance: what finds the drafts makes no difference.
            rates = ",".join(map(str, self.rates))
            engine |= {"aic_nextn": len(self.rates), "aic_nextn_accept_rates": rates}
        traffic: dict[str, Any] = {
            "kind": "synthetic",
            "input_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "request_count": self.count,
            "concurrency": self.concurrency,
        }
        if trace is not None:
            traffic = {"kind": "trace", "format": "mooncake", "block_size": TRACE_BLOCK_TOKENS, "path": str(trace)}
        if self.pools is not None:
            prefill, decode = self.pools
            transfer = {"kv_transfer_bandwidth": TRANSFER_GB, "kv_transfer_bytes_per_token": KV_BYTES}
            topology = {"mode": "disaggregated", "prefill_workers": prefill, "decode_workers": decode}
            roles = {
                f"{role}_config": {"engine": engine | transfer | {"worker_type": role}, "dp_size": self.ranks}
                for role in ("prefill", "decode")
            }
            return {
                "name": self.key,
                "topology": topology | {"router_mode": "round_robin"},
                **roles,
                "traffic": traffic,
            }
        return {
            "name": self.key,
            "topology": {"mode": "aggregated", "workers": self.replicas, "router_mode": "round_robin"},
            "config": {"engine": engine, "dp_size": self.ranks},
            "traffic": traffic,
        }

    def config(self, trace: Path | None) -> dict[str, Any]:
        """The same replay as one of our configurations."""
        timing = {"type": "fixed", "prefill_ms": 1.0, "decode_ms": 1.0} if self.fixed else {"type": "polynomial"}
        traffic: dict[str, Any] = {
            "source": {
                "type": "synthetic", "input_tokens": self.prompt_tokens, "output_tokens": self.output_tokens
            },
            "load": {"type": "concurrency", "concurrency": self.concurrency},
            "stop": {"requests": self.count},
        }  # fmt: skip
        if trace is not None:
            source = {"type": "trace", "format": "mooncake", "block_size": TRACE_BLOCK_TOKENS, "path": str(trace)}
            traffic = {"source": source, "load": {"type": "trace_timestamps"}}
        scheduler: dict[str, Any] = {"max_batched_tokens": 8192, "max_sequences": 256}
        if self.backend == "vllm":
            scheduler["async_scheduling"] = False
        worker = {
            "parallelism": {"replicas": self.replicas, "attention_data": self.ranks},
            "scheduler": scheduler,
            "kv_cache": {"block_size": self.block_tokens, "capacity": {"type": "fixed", "blocks": self.blocks}},
            "timing": timing,
        }
        engine: dict[str, Any] = {"backend": self.backend, "workers": {"aggregated": worker}}
        if self.rates:
            engine["speculation"] = {
                "kind": self.drafter,
                "num_speculative_tokens": len(self.rates),
                "acceptance_rates": list(self.rates),
            }
        if self.pools is not None:
            cache = worker["kv_cache"] | {"bytes_per_token": KV_BYTES}
            sides = [worker | {"kv_cache": cache, "parallelism": {"replicas": n}} for n in self.pools]
            engine |= {
                "mode": "disaggregated",
                "kv_transfer": {"bandwidth_gb_per_second": TRANSFER_GB, "timing_mode": "full_prompt"},
                "workers": dict(zip(("prefill", "decode"), sides, strict=True)),
            }
        return {
            "name": self.key,
            "profile": "parity" if self.backend == "vllm" else self.backend,
            "traffic": traffic,
            "engine": engine,
        }

    def _write_rows(self, path: Path) -> None:
        assert self.count is not None and self.rate is not None
        arrivals = poisson_arrivals(self.count, self.rate, SEED)
        with path.open("w") as out:
            for i, at in enumerate((arrivals - arrivals[0]).tolist()):
                row = {
                    # Whole microseconds: exact in both engines' clocks.
                    "timestamp": round(at / 1e6, 3),
                    "input_length": self.prompt_tokens,
                    "output_length": self.output_tokens,
                    "hash_ids": [i * -(-self.prompt_tokens // TRACE_BLOCK_TOKENS)],
                }
                out.write(json.dumps(row) + "\n")


def workloads(mooncake: Path | None, *, scale: float = 1.0) -> dict[str, Workload]:
    """All workloads by key.

    Args:
        mooncake: the public Mooncake conversation trace; without it there is no workload h.
        scale: share of the requests, for trying the benchmark itself.
    """

    def n(count: int) -> int:
        return max(1, round(count * scale))

    def overload(key: str, title: str, target: Target, blocks: int = BLOCKS) -> Workload:
        return Workload(key, title, target, blocks=blocks, rate=400.0, count=n(20_000), prompt_tokens=512)

    listed = [
        Workload("a", f"fixed 1 ms + 1 ms, {n(262_144):,} × (1,024 in, 128 out), concurrency 256",
                 Target(60, summary_only=6, with_tables=4, rss_mib=None),
                 fixed=True, count=n(262_144), concurrency=256),
        Workload("b", f"polynomial, {n(65_536):,} × (1,024, 128), concurrency 64",
                 Target(25, summary_only=1.5), count=n(65_536), concurrency=64),
        Workload("c", f"TensorRT-LLM, polynomial, {n(65_536):,} × (1,024, 128), concurrency 64",
                 Target(25, summary_only=1.5), backend="trtllm", blocks=32_768, count=n(65_536), concurrency=64),
        Workload("d", f"1 prefill and 2 decode workers, polynomial, {n(40_960):,} × (1,024, 128), concurrency 64",
                 Target(10), pools=(1, 2), count=n(40_960), concurrency=64),
        Workload("d64", f"64 + 64 workers, polynomial, {n(40_960):,} × (1,024, 128), concurrency 2,048",
                 Target(None, rss_mib=None), pools=(64, 64), count=n(40_960), concurrency=2048),
        Workload("e", f"2 workers × 8 attention-DP ranks, polynomial, {n(32_768):,} × (1,024, 128), concurrency 128",
                 Target(10), count=n(32_768), concurrency=128, replicas=2, ranks=8),
        Workload("f", f"MTP depth 2, 1.5 accepted, polynomial, {n(65_536):,} × (1,024, 128), concurrency 64",
                 Target(10), rates=(1.0, 0.5), count=n(65_536), concurrency=64),
        Workload("ngram", f"ngram depth 3 (0.8, 0.6, 0.4), polynomial, {n(131_072):,} × (1,024, 128), concurrency 64",
                 Target(None, rss_mib=None), drafter="ngram", rates=(0.8, 0.6, 0.4), count=n(131_072), concurrency=64),
        Workload("mtp8", f"f on 2 workers × 8 attention-DP ranks, {n(131_072):,} × (1,024, 128), concurrency 128",
                 Target(None, rss_mib=None), rates=(1.0, 0.5), count=n(131_072), concurrency=128, replicas=2, ranks=8),
        overload("g", f"open-loop overload, Poisson 400/s, polynomial, {n(20_000):,} × (512, 128)", Target(10)),
        overload("g1600", "g with 1,600 blocks: preemptions in most passes", Target(5), blocks=1_600),
    ]  # fmt: skip
    if mooncake is not None:
        listed.append(
            Workload(
                "h",
                "Mooncake conversation trace, whole, polynomial, prefix caching",
                Target(5, rss_mib=None),
                trace=mooncake.resolve(),
            )
        )
    return {workload.key: workload for workload in listed}
