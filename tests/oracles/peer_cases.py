"""Random worlds for the reference simulator, in its case format. Standard library only: its own venv runs this."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Case = dict[str, Any]


def random_case(family: str, seed: int) -> Case:
    """One case, of one aggregated vLLM pool where the family does not say otherwise; everything else is drawn."""
    r = random.Random(f"{family}-{seed}")
    block = r.choice([2, 3, 4, 8, 16])
    case: Case = {
        "name": f"{family}_{seed}",
        "purpose": family,
        "topology": {"mode": "aggregated", "workers": 1, "router_mode": "round_robin"},
        "config": {"engine": _engine(r, block), "dp_size": 1},
        "options": {},
        "traffic": _rows(r, block, share=r.choice([0.0, 0.5, 0.9])),
    }
    FAMILIES[family](r, case, block)
    if case["traffic"]["kind"] == "synthetic":
        case["options"].pop("max_sim_time_ms", None)  # the simulator takes it with traces only
    if "speedup_ratio" in case.get("config", {}).get("engine", {}):
        _avoid_ties(case)
    return case


def _avoid_ties(case: Case) -> None:
    """Keep off ties that an accident of rounding decides.

    The simulator adds milliseconds as doubles. Whether 0.4 ms, added 120 times, ends before, at or after an arrival at
    48 ms, or a pass of another worker in a closed loop, is then a matter of rounding. We add whole nanoseconds.
    """
    for i, row in enumerate(case["traffic"].get("rows", [])):
        row["timestamp"] += 0.000731 * (i % 7 + 1)
    if case["topology"]["workers"] > 1 and case["traffic"].get("concurrency"):
        case["config"]["engine"] |= {"speedup_ratio": 0.5, "decode_speedup_ratio": 4.0}


def _engine(r: random.Random, block: int) -> Case:
    return {
        "backend": "vllm",
        "num_gpu_blocks": 4096,
        "block_size": block,
        "max_num_seqs": r.choice([2, 5, 64]),
        "max_num_batched_tokens": r.choice([16, 50, 128, 1024]),
        "timing_model": _fixed(r),
        "enable_prefix_caching": r.random() < 0.8,
    }


def _fixed(r: random.Random) -> Case:
    return {
        "type": "fixed",
        "prefill_ms": r.choice([1.0, 7.0, 12.5, 33.25]),
        "decode_ms": r.choice([0.5, 1.0, 3.0, 4.5]),
    }


def _rows(
    r: random.Random, block: int, *, share: float, tokens: int = 60, output: int = 14, least: int = 1, count: int = 0
) -> Case:
    known: list[list[int]] = []
    fresh, rows, at = 1, [], 0
    for _ in range(count or r.randint(4, 30)):
        at += r.choice([0, 0, r.randint(0, 5), r.randint(0, 40)])
        length = r.randint(1, tokens)
        ids: list[int] = []
        if known and r.random() < share:
            parent = r.choice(known)
            ids = parent[: r.randint(1, len(parent))][: -(-length // block)]
        more = -(-length // block) - len(ids)
        ids = ids + list(range(fresh, fresh + more))
        fresh += more
        known.append(ids)
        rows.append(
            {"timestamp": at, "input_length": length, "output_length": r.randint(least, output), "hash_ids": ids}
        )
    return {"kind": "trace", "format": "mooncake", "block_size": block, "rows": rows}


# ------------------------------------------------------------------ families: each changes a case in place


def _plain(r: random.Random, case: Case, block: int) -> None:
    """Open loop, no pressure."""


def _closed(r: random.Random, case: Case, block: int) -> None:
    case["traffic"]["concurrency"] = r.randint(1, 8)


def _pressure(r: random.Random, case: Case, block: int) -> None:
    engine = case["config"]["engine"]
    case["traffic"] = _rows(r, block, share=r.choice([0.0, 0.4, 0.8]), tokens=24, output=24)
    engine["num_gpu_blocks"] = -(-48 // block) + r.randint(0, 20 // block + 2)
    engine["preemption_mode"] = r.choice(["lifo", "fifo"])
    if r.random() < 0.3:
        case["traffic"]["concurrency"] = r.randint(2, 8)


def _unchunked(r: random.Random, case: Case, block: int) -> None:
    case["config"]["engine"] |= {"enable_chunked_prefill": False, "max_num_batched_tokens": r.choice([50, 64, 96])}


def _limit(r: random.Random, case: Case, block: int) -> None:
    case["traffic"] = _rows(r, block, share=0.3, tokens=44, output=30, least=0)
    case["config"]["engine"]["max_model_len"] = r.randint(20, 50)


def _small_pool(r: random.Random, case: Case, block: int) -> None:
    """Some prompts never fit; some requests outgrow the pool, and then the run has to be refused."""
    case["traffic"] = _rows(r, block, share=0.5, tokens=50, output=6)
    case["config"]["engine"]["num_gpu_blocks"] = max(2, r.randint(30, 60) // block)


def _polynomial(r: random.Random, case: Case, block: int) -> None:
    case["traffic"] = _rows(r, block, share=0.4, tokens=400, output=20)
    case["config"]["engine"] |= {
        "timing_model": {"type": "polynomial"},
        "max_num_batched_tokens": r.choice([128, 512, 2048]),
        "num_gpu_blocks": r.choice([430, 2000]) // block + 10,
    }


def _table(r: random.Random, case: Case, block: int) -> None:
    def knots(top: float, n: int) -> list[float]:
        return [0.0] + sorted(round(r.uniform(1, top), 3) for _ in range(n - 1))

    case["config"]["engine"]["timing_model"] = {
        "type": "table",
        "arrays": {
            "prefill_isl": [0.0, 40.0, 90.0, 200.0],
            "prefill_ttft_ms": knots(60, 4),
            "decode_active_kv_tokens": [0.0, 100.0, 400.0],
            "decode_context_length": [1.0, 30.0, 80.0],
            "decode_itl": [
                [round(1 + i * r.uniform(1, 2) + j * r.uniform(0.2, 0.9), 3) for j in range(3)] for i in range(3)
            ],
        },
    }


def _ranks(r: random.Random, case: Case, block: int) -> None:
    case["topology"]["workers"] = r.randint(1, 3)
    case["config"]["dp_size"] = r.randint(1, 4)
    if r.random() < 0.4:
        case["config"]["engine"]["num_gpu_blocks"] = 80 // block + r.randint(2, 20)
    if r.random() < 0.4:
        case["traffic"]["concurrency"] = r.randint(2, 12)


def _interval(r: random.Random, case: Case, block: int) -> None:
    case["config"]["dp_size"] = r.randint(2, 3)
    case["config"]["engine"]["prefill_schedule_interval"] = r.randint(2, 6)


def _interval_pressure(r: random.Random, case: Case, block: int) -> None:
    """Throttled waves while requests lose their blocks and compute their prompts again."""
    _interval(r, case, block)
    _pressure(r, case, block)
    case["config"]["engine"]["max_num_batched_tokens"] = r.choice([9, 12, 16, 24])


def _speedups(r: random.Random, case: Case, block: int) -> None:
    case["config"]["engine"] |= {
        "speedup_ratio": r.choice([0.0, 0.5, 1.6, 1.7, 3.0]),
        "decode_speedup_ratio": r.choice([0.0, 0.8, 2.5, 4.0]),
    }
    case["traffic"]["arrival_speedup_ratio"] = r.choice([1.0, 2.0, 4.0])


def _sessions(r: random.Random, case: Case, block: int) -> None:
    fresh, rows = 1, []
    for s in range(r.randint(2, 6)):
        ids: list[int] = []
        for turn in range(r.randint(1, 4)):
            more = r.randint(1, 4)
            ids = ids + list(range(fresh, fresh + more))
            fresh += more
            length = len(ids) * block - r.randint(0, block - 1)
            row = {"timestamp": s * 13, "input_length": length, "output_length": r.randint(1, 7), "hash_ids": ids}
            rows.append({**row, "session_id": f"s{s}", **({"delay": r.choice([0, 3, 31])} if turn else {})})
    case["traffic"]["rows"] = rows
    if r.random() < 0.6:
        case["traffic"]["concurrency"] = r.randint(1, 3)


def _stop(r: random.Random, case: Case, block: int) -> None:
    case["options"]["max_sim_time_ms"] = r.choice([20, 55, 90, 150])


def _goodput(r: random.Random, case: Case, block: int) -> None:
    case["options"] |= r.choice(
        [{"sla_ttft_ms": 40}, {"sla_itl_ms": 5}, {"sla_ttft_ms": 60, "sla_itl_ms": 8}, {"sla_e2e_ms": 90}]
    )


def _other_block(r: random.Random, case: Case, block: int) -> None:
    case["config"]["engine"]["block_size"] = r.choice([b for b in (2, 3, 4, 6, 8, 12) if b != block])


def _synthetic(r: random.Random, case: Case, block: int) -> None:
    load = r.choice([{"concurrency": r.randint(1, 9)}, {"arrival_interval_ms": r.choice([3.5, 11.0])}])
    traffic = {"kind": "synthetic", "input_tokens": r.randint(1, 90), "output_tokens": r.randint(1, 14)}
    traffic |= {"request_count": r.randint(3, 40), **load}
    if r.random() < 0.5:
        traffic |= {"shared_prefix_ratio": r.choice([0.25, 0.45, 0.5, 0.8, 1.0]), "num_prefix_groups": 1}
    if r.random() < 0.4:
        traffic |= {"turns_per_session": r.randint(2, 4), "inter_turn_delay_ms": r.choice([0.0, 4.5, 50.0])}
    case["traffic"] = traffic


def _crowd(r: random.Random, case: Case, block: int) -> None:
    """Hundreds of requests on a few ranks, most of the time more than fit."""
    share = r.choice([0.0, 0.4, 0.8])
    case["traffic"] = _rows(r, block, share=share, tokens=60, output=24, count=r.randint(100, 400))
    engine = case["config"]["engine"]
    engine |= {"num_gpu_blocks": (90 + r.randint(0, 600)) // block, "preemption_mode": r.choice(["lifo", "fifo"])}
    engine["timing_model"] = r.choice([engine["timing_model"], {"type": "polynomial"}])
    case["topology"]["workers"], case["config"]["dp_size"] = r.randint(1, 2), r.randint(1, 3)
    if r.random() < 0.4:
        case["traffic"]["concurrency"] = r.randint(8, 60)


def _anything(r: random.Random, case: Case, block: int) -> None:
    """Several families on top of each other; a later one may undo what an earlier one did."""
    for name in r.sample(OTHERS, r.randint(2, 5)):
        FAMILIES[name](r, case, block)


def _drafts(r: random.Random, case: Case, block: int) -> None:
    """MTP with certain answers only, under some of the others: every draft is accepted up to one, and none behind."""
    for name in r.sample([name for name in OTHERS if name != "speedups"], r.randint(0, 3)):
        FAMILIES[name](r, case, block)
    _certain(r, case)


def _drafts_pressure(r: random.Random, case: Case, block: int) -> None:
    """Bursts that do not fit beside each other."""
    r.choice([_pressure, _pressure, _crowd, _interval_pressure])(r, case, block)
    _certain(r, case)


def _drafts_trtllm(r: random.Random, case: Case, block: int) -> None:
    others = [name for name in OTHERS if name not in ("speedups", "interval", "interval_pressure")]
    for name in r.sample(others, r.randint(0, 2)):
        FAMILIES[name](r, case, block)
    case["config"]["engine"] |= {"backend": "trtllm"}
    case["config"]["engine"].pop("preemption_mode", None)
    _certain(r, case)


def _certain(r: random.Random, case: Case) -> None:
    """Acceptance rates of 0 and 1, and a pool that holds every request alone: a burst that an empty pool has no room
    for keeps the simulator preempting and recomputing for ever."""
    engine, traffic = case["config"]["engine"], case["traffic"]
    engine["aic_nextn"] = drafts = r.randint(1, 5)
    sure = r.randint(0, drafts)
    engine["aic_nextn_accept_rates"] = ",".join(["1"] * sure + ["0"] * (drafts - sure))
    rows = traffic.get("rows") or [{"input_length": traffic["input_tokens"], "output_length": traffic["output_tokens"]}]
    longest = max(row["input_length"] + row["output_length"] for row in rows)
    engine["num_gpu_blocks"] = max(engine["num_gpu_blocks"], -(-longest // engine["block_size"]))


def _separate(r: random.Random, case: Case, block: int) -> None:
    """Prefill and decode in pools of their own, some of them tight. Every duration is one that doubles hold exactly."""
    workers, common = case.pop("config"), {"block_size": block}
    case["topology"] = {"mode": "disaggregated", "router_mode": "round_robin"}
    case["topology"] |= {"prefill_workers": r.choice([1, 1, 2]), "decode_workers": r.choice([1, 1, 2, 3])}
    common |= {name: workers["engine"][name] for name in ("backend", "enable_prefix_caching", "max_num_batched_tokens")}
    if r.random() < 0.7:
        common |= {"kv_transfer_bandwidth": 1.0, "kv_transfer_bytes_per_token": r.choice([125_000, 500_000])}
        common |= {"kv_transfer_timing_mode": r.choice(["full_prompt", "destination_missing"])}
    rows = case["traffic"] = _rows(r, block, share=r.choice([0.0, 0.5, 0.9]), tokens=40, output=r.choice([12, 24]))
    longest = max(row["input_length"] + row["output_length"] for row in rows["rows"])
    for role in ("prefill", "decode"):
        engine = {**common, "worker_type": role, "max_num_seqs": r.choice([2, 5, 64])}
        engine["timing_model"] = {
            "type": "fixed",
            "prefill_ms": r.choice([7.0, 12.5, 33.25]),
            "decode_ms": r.choice([0.5, 1.0, 3.0, 4.5]),
        }
        engine["num_gpu_blocks"] = r.choice([4096, -(-longest // block) + r.randint(1, 40 // block + 2)])
        case[f"{role}_config"] = {"engine": engine, "dp_size": r.choice([1, 1, 1, 2])}
    if r.random() < 0.3:
        rows["concurrency"] = r.randint(2, 8)


def _separate_drafts(r: random.Random, case: Case, block: int) -> None:
    """The same with MTP and certain answers."""
    _separate(r, case, block)
    drafts = r.randint(1, 5)
    sure = r.randint(0, drafts)
    for role in ("prefill", "decode"):
        engine = case[f"{role}_config"]["engine"]
        engine |= {"aic_nextn": drafts, "aic_nextn_accept_rates": ",".join(["1"] * sure + ["0"] * (drafts - sure))}


def _separate_drafts_trtllm(r: random.Random, case: Case, block: int) -> None:
    _separate_drafts(r, case, block)
    for role in ("prefill", "decode"):
        case[f"{role}_config"]["engine"]["backend"] = "trtllm"


def _trtllm(r: random.Random, case: Case, block: int) -> None:
    """TensorRT-LLM under any of the others, vLLM's own fields left out."""
    others = [name for name in OTHERS if name not in ("interval", "interval_pressure")]
    for name in r.sample(others, r.randint(1, 3)):
        FAMILIES[name](r, case, block)
    engine = case["config"]["engine"]
    engine["backend"] = "trtllm"
    engine.pop("preemption_mode", None)
    engine["enable_prefix_caching"] = r.random() < 0.8


def _plays(r: random.Random, case: Case, block: int) -> None:
    """Requests that wait for one another; all at their times, or so many plays at once."""
    rows: list[Case] = []
    # Of plays that tie, the simulator takes the first in the file, we the first to start: here that is the same.
    for play, start in enumerate(sorted(r.choice([0, 0, 40, 333]) for _ in range(r.randint(1, 4)))):
        names = list[str]()
        for i in range(r.randint(1, 9)):
            waits = []
            for other in r.sample(names, min(len(names), r.choice([0, 1, 1, 1, 2, 3]))):
                trigger = r.choice(["completion", "completion", "dispatch"])
                relation = r.choice(["sequence", "join"]) if trigger == "completion" else "spawn"
                delay = r.choice([0, 0, 3, 8, 60.25])
                waits.append({"request_id": other, "trigger": trigger, "delay_ms": delay, "relation": relation})
            length = r.randint(1, 40)
            first = r.choice([1, 1, 100 * (play + 1), 1000 * (play + 1) + 10 * i])
            rows.append(
                {
                    "request_id": f"{play}-{i}",
                    "play_id": f"play-{play}",
                    "session_id": f"lane-{i % 3}",
                    "model": "m",
                    "input_length": length,
                    "output_length": r.randint(1, 8),
                    "hash_ids": [first + j for j in range(-(-length // block))],
                    # Times count from the earliest of them, whether that is a root's or not.
                    "not_before_ms": start + (r.choice([0, 0, 0, 30, 200]) if i else 0),
                    "dependencies": waits,
                }
            )
            names.append(f"{play}-{i}")
    head = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": block, "hash_id_scope": "local"}
    head["source"] = {"format": "authored", "digest": "drawn"}
    case["traffic"] = {"kind": "trace", "format": "agentic_mooncake", "block_size": block, "execution_model": "target"}
    case["traffic"]["rows"] = [head, *rows]
    if r.random() < 0.5:
        case["traffic"]["agentic_lanes"] = r.randint(1, 3)
    elif r.random() < 0.3:
        case["traffic"]["arrival_speedup_ratio"] = r.choice([2.0, 0.5])


def _agents(r: random.Random, case: Case, block: int) -> None:
    """Agent sessions whose calls follow one another, and the subagents they launch."""
    fresh = 1

    def calls(count: int, at: int, pauses: list[int]) -> tuple[list[Case], int]:
        nonlocal fresh
        made, ids, end = list[Case](), list[int](), at
        for i in range(count):
            start = at if i == 0 else end + r.choice(pauses)
            more = r.randint(1, 4)
            ids = ids[: r.choice([len(ids), len(ids), len(ids), len(ids) // 2])] + list(range(fresh, fresh + more))
            fresh, took = fresh + more, r.choice([20, 50, 400])
            row = {"t": start / 1e3, "type": "n", "model": "m", "in": len(ids) * block + r.randint(0, block - 1)}
            row |= {
                "out": r.randint(1, 8),
                "hash_ids": ids,
                "input_types": ["text"],
                "output_types": ["text"],
                "stop": "",
            }
            made.append(row | ({"api_time": took / 1e3} if r.random() < 0.9 else {}))
            end = start + (took if "api_time" in made[-1] else 1)
        return made, end

    own, _ = calls(r.randint(2, 9), 0, [0, 10, 300])
    entries = list[Case]()
    for i, call in enumerate(own):
        entries.append(call)
        # Launched a millisecond after a call: at its very end, rounding decides what it waits for.
        began = round(call["t"] * 1e3) + round(call.get("api_time", 0) * 1e3) + 1
        if i + 1 < len(own) and began < round(own[i + 1]["t"] * 1e3) and r.random() < 0.6:
            inner, end = calls(r.randint(1, 3), 0, [0, 13, 307])
            sub = {"t": began / 1e3, "type": "subagent", "agent_id": f"a{i}", "subagent_type": "x", "requests": inner}
            status = r.choice(["completed", "async_launched"])
            entries.append(sub | {"status": status, "duration_ms": max(end, 1)})
    # One document: which of several goes first at one instant follows from digests of the simulator's own.
    documents = [
        {
            "id": "doc",
            "models": ["m"],
            "block_size": block,
            "hash_id_scope": "local",
            "tool_tokens": 0,
            "system_tokens": 0,
            "requests": entries,
        }
    ]
    case["traffic"] = {"kind": "trace", "format": "weka", "execution_model": "target", "rows": documents}
    if r.random() < 0.3:
        case["traffic"]["arrival_speedup_ratio"] = r.choice([2.0, 0.5])


def _recorded(r: random.Random, case: Case, block: int) -> None:
    """Recorded requests of a session, and of others that it began."""
    rows, fresh = list[Case](), 1

    def record(session: str, parent: str | None, start: int) -> int:
        nonlocal fresh
        took, length = r.choice([20, 90, 400]), r.randint(1, 40)
        count = -(-length // block)
        context = {"session_id": session, **({"parent_session_id": parent} if parent else {})}
        replay = {"trace_block_size": block, "input_length": length}
        request = {"request_id": f"r{len(rows):03}", "output_tokens": r.randint(1, 8), "request_received_ms": start}
        request |= {
            "total_time_ms": took,
            "replay": replay | {"input_sequence_hashes": list(range(fresh, fresh + count))},
        }
        fresh += r.choice([0, count])
        row = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": start + took}
        rows.append(row | {"request": request, "agent_context": context})
        return start + took

    # One play: which of several goes first at one instant follows from names of the simulator's own.
    at = record("main", None, 1_000)
    for i in range(r.randint(1, 9)):
        if r.random() < 0.3:
            inner, child = at - r.choice([0, 13]) + 5 + i, f"child-{i}"
            for j in range(r.randint(1, 3)):
                inner = record(child, "main", inner + (r.choice([1, 17, 211]) if j else 0))
        at = record("main", None, at + r.choice([1, 11, 303]))
    case["traffic"] = {"kind": "trace", "format": "dynamo", "execution_model": "target", "rows": rows}
    if r.random() < 0.3:
        case["traffic"]["arrival_speedup_ratio"] = r.choice([2.0, 0.5])


FAMILIES: dict[str, Callable[[random.Random, Case, int], None]] = {
    "plain": _plain,
    "closed": _closed,
    "pressure": _pressure,
    "unchunked": _unchunked,
    "limit": _limit,
    "small_pool": _small_pool,
    "polynomial": _polynomial,
    "table": _table,
    "ranks": _ranks,
    "interval": _interval,
    "interval_pressure": _interval_pressure,
    "speedups": _speedups,
    "sessions": _sessions,
    "stop": _stop,
    "goodput": _goodput,
    "other_block": _other_block,
    "synthetic": _synthetic,
    "crowd": _crowd,
    "anything": _anything,
    "trtllm": _trtllm,
    "drafts": _drafts,
    "drafts_pressure": _drafts_pressure,
    "drafts_trtllm": _drafts_trtllm,
    "separate": _separate,
    "separate_drafts": _separate_drafts,
    "separate_drafts_trtllm": _separate_drafts_trtllm,
    "plays": _plays,
    "agents": _agents,
    "recorded": _recorded,
}
# Those that go on top of each other.
ALONE = (
    *("plain", "anything", "trtllm", "drafts", "drafts_pressure", "drafts_trtllm", "plays", "agents", "recorded"),
    *("separate", "separate_drafts", "separate_drafts_trtllm"),
)
OTHERS = [n for n in FAMILIES if n not in ALONE]
