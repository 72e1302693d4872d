"""timing.type: pass_cost takes its constants from a snapshot, or says why it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.config import ConfigError, load_run_config
from sim.spec import PassCostTiming

NAMES = (
    "base_ms", "weights_ms", "token_us", "attention_pair_ns", "decode_request_us", "kv_token_ns", "prefill_pass_ms",
)  # fmt: skip


def loaded(timing: dict[str, object], base: Path) -> object:
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "pass_cost", **timing}}}}}
    return load_run_config(values, base=base)


def test_constants_come_from_the_file_and_the_numbers_identify_them(tmp_path: Path) -> None:
    constants = {name: float(i + 1) for i, name in enumerate(NAMES)}
    (tmp_path / "s.json").write_text(json.dumps({"host_constants": constants}))
    config = loaded({"snapshot": "s.json"}, tmp_path)
    assert config.engine_spec().timing == PassCostTiming(*constants.values())  # type: ignore[attr-defined]
    assert config.canonical() == loaded(dict(constants), tmp_path).canonical()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "timing", "says"),
    [
        (None, {"snapshot": "s.json"}, "No such file or directory; make one with tracemill calibrate"),
        ("{", {"snapshot": "s.json"}, "holds no constants of a pass cost: it is no JSON; make one with"),
        ("{}", {"snapshot": "s.json"}, "of a pass cost: it has no section host_constants; make one with"),
        ('{"host_constants": {"base_ms": 1}}', {"snapshot": "s.json"}, "of a pass cost: weights_ms is missing"),
        ('{"host_constants": {"base_ms": []}}', {"snapshot": "s.json"}, r"a pass cost: base_ms=\[\] is no number"),
        ('{"host_constants": {"vllm.client_ms": 1}}', {"snapshot": "s.json"}, "holds no constants of a pass cost"),
        ("{}", {"snapshot": "s.json", "base_ms": 1.0}, "either snapshot or the constants, not both: base_ms"),
    ],
)
def test_a_file_that_does_not_serve(tmp_path: Path, text: str | None, timing: dict[str, object], says: str) -> None:
    if text is not None:
        (tmp_path / "s.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        loaded(timing, tmp_path)
