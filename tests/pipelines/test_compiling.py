"""Compiling is announced, whichever kernels it is of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from click.testing import CliRunner

from pipelines import compiling
from pipelines.commands.warmup import warmup
from sim import jit

BOTH = ("--speculation", "--routing")


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("loop.run-183.py311.1.nbc", {"plain"}),
        ("loop._hand_out_bucket-63.py311.1.nbc", {"pools"}),
        ("loop._deliver_bursts-9.py311.1.nbc", {"drafting"}),
        ("loop._hand_out_items-80.py311.1.nbc", {"both"}),
        ("loop.run_pools-271.py311.1.nbc", set()),
        ("pool.take-98.py311.1.nbc", set()),
        ("routing._least_cost-98.py311.1.nbc", set()),
    ],
)
def test_kernels_of_one_kind_do_not_pass_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, kinds: set[str]
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / file).touch()
    found = {"plain": jit.is_cached(), "pools": jit.is_cached(pools=True), "drafting": jit.is_cached(drafting=True)}
    found["both"] = jit.is_cached(drafting=True, pools=True)
    assert {kind for kind, there in found.items() if there} == kinds


def test_separate_pools_are_announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    loaded: list[tuple[bool, ...]] = []
    monkeypatch.setattr(jit, "is_cached", lambda **_: False)
    monkeypatch.setattr(jit, "prune", lambda: None)
    monkeypatch.setattr(compiling, "_load", lambda *kind: loaded.append(kind))

    def config(mode: str, speculation: object = None, routing: object = None, local: int | None = None) -> Any:
        router, engine = SimpleNamespace(routing=routing), SimpleNamespace(mode=mode)
        return SimpleNamespace(speculation=speculation, engine=engine, router=router, local_prefill_tokens=local)

    modes = ("disaggregated", "aggregated")
    kinds = [(mode, drafter) for mode in modes for drafter in (None, "mtp")]
    compiling.compile_for([config(*kind, routing) for kind in kinds for routing in (None, "kv")])
    compiling.compile_for([config("disaggregated", local=64)])
    every = [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]
    assert sorted(loaded[:-1]) == every and loaded[-1] == (False, True, True)
    said = capsys.readouterr().err
    assert "Compiling the engine for separate pools (" in said and "for speculative decoding (once" in said
    assert "Compiling the engine for speculative decoding in separate pools" in said
    assert "the engine for KV-aware routing" in said and "for separate pools and KV-aware routing" in said


@pytest.mark.parametrize(("words", "n"), [((), 2), (("--speculation",), 4), (("--routing",), 4), (BOTH, 8)])
def test_warmup_compiles_the_kinds_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], n: int
) -> None:
    made: list[tuple[bool, bool, bool]] = []
    monkeypatch.setattr(
        compiling, "compile_kernels", lambda *, drafting, pools, routing: made.append((drafting, pools, routing))
    )
    assert CliRunner().invoke(warmup, words).exit_code == 0
    assert len(set(made)) == len(made) == n and {pools for _, pools, _ in made} == {False, True}
    assert any(drafting for drafting, _, _ in made) == ("--speculation" in words)
    assert any(routing for _, _, routing in made) == ("--routing" in words)


def test_nobody_is_promised_less_than_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jit, "is_cached", lambda **_: False)
    monkeypatch.setattr(jit, "prune", lambda: None)
    monkeypatch.setattr(compiling, "_load", lambda *_: None)
    compiling.compile_kernels(pools=True)
    assert "pools (once per version and kind of replay; a minute or a few) ..." in capsys.readouterr().err
