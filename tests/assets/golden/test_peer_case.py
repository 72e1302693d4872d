"""Reading the reference simulator's case files."""

import numpy as np
import pytest

from assets.golden.peer_case import load
from assets.golden.unsupported import Unsupported
from sim.config import ConfigError
from sim.spec import EngineSpec, FixedTiming, PolynomialTiming, Speculation

MS = 1_000_000  # ns


def read(tmp_path, traffic=None, engine=None, *, options=None, topology=None, **worker):
    rows = [row(0)]
    return load(
        {
            "topology": {"mode": "aggregated", "workers": 1, **(topology or {})},
            "config": {"engine": {"backend": "vllm", "block_size": 4, **(engine or {})}, **worker},
            "traffic": traffic or trace(rows),
            "options": options or {},
        },
        tmp_path,
    )


def row(at, tokens=8, ids=(1, 2), **more):
    return {"timestamp": at, "input_length": tokens, "output_length": 2, "hash_ids": list(ids), **more}


def trace(rows, **more):
    return {"kind": "trace", "format": "mooncake", "block_size": 4, "rows": rows, **more}


def synthetic(**more):
    return {"kind": "synthetic", "input_tokens": 43, "output_tokens": 6, "request_count": 3, **more}


def test_defaults_are_those_of_the_recorded_engine(tmp_path):
    got = load({"config": {"engine": {}}, "traffic": trace([row(0)])}, tmp_path).spec
    assert got == EngineSpec(profile="parity", async_scheduling=False, timing=PolynomialTiming())


def test_every_engine_field_arrives(tmp_path):
    engine = {
        "num_gpu_blocks": 9,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 17,
        "max_model_len": 30,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "preemption_mode": "fifo",
        "prefill_schedule_interval": 4,
        "speedup_ratio": 2.0,
        "decode_speedup_ratio": 0.5,
        "timing_model": {"type": "fixed", "prefill_ms": 7.0, "decode_ms": 1.0},
    }
    got = read(tmp_path, engine=engine, dp_size=2, topology={"workers": 3}, options={"max_sim_time_ms": 90}).spec
    assert got == EngineSpec(
        profile="parity",
        timing=FixedTiming(7.0, 1.0),
        workers=3,
        dp=2,
        block_tokens=4,
        blocks=9,
        max_num_seqs=3,
        max_batched_tokens=17,
        max_model_len=30,
        prefix_caching=False,
        chunked_prefill=False,
        async_scheduling=False,
        preemption="fifo",
        prefill_schedule_interval=4,
        speedup_ratio=2.0,
        decode_speedup_ratio=0.5,
        stop_ns=90 * MS,
    )


def test_rows_are_sorted_by_time_and_the_first_arrives_at_zero(tmp_path):
    got = read(tmp_path, trace([row(9, 5), row(5, 6), row(9, 7)], arrival_speedup_ratio=2.0)).workload
    assert got.arrival_ns.tolist() == [0, 2 * MS, 2 * MS]
    assert got.prompt_tokens.tolist() == [6, 5, 7]


def test_a_closed_loop_keeps_the_order_of_the_file(tmp_path):
    got = read(tmp_path, trace([row(9, 5), row(5, 6)], concurrency=1)).workload
    assert got.concurrency == 1
    assert got.prompt_tokens.tolist() == [5, 6]


def test_a_trace_without_a_block_size_has_blocks_of_512(tmp_path):
    traffic = trace([row(0, 600, [1, 2])])
    del traffic["block_size"]
    assert read(tmp_path, traffic).workload.hash_block_tokens == 512


def test_a_trace_may_live_in_a_file_beside_the_case(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"timestamp": 3, "input_length": 5, "output_length": 1, "hash_ids": [4, 5]}\n\n'
    )
    traffic = {"kind": "trace", "block_size": 4, "path": "rows.jsonl"}
    assert read(tmp_path, traffic).workload.hash_ids.tolist() == [4, 5]


def test_a_turn_waits_its_delay_or_else_the_difference_of_the_timestamps(tmp_path):
    rows = [
        row(9, session_id="a"),
        row(20, session_id="b"),
        row(200, session_id="a"),
        row(0, session_id="b", delay=5),
    ]
    got = read(tmp_path, trace(rows, arrival_speedup_ratio=2.0)).workload
    assert got.session is not None and got.delay_ns is not None
    assert got.session.tolist() == [0, 0, 1, 1]
    assert got.delay_ns.tolist() == [0, 95.5 * MS, 0, 2.5 * MS]
    assert (np.diff(got.arrival_ns) >= 0).all()


def test_a_closed_loop_does_not_speed_up_think_times(tmp_path):
    rows = [row(9, session_id="a"), row(9, session_id="a", delay=5)]
    got = read(tmp_path, trace(rows, arrival_speedup_ratio=2.0, concurrency=1)).workload
    assert got.delay_ns is not None
    assert got.delay_ns.tolist() == [0, 5 * MS]


def test_synthetic_shared_blocks_round_half_up(tmp_path):
    """43 tokens are 11 blocks of 4; half of them are 5.5, so 6."""
    traffic = synthetic(shared_prefix_ratio=0.5, num_prefix_groups=1, concurrency=2)
    got = read(tmp_path, traffic).workload
    assert got.hash_offsets is not None and got.hash_ids is not None
    assert got.hash_offsets.tolist() == [0, 6, 12, 18]
    assert got.hash_ids.tolist() == [0, 1, 2, 3, 4, 5] * 3


def test_synthetic_turns_are_sessions_whose_text_never_repeats(tmp_path):
    got = read(tmp_path, synthetic(turns_per_session=2, inter_turn_delay_ms=4.5, concurrency=1)).workload
    assert got.session is not None and got.delay_ns is not None
    assert got.session.tolist() == [0, 0, 1, 1, 2, 2]
    assert got.delay_ns.tolist() == [0, 4.5 * MS] * 3
    assert got.hash_ids is None


def test_synthetic_interval(tmp_path):
    got = read(tmp_path, synthetic(arrival_interval_ms=7.25, arrival_speedup_ratio=2.0)).workload
    assert got.arrival_ns.tolist() == [0, 3.625 * MS, 7.25 * MS]


def test_gpus_of_a_worker(tmp_path):
    assert read(tmp_path, dp_size=4, tensor_parallel_size=2).options.gpus_per_worker == 8


def test_drafts_and_their_rates(tmp_path):
    """Missing rates count 0, extra ones are left out; without any the recorded engine has its own."""
    assert read(tmp_path).spec.speculation is None
    for fields, rates in [
        ({"aic_nextn": 3, "aic_nextn_accept_rates": "1,0.5"}, (1.0, 0.5, 0.0)),
        ({"aic_nextn": 1, "aic_nextn_accept_rates": "0.25,1,1"}, (0.25,)),
        ({"aic_nextn": 2}, (0.85, 0.3)),
    ]:
        assert read(tmp_path, engine=fields).spec.speculation == Speculation("mtp", len(rates), rates)
    assert read(tmp_path, engine={"aic_nextn": 1, "aic_mtp_seed": 7}).spec.speculation.seed == 7


@pytest.mark.parametrize(
    "fields",
    [
        {"aic_nextn": 0},
        {"aic_nextn": 6},
        {"aic_nextn": True},
        {"aic_nextn_accept_rates": "1"},
        {"aic_nextn": 1, "aic_nextn_accept_rates": "1.5"},
        {"aic_nextn": 1, "aic_nextn_accept_rates": "nan"},
        {"aic_nextn": 1, "aic_nextn_accept_rates": "all"},
        {"aic_nextn": 1, "decode_speedup_ratio": 2.0},
    ],
)
def test_drafts_that_are_refused(tmp_path, fields):
    with pytest.raises(ConfigError, match="engine"):
        read(tmp_path, engine=fields)


@pytest.mark.parametrize(
    ("change", "area"),
    [
        ({"engine": {"backend": "sglang"}}, "sglang backend"),
        ({"engine": {"native_host_offload": {"num_host_blocks": 4}}}, "host offload"),
        ({"engine": {"state_cache": {"bytes_per_request": 4}}}, "state cache"),
        ({"engine": {"kv_cache_groups": []}}, "cache groups"),
        ({"engine": {"timing_model": {"type": "external"}}}, "timing models"),
        ({"topology": {"router_mode": "kv_router"}}, "routers"),
        ({"startup_time": 5}, "worker fields"),
        ({"traffic": synthetic(request_rate=5.0)}, "private generators"),
        ({"traffic": synthetic(concurrency=1, shared_prefix_ratio=0.5, num_prefix_groups=2)}, "private generators"),
        ({"traffic": trace([row(0, dp_rank=1)])}, "trace fields"),
    ],
)
def test_what_is_missing_is_named_by_area(tmp_path, change, area):
    with pytest.raises(Unsupported) as missing:
        read(tmp_path, **change)
    assert missing.value.area == area


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"engine": {"block_sizes": 4}}, "engine.block_sizes=4: unknown field"),
        ({"engine": {"block_size": 1}}, "engine.block_size=1: must be a whole number of at least 2"),
        ({"engine": {"max_num_seqs": True}}, "max_num_seqs=True"),
        ({"engine": {"speedup_ratio": float("nan")}}, "speedup_ratio=nan"),
        ({"engine": {"prefill_decode_interval": 2}}, "SGLang only"),
        ({"traffic": trace([row(0, 9)])}, "2 blocks of 4 hold fewer tokens"),
        ({"traffic": trace([row(0, session_id="a", delay=3)])}, "first turn"),
        ({"traffic": trace([])}, "no request"),
        ({"traffic": synthetic()}, "exactly one"),
        ({"options": {"sla_e2e_ms": 5, "sla_itl_ms": 5}}, "e2e_ms excludes"),
    ],
)
def test_what_the_reference_refuses_is_a_configuration_error(tmp_path, change, says):
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, **change)
