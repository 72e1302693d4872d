"""The performance data as an asset: what a pass costs, checked and shown before anything is replayed with it."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

import dagster as dg

from assets.identity import performance_digest, sources_digest
from assets.metadata import picture
from assets.plots import AMBER, Panel
from assets.pricing import price_deployment
from assets.settings import RunSettings, input_faults, recipe_of
from perf_db.store import Store
from sim.errors import TimingError
from sim.spec import EngineSpec
from sim.timing.plain import PlainPricer, Work

PREFILL_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 4, 16, 64, 256)
CONTEXT = 1024


@dg.asset(
    group_name="tracemill",
    kinds={"python"},
    code_version=sources_digest("sim")[:12],
    check_specs=[
        dg.AssetCheckSpec(
            "prices_are_finite",
            asset="performance",
            blocking=True,
            description="sample passes cost a finite time that is not negative",
        )
    ],
)
def performance(
    context: dg.AssetExecutionContext, config: RunSettings, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """The timing model of a configuration, asked for the price of sample passes."""
    with input_faults():
        recipe = recipe_of(context, config, store)
        deployment = price_deployment(recipe.load(), base=recipe.base).spec
        # Of separate pools each phase is asked of its own. What the scheduler never asks for, prices need not know.
        first, spec = deployment.sides[0], deployment.sides[-1]
        tokens_asked = [tokens for tokens in PREFILL_TOKENS if tokens <= first.max_batched_tokens]
        batches = [batch for batch in BATCHES if batch <= spec.max_num_seqs]
        prefill = _priced(first, [(tokens, Work(1, tokens, 0, 0, 0)) for tokens in tokens_asked])
        decode = _priced(spec, [(batch, Work(0, 0, 0, batch, batch * CONTEXT)) for batch in batches])
    rows = [("prefill", f"{tokens} new tokens", ms) for tokens, ms in prefill]
    rows += [("decode", f"{batch} requests at {CONTEXT} tokens", ms) for batch, ms in decode]
    panels = [
        Panel("prefill, ms by new tokens of a pass", *_columns(prefill), "tokens"),
        Panel(f"decode, ms by batch size at {CONTEXT} tokens of context", *_columns(decode), "requests", AMBER),
    ]
    return dg.MaterializeResult(
        data_version=dg.DataVersion(performance_digest(deployment)),
        metadata={
            "model": spec.timing.kind,
            "digest": performance_digest(deployment),
            "prices": dg.MetadataValue.table(
                [dg.TableRecord({"phase": phase, "work": work, "ms": ms}) for phase, work, ms in rows]
            ),
            "curves": picture(panels, "pass prices"),
        },
        # A price that is not finite has raised already; the check records that they were asked for.
        check_results=[dg.AssetCheckResult(check_name="prices_are_finite", passed=True, metadata={"asked": len(rows)})],
    )


def _priced(spec: EngineSpec, asked: list[tuple[int, Work]]) -> list[tuple[int, float]]:
    """Milliseconds of sample passes. A table of measured passes leaves out what it does not cover."""
    pricer, found = PlainPricer(spec), []
    for x, work in asked:
        try:
            price = pricer.price(work)
        except TimingError:
            if spec.timing.kind != "forward":
                raise
            continue
        found.append((x, (price.prefill_ns + price.decode_ns) / 1e6))
    return found


def _columns(points: list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    return [float(x) for x, _ in points], [y for _, y in points]
