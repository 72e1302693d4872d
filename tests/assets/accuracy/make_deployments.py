"""Writes `deployments.csv` beside it: a table with the columns of measured deployments, and nothing measured in it.

    python -m tests.assets.accuracy.make_deployments

Latencies are our own predictions under the constants below, blurred by three percent. It shows what such a table looks
like, and carries tests of everything that is done with one. Needs the perfdata extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("deployments.csv")
PLANTED = {"prefill_pass_ms_per_layer": 0.3, "client_ms": 0.7}
NOISE = 0.03
COLUMNS = {
    "ttft": "silicon_ttft_ms", "tpot": "silicon_tpot_ms", "itl": "silicon_itl_ms", "e2e": "silicon_e2e_ms",
    "output_throughput": "silicon_output_tokens_per_s",
}  # fmt: skip
DEPLOYMENTS = [
    *(("Qwen/Qwen3-32B", system, "vllm", tp) for system in ("h200_sxm", "b200_sxm") for tp in (1, 2, 4, 8)),
    *(("Qwen/Qwen3-30B-A3B", system, "vllm", tp) for system in ("h200_sxm", "b200_sxm") for tp in (1, 2, 4)),
    ("Qwen/Qwen3-32B", "h200_sxm", "sglang", 2),
]
LOADS = ((1024, 48, 4), (2000, 24, 8))


def runs() -> list[dict[str, Any]]:
    """Labels of every run, without latencies."""
    found = []
    for model, system, backend, tp in DEPLOYMENTS:
        for isl, osl, clients in LOADS:
            name = model.partition("/")[2].lower()
            found.append(
                {
                    "id": f"{name}-{system}-{backend}-tp{tp}-c{clients}", "backend": backend, "backend_version": "1.0",
                    "model_path": model, "system": system, "mode": "agg", "isl": isl, "osl": osl, "tp_size": tp,
                    "pp_size": 1, "attention_dp_size": 1, "moe_tp_size": tp if "A3B" in model else 0, "moe_ep_size": 1,
                    "gemm_quant_mode": None, "moe_quant_mode": None, "precision": None, "batch_size": clients,
                    "concurrency": clients, "model_family": name, "origin": "made_up", "measured_on": None,
                    "group": f"{name}-{system}-{backend}-tp{tp}",
                }
            )  # fmt: skip
    return found


def main() -> None:
    import polars as pl

    from assets.accuracy.importers import About
    from assets.accuracy.importers.silicon import read
    from assets.accuracy.predict import predict_deployments

    labels = runs()
    frame = pl.DataFrame([{**run, **dict.fromkeys(COLUMNS.values(), 1.0)} for run in labels], infer_schema_length=None)
    frame = frame.with_columns(pl.Series("silicon_ttft_ms", np.arange(1.0, len(labels) + 1)))  # none repeats another
    frame.write_csv(FILE)
    truth = read(FILE, About("made-up"))
    planted = dict.fromkeys(("vllm", "sglang"), PLANTED)
    told = {(r["row_id"], r["metric"]): r["prediction"] for r in predict_deployments(truth, constants=planted).rows}
    rng = np.random.default_rng(5)
    rows = [
        {
            **run,
            **{
                column: float(f"{told[run['id'], metric] * np.exp(rng.normal(0, NOISE)):.5g}")
                for metric, column in COLUMNS.items()
            },
        }
        for run in labels
    ]
    # Two that cannot be predicted, each for a reason.
    apart = {**rows[0], "id": "apart", "mode": "disagg", "silicon_ttft_ms": 321.0}
    drafted = {**rows[0], "id": "drafted", "model_family": "deepseek-v3-family", "silicon_ttft_ms": 123.0}
    pl.DataFrame([*rows, apart, drafted], infer_schema_length=None).write_csv(FILE)


if __name__ == "__main__":
    main()
