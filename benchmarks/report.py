"""results.json as a page to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks import growth, ingest, large, startup
from benchmarks.rounds import CHANCE
from benchmarks.workloads import Target, workloads

REPEAT = """\
## How to repeat

    make bench                                                      # ours alone
    python -m venv peer && peer/bin/pip install --no-deps ai-dynamo-runtime==1.6.1 numpy
    make bench ARGS="--peer-python peer/bin/python --mooncake conversation_trace.jsonl"

`python -m benchmarks --help` lists sections and options. The trace is `conversation_trace.jsonl` of the Mooncake
project (FAST '25). Without `-o benchmarks` the results go to `build/benchmarks/`.
"""


def report(results: dict[str, Any]) -> str:
    """The whole page, as far as things were measured."""
    parts = ["# Benchmark results\n\n" + _INTRO]
    sections = {"engines": _engines, "growth": _growth, "startup": _startup, "large": _large, "ingest": _ingest}
    for name, write in sections.items():
        if name in results:
            tried = "**Only tried, on a fraction of the work: no figure here means anything.**\n\n"
            parts += [
                write(results[name]),
                (tried if results[name]["quick"] else "") + _taken(results[name]["machine"]),
            ]
    return "\n".join([*parts, REPEAT])


_INTRO = """\
Written by `python -m benchmarks`; every figure, run by run, is in `results.json`. "Peer" is the replay engine, compiled
from Rust, in the public wheel `ai-dynamo-runtime`. *Engine time* is what each engine reports for itself: from requests
in memory to results in memory, without reading input and writing tables. *Process* figures are what the system charged
a fresh process from start to exit, imports and input included.
"""


def _taken(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"<sub>{machine['date']}, commit {machine['commit']}. {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}, {_load(machine)}. "
        f"Python {machine['python']}, {packages}.</sub>\n"
    )


def _load(machine: dict[str, Any]) -> str:
    text = f"load average {machine['load_average']} at the start"
    # Waiting for a core lengthens a run of 0.1 s by luck, one of 2 s for certain.
    busy = _is_busy(machine)
    return text + (": busy with other work, so single figures are too long and only ratios mean much" if busy else "")


def _is_busy(machine: dict[str, Any]) -> bool:
    return bool(machine["load_average"] > machine["cores"] / 2)


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    columns = head.split("|")
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _ratio(spread: dict[str, float] | None, target: float | None = None) -> str:
    if spread is None:
        return "–"
    text = f"**{spread['median']:.1f}×** ({spread['least']:.1f}–{spread['most']:.1f})"
    return text if target is None else f"{text}, asked {target:g}× {_mark(spread['median'] >= target)}"


def _mark(reached: bool) -> str:
    return "✓" if reached else "✗ missed"


def _engines(section: dict[str, Any]) -> str:
    found, targets = section["workloads"], _targets()
    rounds = max(w["rounds"] for w in found.values())
    text = ["## Both engines, turn about\n"]
    text += [f"{note}\n" for note in section["notes"]]
    text.append("\n".join(f"- **{key}**: {w['title']}" for key, w in found.items()) + "\n")
    text.append(
        f"{rounds} rounds of: ours, ours with every table written to disk, peer, ours again; a fresh process "
        "each time. Ratios are peer over ours within a round: median (least–most). *Noise* is the same ratio between "
        "our two runs of a round, which would be 1 on an idle machine.\n"
    )
    text.append(
        _table(
            "engine time|ours, ms: median|fastest|peer, ms: median|fastest|ratio|noise",
            (
                [
                    key,
                    f"{w['runs']['ours']['engine_ms']:,.0f}",
                    f"{w['runs']['ours']['fastest_ms']:,.0f}",
                    *_peer(w, "engine_ms", ",.0f"),
                    *_peer(w, "fastest_ms", ",.0f"),
                    _ratio(w["ratios"].get("engine"), targets[key].engine),
                    _range(w["ratios"]["noise"]),
                ]
                for key, w in found.items()
            ),
        )
    )
    calls = [f"{key} {w['runs']['peer']['call_ms']:,.0f}" for key, w in found.items() if "peer" in w["runs"]]
    if calls:
        text.append(
            "Neither figure includes making requests up or working out the summary: the peer's call as a whole takes, "
            f"ms: {', '.join(calls)}.\n"
        )
    text.append(
        "Whole processes. The peer prints its summary and writes nothing, in either comparison; our tables are every "
        "request, pass, span, admission, chunk and metric, digested and committed.\n"
    )
    text.append(
        _table(
            "process, wall s|ours, summary only|ours, tables on disk|peer|ratio, summary only|ratio, tables on disk",
            (
                [
                    key,
                    *(f"{w['runs'][who]['wall_s']:.2f}" for who in ("ours", "tables")),
                    *_peer(w, "wall_s", ".2f"),
                    _ratio(w["ratios"].get("summary_only"), targets[key].summary_only),
                    _ratio(w["ratios"].get("with_tables"), targets[key].with_tables),
                ]
                for key, w in found.items()
            ),
        )
    )
    text.append(
        _table(
            "CPU s, peak MiB|ours, summary only|ours, tables on disk|peer|ours, MiB|with tables, MiB|peer, MiB|asked",
            (
                [
                    key,
                    *(f"{w['runs'][who]['cpu_s']:.2f}" for who in ("ours", "tables")),
                    *_peer(w, "cpu_s", ".2f"),
                    *(f"{w['runs'][who]['rss_mib']:,.0f}" for who in ("ours", "tables")),
                    *_peer(w, "rss_mib", ",.0f"),
                    _memory(w, targets[key]),
                ]
                for key, w in found.items()
            ),
        )
    )
    text.append(_answers(found))
    return "\n".join(text)


def _targets() -> dict[str, Target]:
    from pathlib import Path

    return {key: work.target for key, work in workloads(Path()).items()}


def _peer(workload: dict[str, Any], key: str, form: str) -> list[str]:
    peer = workload["runs"].get("peer")
    return ["–" if peer is None else format(peer[key], form)]


def _range(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f} ({spread['least']:.2f}–{spread['most']:.2f})"


def _memory(workload: dict[str, Any], target: Target) -> str:
    mine = max(workload["runs"][who]["rss_mib"] for who in ("ours", "tables"))
    if target.rss_mib is not None:
        return f"at most {target.rss_mib:g} {_mark(mine <= target.rss_mib)}"
    if "peer" not in workload["runs"]:
        return "below the peer's"
    return f"below the peer's {_mark(mine < workload['runs']['peer']['rss_mib'])}"


def _answers(found: dict[str, Any]) -> str:
    rows = []
    for key, w in found.items():
        for who in ("ours", "peer"):
            if who in w["runs"]:
                got = w["runs"][who]["answers"]
                rows.append(
                    [f"{key}, {who}", f"{got['completed_requests']:,.0f}", f"{got['duration_ms']:.6f}",
                     f"{got['mean_ttft_ms']:.9f}"]
                )  # fmt: skip
    wrong = [f"- {key}: {line}" for key, w in found.items() for line in w["differences"]]
    verdict = "Every run of a workload gave the same answer (times to 1e-8, counts exactly)."
    drawn = [key for key, w in found.items() if w.get("draws")]
    if drawn:
        verdict += (
            f" In {', '.join(drawn)} each engine draws which drafts are accepted, from a generator of its own: there, "
            f"the peer's times are within {CHANCE:.0%} of ours."
        )
    if wrong:
        verdict = "**Answers differ:**\n\n" + "\n".join(wrong)
    return verdict + "\n\n" + _table("answers|completed|simulated duration, ms|mean TTFT, ms", rows)


def _growth(section: dict[str, Any]) -> str:
    text = ["## How cost grows\n"]
    text.append(
        "A closed loop of 200,000 requests (128 in, 128 to 384 out), pool of 81,920 blocks and budget of 16,384 tokens "
        "at every concurrency. An event is an arrival, an admission, a chunk of a prompt, a KV block taken while "
        "decoding, an end, or a pass. A pass without events is one in which every request only decodes. Fastest of "
        "five; vLLM's own rules (asynchronous scheduling) / the reference simulator's (synchronous).\n"
    )
    busy = {(p["concurrency"], p["profile"]): p for p in section["concurrency"]}
    quiet = {(p["concurrency"], p["profile"]): p for p in section["quiet"]}

    def both(points: dict[Any, Any], c: int, key: str, form: str = ".0f") -> str:
        return " / ".join(format(points[c, profile][key], form) for profile in growth.PROFILES)

    text.append(
        _table(
            "concurrency|µs per pass|ns per event|ns per request|ns per pass without events",
            (
                [
                    f"{c:,}",
                    both(busy, c, "us_per_pass", ".2f"),
                    both(busy, c, "ns_per_event"),
                    both(busy, c, "ns_per_request"),
                    both(quiet, c, "ns_per_pass"),
                ]
                for c in dict.fromkeys(p["concurrency"] for p in section["concurrency"])
            ),
        )
    )
    for title, points, key, limit in (
        ("time per event", section["concurrency"], "ns_per_event", growth.EVENT_LIMIT),
        ("a pass without events", section["quiet"], "ns_per_pass", growth.QUIET_LIMIT),
    ):
        factors = [growth.grown(points, profile, key) for profile in growth.PROFILES]
        shown = " / ".join(f"{f:.2f}×" for f in factors if f is not None)
        if shown:
            reached = all(f is None or f <= limit for f in factors)
            asked = f"asked at most {limit:g}× {_mark(reached)}"
            text.append(f"- From {growth.FROM} to {growth.TO:,}, {title}: {shown}; {asked}")
    if "pools" in section:  # not so in measurements from before there were any
        text.append(_growth_of_pools(section["pools"]))
    text.append("\nWorkload a at other lengths, rows thrown away:\n")
    text.append(
        _table(
            "requests|engine ms|ns per request|peak memory, MiB",
            (
                [f"{p['requests']:,}", f"{p['engine_ms']:,.1f}", f"{p['ns_per_request']:.0f}", f"{p['rss_mib']:,.0f}"]
                for p in section["length"]
            ),
        )
    )
    return "\n".join(text)


def _growth_of_pools(points: list[dict[str, Any]]) -> str:
    """Costs without and with shared links, by number of workers."""
    by_links = {shared: {p["workers"]: p for p in points if p["shared"] == shared} for shared in (False, True)}
    sizes = list(by_links[False])

    def both(n: int, key: str, form: str) -> str:
        return " / ".join(format(by_links[shared][n][key], form) for shared in (False, True))

    table = _table(
        "workers|passes|engine ms|ns per request|ns per event|peak memory, MiB",
        (
            [
                f"{n} + {n}",
                both(n, "passes", ",d"),
                both(n, "engine_ms", ",.0f"),
                both(n, "ns_per_request", ".0f"),
                both(n, "ns_per_event", ".0f"),
                both(n, "rss_mib", ",.0f"),
            ]
            for n in sizes
        ),
    )
    factors = " / ".join(
        f"{found[sizes[-1]]['ns_per_event'] / found[sizes[0]]['ns_per_event']:.2f}×" for found in by_links.values()
    )
    return (
        "\nSeparate pools of ever more workers: 100,000 requests (512 in, 64 to 192 out), polynomial timing, "
        f"{growth.IN_FLIGHT} in flight per decode worker. Transfers have the bandwidth to themselves / those to one "
        "worker go one after the other over its link. A handoff is five more events: held, reserved, sent, taken note "
        f"of, released.\n\n{table}\n- From {sizes[0]} + {sizes[0]} to {sizes[-1]} + {sizes[-1]} workers, time per "
        f"event: {factors}"
    )


def _startup(section: dict[str, Any]) -> str:
    rows = []
    for key, title, limit in (
        ("help", "`tracemill --help`", startup.HELP_LIMIT_S),
        ("small", "a replay of 500 requests, tables committed, kernels compiled", startup.SMALL_LIMIT_S),
        *(
            (kind, title, startup.COMPILE_LIMIT_S if kind == "compile" else None)
            for kind, title in startup.KINDS.items()
        ),
    ):
        if key in section:
            got = section[key]
            rows.append(
                [title, f"{got['wall_s']:.2f}", f"{got.get('worst_s', got['wall_s']):.2f}", f"{got['cpu_s']:.2f}",
                 f"{got['rss_mib']:,.0f}", "–" if limit is None else f"{limit:g} {_mark(got['wall_s'] <= limit)}"]
            )  # fmt: skip
    text = ["## Start-up\n", _table("what|wall s: median|worst|CPU s|MiB|asked: at most, s", rows)]
    spent = ", ".join(f"{name} {ms:.0f}" for name, ms in section["imports_ms"].items())
    text.append(f"Imports of the small replay, ms, by package (measuring them slows them down): {spent}.\n")
    return "\n".join(text)


def _large(section: dict[str, Any]) -> str:
    rows = []
    for r in section["runs"]:
        stages = ", ".join(f"{name} {s:.1f}" for name, s in r["stages_s"].items())
        rows.append(
            [f"{r['requests']:,}: {r['title']}", f"{r['wall_s']:.1f}", f"{r['engine_ms'] / 1e3:.1f}", stages,
             f"{r['cpu_s']:.1f}", f"{r['rss_mib']:,.0f} {_mark(r['rss_mib'] < large.LIMIT_MIB)}",
             f"{r['disk_mib']:,.0f}"]
        )  # fmt: skip
    head = "requests to disk|wall s|engine s|stages, s|CPU s|peak MiB, asked below 8,192|disk MiB"
    return "## Very long traces\n\n" + _table(head, rows)


def _ingest(section: dict[str, Any]) -> str:
    rows = []
    # Where others have the cores, the time on the wall is theirs: what counts then is the work.
    busy = _is_busy(section["machine"])
    for r in section["runs"]:
        speed, per_cpu = r["mb"] / r["seconds"], r["mb"] / r["cpu_seconds"]
        reached = _mark((per_cpu if busy else speed) >= r["asked_mb_per_s"])
        rows.append(
            [f"{r['mb']:,.0f} MB of {r['form']}, {r['rows']:,} rows", f"{r['planted']:,}", f"{r['seconds']:.1f}",
             f"{speed:.0f}", f"{r['cpu_seconds']:.1f}", f"{per_cpu:.0f}", f"{r['asked_mb_per_s']} {reached}",
             f"{r['peak_mb']:,.0f} {_mark(r['peak_mb'] <= ingest.LIMIT_MB)}"]
        )  # fmt: skip
    head = "prepared|bad rows, all found|wall s|MB/s|CPU s|MB per CPU s|asked MB/s|peak MiB, asked at most 2,048"
    text = "`tracemill trace ingest` of made-up files like those of Mooncake (jsonl, parquet) and Azure (csv)"
    text += "; on this busy machine held against MB per CPU second:\n\n" if busy else ":\n\n"
    return "## Large traces\n\n" + text + _table(head, rows)
