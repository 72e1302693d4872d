"""Makes demo.jsonl and demo_azure.csv beside this file. Nobody's data: every number comes from the seed below.

    python examples/traces/make_demo.py

demo.jsonl is a chat service seen for ten minutes in Mooncake's columns: three applications with system prompts of
their own, conversations whose turns repeat everything said before, quiet stretches and bursts, and a handful of broken
rows of the kinds that real exports contain. demo_azure.csv holds a few hundred of the same requests in Azure's columns.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
import math
import random
from pathlib import Path

SEED = 20240607
BLOCK = 512  # tokens per hash id
ROWS = 2000
SPAN_S = 600.0
# System prompt in tokens, share of conversations, typical user message, typical answer.
APPLICATIONS = ((1536, 0.5, 180, 220), (3072, 0.3, 350, 160), (640, 0.2, 900, 420))


class Draw:
    """Distributions on top of random() alone, whose sequence Python promises to keep."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1 - self.random())

    def around(self, typical: float, spread: float) -> int:
        """Log-normal, at least 1."""
        normal = math.sqrt(-2 * math.log(1 - self.random())) * math.cos(2 * math.pi * self.random())
        return max(1, round(typical * math.exp(spread * normal)))


def intensity(t: float) -> float:
    """New conversations per second: a slow swell, and four bursts."""
    swell = 0.9 + 0.4 * math.sin(2 * math.pi * t / SPAN_S)
    return swell + sum(9.0 for start in (95, 240, 390, 505) if start <= t < start + 9)


def requests(draw: Draw) -> list[dict]:
    """Rows in order of arrival, hash ids numbered by first appearance."""
    # Thinning: candidates at the highest rate, kept in proportion to the rate at that moment.
    starts, t = [], 0.0
    while t < SPAN_S:
        t += draw.exponential(1 / 10.5)
        if draw.random() < intensity(t) / 10.5:
            starts.append(t)
    turns: list[tuple[float, int, int, list[object], int, int]] = []
    for number, start in enumerate(starts):
        u, app = draw.random(), 0
        while u > APPLICATIONS[app][1] and app < len(APPLICATIONS) - 1:
            u -= APPLICATIONS[app][1]
            app += 1
        system, _, message, answer = APPLICATIONS[app]
        length, turn, when = system, 0, start
        while True:
            length += draw.around(message, 0.6)
            output = draw.around(answer, 0.7)
            blocks: list[object] = []
            for j in range(length // BLOCK):
                shared = (j + 1) * BLOCK <= system
                blocks.append(("system", app, j) if shared else ("chat", number, j))
            if length % BLOCK:
                blocks.append(("tail", number, turn))  # the next turn fills it up, under another id
            heapq.heappush(turns, (when, number, length, blocks, output, turn))
            if draw.random() < 0.38 or length > 12000:
                break
            length += output
            when += output * 0.02 + draw.exponential(14.0)
            turn += 1
    names: dict[object, int] = {}
    rows = []
    while turns and len(rows) < ROWS:
        when, _, length, blocks, output, _ = heapq.heappop(turns)
        rows.append(
            {
                "timestamp": round(when * 1000),
                "input_length": length,
                "output_length": output,
                "hash_ids": [names.setdefault(block, len(names)) for block in blocks],
                "request_id": f"demo-{len(rows):04d}",
            }
        )
    return rows


def with_faults(rows: list[dict]) -> list[str]:
    """The rows as lines, with broken ones among them."""
    lines = [json.dumps(row) for row in rows]
    broken = {
        151: lines[151][:57],  # cut off in the middle
        402: json.dumps({**rows[402], "output_length": None}),
        560: json.dumps({**rows[560], "request_id": "broken-1", "input_length": -64}),
        777: json.dumps({**rows[777], "request_id": "broken-2", "input_length": str(rows[777]["input_length"])}),
        981: json.dumps({**rows[981], "request_id": rows[980]["request_id"]}),
        1204: json.dumps({**rows[1204], "request_id": "broken-3", "hash_ids": rows[1204]["hash_ids"][:-1]}),
        1391: json.dumps({**rows[1391], "request_id": "broken-4", "timestamp": float("nan")}),
        1650: "worker restarted",
    }
    # Behind the row they are made from, so that no good row is lost.
    return [each for i, line in enumerate(lines) for each in ([line, broken[i]] if i in broken else [line])]


def azure_rows(rows: list[dict]) -> list[str]:
    """The first rows in the Azure columns: seven fractional digits, no zone."""
    start = dt.datetime(2024, 6, 7, 9, 30)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for row in rows[:400]:
        stamp = (start + dt.timedelta(milliseconds=row["timestamp"])).strftime("%Y-%m-%d %H:%M:%S.%f")
        lines.append(f"{stamp}0,{row['input_length']},{row['output_length']}")
    return lines


def main() -> None:
    here = Path(__file__).parent
    rows = requests(Draw(SEED))
    (here / "demo.jsonl").write_bytes("".join(f"{line}\n" for line in with_faults(rows)).encode())
    # Published files end their lines with CRLF and the last one with nothing.
    (here / "demo_azure.csv").write_bytes("\r\n".join(azure_rows(rows)).encode())


if __name__ == "__main__":
    main()
