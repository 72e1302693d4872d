"""`tracemill golden check DIR`: replay recorded cases of either kind and say where the answers part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from assets.golden import compare_peer, compare_vllm, peer_case, vllm_case
from assets.golden.run import Engine, run
from assets.golden.unsupported import Unsupported
from sim.config import ConfigError
from sim.errors import ReplayError


@dataclass(frozen=True)
class CaseResult:
    """Outcome of one case; `details` are differences of a failed one, or the reason of a skipped one."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    details: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """One line for a terminal."""
        if self.status == "passed":
            return f"passed   {self.name}"
        more = f" (and {len(self.details) - 1} more)" if len(self.details) > 1 else ""
        return f"{self.status:<8} {self.name}: {self.details[0]}{more}"


@dataclass
class Report:
    """All cases of a folder."""

    results: list[CaseResult] = field(default_factory=list)

    def count(self, status: str) -> int:
        return sum(result.status == status for result in self.results)

    @property
    def closing(self) -> str:
        return f"{self.count('passed')} passed, {self.count('failed')} failed, {self.count('skipped')} skipped"

    @property
    def lines(self) -> list[str]:
        return [*(result.line for result in self.results), self.closing]

    @property
    def skips(self) -> dict[str, str]:
        """Why each skipped case was skipped."""
        return {result.name: result.details[0] for result in self.results if result.status == "skipped"}

    @property
    def exit_code(self) -> int:
        return 1 if self.count("failed") or not self.results else 0


def check_dir(
    path: Path,
    *,
    engine: Engine = "fast",
    profile: Literal["vllm", "parity"] | None = None,
    echo: Callable[[CaseResult], None] | None = None,
) -> Report:
    """Replay every `*.json` case of a folder (or one file) and compare.

    Args:
        path: folder or file. Files that hold no case are not cases and are left out.
        engine: "fast" or "reference".
        profile: of vLLM cases; "parity" takes only those that both profiles must meet. Default: "vllm".
        echo: called with each result as it is known.
    """
    report = Report()
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        try:
            case = json.loads(file.read_text())
        except (ValueError, RecursionError, OSError) as error:  # a failed case, and the others still run
            result = CaseResult(file.stem, "failed", (f"cannot be read as JSON: {error}",))
        else:
            if not (isinstance(case, dict) and "expected" in case):
                continue
            result = check_case(case, name=file.stem, base=file.parent, engine=engine, profile=profile)
        report.results.append(result)
        if echo is not None:
            echo(result)
    return report


def check_case(
    case: Mapping[str, Any],
    *,
    name: str,
    base: Path,
    engine: Engine = "fast",
    profile: Literal["vllm", "parity"] | None = None,
) -> CaseResult:
    """Replay one case and compare it with its recorded answer."""
    compare = _vllm if "requests" in case and "traffic" not in case else _peer
    try:
        found = tuple(compare(case, base, engine, profile))
    except Unsupported as missing:
        return CaseResult(name, "skipped", (str(missing),))
    except Exception as problem:  # a crash is a failed case, and the other cases still run
        return CaseResult(name, "failed", (f"crashed with {type(problem).__name__}: {problem}",))
    return CaseResult(name, "failed" if found else "passed", found)


def _peer(case: Mapping[str, Any], base: Path, engine: Engine, profile: str | None) -> list[str]:
    must_refuse = "error" in case["expected"]
    try:
        loaded = peer_case.load(case, base)
        replayed = run(loaded.spec, loaded.workload, engine)
    except (ReplayError, ConfigError) as refusal:
        return [] if must_refuse else [f"refused: {refusal}"]
    if must_refuse:
        return ["expected to be refused, but it ran"]
    return list(islice(compare_peer.differences(case, loaded.options, replayed), 1000))


def _vllm(case: Mapping[str, Any], base: Path, engine: Engine, profile: Literal["vllm", "parity"] | None) -> list[str]:
    if profile == "parity" and case.get("profile") != "both":
        raise Unsupported("profile", "recorded for the vllm profile only")
    stalls = bool(case["expected"].get("stalled"))
    try:
        loaded = vllm_case.load(case, profile or "vllm")
        replayed = run(loaded.spec, loaded.workload, engine)
    except (ReplayError, ConfigError) as refusal:
        return [] if stalls else [f"refused: {refusal}"]
    if stalls:
        return [f"vLLM never runs {', '.join(case['expected']['stalled'])}; this replay ended"]
    return list(islice(compare_vllm.differences(case, loaded.names, replayed), 1000))
