"""Reading vLLM case files, and rebuilding what they list per pass."""

import pytest

from assets.golden import rebuild
from assets.golden.run import run
from assets.golden.vllm_case import load
from sim.config import ConfigError
from sim.spec import EngineSpec, FixedTiming, FlatTiming


def case(*requests, **fields):
    return {"pass_ms": {"flat": 1.0}, "requests": list(requests), **fields}


def ask(name, prompt, output, at=0.0, **more):
    return {"id": name, "prompt_len": prompt, "output_len": output, "arrival_ms": at, **more}


def test_defaults_are_those_of_the_recorder():
    spec = load({"requests": [ask("A", 4, 1)]}).spec
    assert spec == EngineSpec(
        timing=FixedTiming(1.0, 1.0), block_tokens=16, blocks=1024, max_num_seqs=256, max_model_len=32768
    )


def test_fields_arrive():
    got = load(
        case(
            ask("A", 4, 1),
            async_scheduling=False,
            boundary_arrivals="after",
            watermark=0.1,
            reserve_full_isl=False,
            pass_ms={"flat": 2.5},
        )
    ).spec
    assert got.timing == FlatTiming(2.5)
    assert (got.async_scheduling, got.boundary_arrivals, got.watermark, got.reserve_full_isl) == (
        False,
        "after",
        0.1,
        False,
    )


def test_open_loads_are_sorted_by_arrival_and_keep_their_names():
    got = load(case(ask("late", 4, 1, at=2.5), ask("early", 5, 1)))
    assert got.names == ("early", "late")
    assert got.workload.arrival_ns.tolist() == [0, 2_500_000]


def test_a_closed_loop_keeps_the_order_of_the_file():
    got = load(case(ask("B", 4, 1, at=9), ask("A", 5, 1), concurrency=1))
    assert (got.names, got.workload.concurrency) == (("B", "A"), 1)


def test_only_tokens_somebody_else_may_have_get_identities():
    shared = ask("A", 8, 1, prefix_group=1, prefix_len=3)
    got = load(case(shared, ask("B", 8, 1))).workload
    assert got.hash_block_tokens == 1
    assert got.hash_offsets is not None and got.hashed_tokens is not None
    assert got.hash_offsets.tolist() == [0, 3, 3]
    assert got.hashed_tokens.tolist() == [3, 0]


def test_scripted_answers_are_described_behind_the_prompt():
    scripted = {"id": "A", "prompt_token_ids": [0, 1, 2], "output_len": 2, "output_token_ids": [3, 30, 31]}
    got = load(case(scripted)).workload
    assert got.hash_ids is not None and got.hashed_tokens is not None
    assert got.hash_ids.tolist() == [0, 1, 2, 3, 30]
    assert got.hashed_tokens.tolist() == [5]
    assert got.prompt_tokens.tolist() == [3]


def test_block_ids_spell_tokens():
    got = load(case(ask("A", 6, 1, hash_ids=[7, 9]), block_size=4)).workload
    assert got.hash_ids is not None
    assert got.hash_ids.tolist() == [28, 29, 30, 31, 36, 37]


def test_the_recorded_rank_of_a_group_is_rank_zero():
    got = load(case(ask("A", 4, 1), ask("B", 4, 1), dp_size=2))
    assert got.workload.pinned_rank is not None
    assert (got.spec.dp, got.workload.pinned_rank.tolist()) == (2, [0, 0])


@pytest.mark.parametrize("fields", [{"block_sizes": 4}, {"requests": [ask("A", 9, 1, hash_ids=[1])], "block_size": 4}])
def test_bad_fields_are_configuration_errors(fields):
    with pytest.raises(ConfigError):
        load({**case(ask("A", 4, 1)), **fields})


def test_rebuild_lists_plain_decodes_that_no_chunk_mentions():
    """
    Budget 6, A 8/3 and B 2/2:

    pass 0   A 6 of its prompt
    pass 1   A the last 2, B 2          both get their first token
    pass 2   A 1, B 1                   plain decodes, known from spans only
    pass 3   A 1
    """
    got = load(
        case(
            ask("A", 8, 3),
            ask("B", 2, 2),
            block_size=4,
            max_num_batched_tokens=6,
            max_num_seqs=4,
            async_scheduling=False,
        )
    )
    tables = run(got.spec, got.workload, "reference").tables
    listed = [
        [(s.request, s.tokens, s.computed_before, s.kind, s.cached) for s in p.requests] for p in rebuild.passes(tables)
    ]
    assert listed == [
        [(0, 6, 0, "new", 0)],
        [(0, 2, 6, "running", -1), (1, 2, 0, "new", 0)],
        [(0, 1, 8, "running", -1), (1, 1, 2, "running", -1)],
        [(0, 1, 9, "running", -1)],
    ]
    assert rebuild.token_times(tables) == [[2_000_000, 3_000_000, 4_000_000], [2_000_000, 3_000_000]]


def test_rebuild_puts_a_resumed_request_behind_those_that_stayed():
    """As rule 4-A with a third request: B is preempted, C runs on, B comes back behind it."""
    got = load(
        case(
            ask("A", 8, 8),
            ask("B", 8, 8),
            block_size=4,
            num_gpu_blocks=6,
            max_num_seqs=3,
            enable_prefix_caching=False,
            async_scheduling=False,
        )
    )
    listed = rebuild.passes(run(got.spec, got.workload, "reference").tables)
    assert listed[5].preempted == [1]
    assert [(s.request, s.kind, s.tokens) for s in listed[8].requests] == [(1, "resumed", 13)]
