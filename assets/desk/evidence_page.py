"""`evidence.md`: what a pull request has to say about itself, made from the content of `evidence.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assets.desk.diff import Diff
from assets.desk.golden_summary import golden_text
from assets.desk.host_summary import summary_text
from assets.desk.text import diff_text

_SHOWN = ("run_id", "replay_id", "engine_digest", "trace_digest", "performance_digest", "result_digest",
          "tracemill_version")  # fmt: skip


def page_of(data: Mapping[str, Any], diffs: Mapping[str, Diff | None]) -> str:
    """
    Args:
        data: content of evidence.json.
        diffs: by name of the scenario; None where only figures could be compared.
    """
    scenarios = data["scenarios"]
    if len(scenarios) == 1:
        title = f"{scenarios[0]['base']['name']} → {scenarios[0]['head']['name']}"
        lines = [f"# Evidence: {title}", "", verdict(scenarios[0]), ""]
    else:
        lines = [
            f"# Evidence: {len(scenarios)} scenarios",
            "",
            _closing(scenarios, data["missing"]),
            "",
            *_list(scenarios),
        ]
    lines += [f"- not compared: `{name}`: {why}" for name, why in data["missing"].items()]
    lines += [""] if data["missing"] else []
    for scenario in scenarios:
        lines += _scenario(scenario, diffs[scenario["name"]], alone=len(scenarios) == 1)
    if "golden" in data:
        lines += ["## Recorded answers of other engines", "", "```text", golden_text(data["golden"]), "```", ""]
    if "host" in data:
        lines += ["## Host performance", "", "```text", summary_text(data["host"]), "```", ""]
    lines += ["## Made by", "", f"    {data['command']}", "", "Check it against the raw tables beside this page:", ""]
    return "\n".join([*lines, "    tracemill evidence --check DIR", ""])


def verdict(scenario: Mapping[str, Any]) -> str:
    """The first sentence about a scenario."""
    diff = scenario["diff"]
    if diff["same"]:
        return "**The same rows.**"
    if not diff.get("rows_kept", True):
        return "**Different.** Rows were not kept, so only figures can be compared."
    if not diff["explained"]:
        return "**Different, and not explained.**"
    why = f" Mechanism: {diff['mechanism']} ({diff['detail']})." if diff["mechanism"] else ""
    return f"**Different.** Input change: {', '.join(diff['input_change'])}.{why}"


def _closing(scenarios: list[Mapping[str, Any]], missing: Mapping[str, str]) -> str:
    same = sum(s["diff"]["same"] for s in scenarios)
    told = f"**{same} of {len(scenarios)} hold the same rows.**"
    strange = [s["name"] for s in scenarios if not s["diff"]["same"] and not s["diff"]["explained"]]
    if strange:
        told += f" **Not explained: {', '.join(strange)}.**"
    return told + (f" {len(missing)} could not be compared." if missing else "")


def _list(scenarios: list[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| scenario | | input change | mechanism | TTFT, ms | E2E, ms | anomalies |",
        "|---|---|---|---|--:|--:|--:|",
    ]
    for s in scenarios:
        diff = s["diff"]
        change = {a["latency"]: f"{a['change_ns'] / 1e6:+,.3f}" for a in diff.get("attribution", [])}
        n = sum(len(found) for found in s["anomalies"].values() if found is not None)
        inputs = ", ".join(diff.get("input_change", []))
        word = "same" if diff["same"] else "different"
        lines.append(
            f"| `{s['name']}` | {word} | {inputs} | {diff.get('mechanism') or ''} | {change.get('ttft', '')} | "
            f"{change.get('e2e', '')} | {n} |"
        )
    return [*lines, ""]


def _scenario(scenario: Mapping[str, Any], diff: Diff | None, *, alone: bool) -> list[str]:
    base, head = scenario["base"], scenario["head"]
    lines = ["| | base | head |", "|---|---|---|", *(f"| {n} | `{base[n]}` | `{head[n]}` |" for n in _SHOWN)]
    if diff is not None:
        text = diff_text(diff)
    else:
        text = "\n".join(f"{m['scope']} {m['metric']} {m['stat']}: {m['base']} → {m['head']} {m['unit']}"
                         for m in scenario["diff"]["metrics"])  # fmt: skip
    body = [*lines, "", "```text", text, "```", "", *_anomalies(scenario), ""]
    if alone:
        return [*lines, "", "## Diff", "", "```text", text, "```", "", "## Anomalies", "", *_anomalies(scenario), ""]
    if scenario["diff"]["same"] and not any(scenario["anomalies"].values()):
        return []
    return [f"<details><summary><code>{scenario['name']}</code></summary>", "", *body, "</details>", ""]


def _anomalies(scenario: Mapping[str, Any]) -> list[str]:
    lines = []
    for side, found in scenario["anomalies"].items():
        if found is None:
            lines.append(f"- {side}: rows were not kept, so nothing could be checked again")
            continue
        lines += [f"- {side}: {a['severity']} `{a['check_name']}`, {a['row_key']}: {a['explanation']}" for a in found]
        if not found:
            lines.append(f"- {side}: {scenario['checks']} checks, all fine")
    return lines
