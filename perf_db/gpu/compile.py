"""A deployment's operator-level prices as arrays that a kernel reads in constant time.

Everything but attention is a function of an integer token count: a table per integer, exact. Attention is a grid with
one row per integer batch, so that the blend over batches is done already, and the measured tables' own lengths as
knots; beyond the measured frontier the slow rule is asked once per doubled knot of length, batch and prefix.

With cleaning on, a longer cached prefix never makes a pass cheaper, nor do more tokens, requests or KV: the prefix
becomes an axis of its own and a monotone envelope is laid over all nodes. (The rule itself scales the whole table
value, launch cost included, by the share of pairs that are new, so that long prefixes with few new tokens come out
below short ones.)
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.oplevel import PHASES, OpLevel, Phase
from perf_db.gpu.source import content_digest

FORMAT = 4  # of the files; raised when the same inputs give other arrays
LONGEST = 1 << 20  # tokens; grids reach at least this far
PER_OCTAVE = 4  # knots where the prefix is made an axis
MOST_NODES = 4_000_000
PROBES = 1_000
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scheduler may put into a pass: the arrays reach that far and no further.

    Attributes:
        max_batched_tokens: token budget.
        max_sequences: running requests.
        max_length: longest sequence, tokens.
        drafts: tokens a decoding request verifies beside its own; None: the deployment's nextn. Drafts that are looked
            up, not made by layers of the model, are verified and add no layers.
    """

    max_batched_tokens: int
    max_sequences: int
    max_length: int = LONGEST
    drafts: int | None = None

    def per_request(self, nextn: int) -> int:
        """Positions of a decoding request in a pass."""
        return (nextn if self.drafts is None else self.drafts) + 1

    @property
    def prefill_batch(self) -> int:
        """Requests in the attention of a pass: floored means can double them."""
        return min(2 * self.max_sequences, max(self.max_batched_tokens, 1))


@dataclass(frozen=True, slots=True)
class Compiled:
    """Header (ready for JSON) and arrays of an operator-level timing model."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def digest(self) -> str:
        """Of everything a price depends on."""
        state = hashlib.blake2b(digest_size=16)
        state.update(json.dumps({k: v for k, v in self.header.items() if k != "provenance"}, sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            state.update(f"{name}{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return state.hexdigest()


# Columns of the tables whose values are knots of the token tables, and how a value becomes tokens on this rank.
_TOKEN_KNOTS = (("gemm", "m"), ("moe", "num_tokens"))


def compile_op_level(model: Any, limits: Limits, *, needs: tuple[Phase, ...] = PHASES) -> Compiled:
    """Sample a model over everything a scheduler can ask.

    A phase that the deployment cannot be priced in, and that is not needed, gets arrays that answer nothing; the
    header's `refused` says why.

    Args:
        model: an `OpLevel`, or anything with its methods.
        needs: phases without which the arrays are of no use; workers that only decode never prefill a prompt.

    Raises:
        PerfDataError: a phase that is needed cannot be priced.
    """
    per_request = limits.per_request(model.deployment.nextn)
    tokens = np.arange(1, limits.max_batched_tokens + limits.max_sequences * per_request + 1)
    batches, requests = np.arange(1, limits.prefill_batch + 1), np.arange(1, limits.max_sequences + 1)
    verified = requests * per_request
    refused = {phase: why for phase in PHASES if (why := model.refusal(phase)) is not None}
    for phase in needs:
        if phase in refused:
            raise refused[phase]
    knots = _token_knots(model)
    arrays, header, lookups = {**_NO_CONTEXT, **_NO_GENERATION}, dict(_NO_HEADER), 1
    if "context" not in refused:
        context, header = _context(model, batches, limits)
        arrays |= {
            "context_shared": _from_zero(_risen(model.shared("context", tokens), model.clean)),
            "context_logits": _from_zero(_risen(model.logits("context", batches), model.clean)),
            **context,
            "token_cells": _intervals(np.append(0, tokens), knots),
            "batch_cells": _intervals(np.append(0, batches), model.axes("context").batch),
        }
    if "generation" not in refused:
        generation, lookups = _generation(model, verified, limits)
        alone = model.shared("generation", verified) + model.logits("generation", verified)
        arrays |= {
            "generation_shared": _from_zero(_risen(alone, model.clean)),
            **generation,
            "request_cells": _intervals(
                np.append(0, verified), np.union1d(model.axes("generation").batch, knots[knots <= verified[-1]])
            ),
        }
    header |= {"nextn": per_request - 1, "lookups": lookups, "format": FORMAT, "limits": asdict(limits)}
    if refused:
        header["refused"] = {phase: {"reason": why.reason, "why": str(why)} for phase, why in refused.items()}
    for name, array in arrays.items():
        if array.dtype == np.float64 and not np.isfinite(array).all():
            d, unpriced = model.deployment, int((~np.isfinite(array)).sum())
            raise PerfDataError(
                "outside_data",
                f"{name} of {d.model} on {d.system} has {unpriced} entries without a price; lower the token budget, "
                "the batch or the context length",
            )
    compiled = Compiled(header, arrays)
    header["deviation"] = deviation(model, compiled, limits)
    return compiled


# A phase without prices: tables that end before the first token, so that every pass lies beyond them.
_NO_CONTEXT: dict[str, np.ndarray] = {
    "context_shared": np.zeros(1),
    "context_logits": np.zeros(1),
    "context_lengths": np.array([1, 2], np.int64),
    "context_prefixes": np.zeros(1, np.int64),
    "context_nodes": np.zeros((1, 1, 2)),
    "context_outside": np.zeros((1, 2)),
    "prefix_outside": np.zeros(1),
    "context_batches": np.zeros(1, np.int64),
    "token_cells": np.zeros(1, np.int64),
    "batch_cells": np.zeros(1, np.int64),
}
_NO_GENERATION: dict[str, np.ndarray] = {
    "generation_shared": np.zeros(1),
    "generation_lengths": np.array([1, 2], np.int64),
    "generation_nodes": np.zeros((1, 2)),
    "generation_outside": np.zeros((1, 2)),
    "generation_batches": np.zeros(1, np.int64),
    "request_cells": np.zeros(1, np.int64),
}
_NO_HEADER: dict[str, Any] = {"square_root": False, "extra_ms": 0.0, "outside_by_prompt": True}


def _context(model: Any, batches: Ints, limits: Limits) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    axes = model.axes("context")
    root = _blends_in_the_root(lambda n, x: model.lookup("context", n, x), axes.batch, axes.length, axes.frontier)
    flags = np.append(0, np.isin(batches, axes.batch)).astype(np.int64)
    rows = _reaching(axes.batch, int(batches[-1]))
    if len(axes.prefix) > 1:
        # The prefix is an axis of the measured table.
        lengths, prefixes = _reaching(axes.length, limits.max_length), _reaching(axes.prefix, limits.max_length)
        nodes = model.context_attention(rows[:, None, None], lengths[None, None], prefixes[None, :, None])
        beyond, extra = _beyond(prefixes, axes.prefix[-1]), 0.0
    else:
        lengths, prefixes = _reaching(axes.length, limits.max_length), np.zeros(1, np.int64)
        table = model.lookup("context", rows[:, None], lengths[None])
        extra = float(model.context_attention(1, int(lengths[-1]), 0) - model.lookup("context", 1, int(lengths[-1])))
        nodes = table[:, None, :]
        if model.clean:
            table = _envelope(table)
            lengths, prefixes, nodes = _with_prefix_axis(table, lengths, root, len(batches))
        beyond = np.zeros(len(prefixes))
    if model.clean:
        nodes = _envelope(nodes)
    nodes = _every_batch(nodes, rows, batches)
    found = {
        "context_lengths": lengths,
        "context_prefixes": prefixes,
        "context_nodes": _row_zero(np.sqrt(nodes) if root else nodes),
        "context_outside": _row_zero(_octaves_outside(axes, batches, lengths)),
        "prefix_outside": beyond,
        "context_batches": flags,
    }
    return found, {"square_root": root, "extra_ms": extra, "outside_by_prompt": len(axes.prefix) == 1}


def _with_prefix_axis(table: Floats, lengths: Ints, root: bool, batches: int) -> tuple[Ints, Ints, Floats]:
    """The 2-D rule, `T(n, S) (S^2 - p^2) / S^2`, at nodes of length and prefix."""
    per_octave = PER_OCTAVE
    while True:
        new = _refined(lengths, per_octave)
        prefixes = np.append(0, _refined(lengths, max(per_octave // 2, 1)))
        if batches * len(new) * len(prefixes) <= MOST_NODES or per_octave == 1:
            break
        per_octave //= 2
    full = (new[None, :] + prefixes[:, None]).astype(np.float64)
    share = (full * full - prefixes[:, None].astype(np.float64) ** 2) / (full * full)
    whole = np.stack([_interpolate(row, lengths, full.ravel(), root).reshape(full.shape) for row in table])
    return new, prefixes, whole * share


def _refined(lengths: Ints, per_octave: int) -> Ints:
    """The knots, and between them so many per octave that a blend follows the curve."""
    steps = np.arange(np.log2(lengths[0]), np.log2(lengths[-1]), 1.0 / per_octave)
    return np.union1d(lengths, np.round(2.0**steps).astype(np.int64))


def _generation(model: Any, verified: Ints, limits: Limits) -> tuple[dict[str, np.ndarray], int]:
    axes = model.axes("generation")
    lengths = _reaching(axes.length, limits.max_length * 11 // 10 + 1)
    rows = _reaching(axes.batch, int(verified[-1]))
    nodes = model.lookup("generation", rows[:, None], lengths[None])
    outside = _octaves_outside(axes, verified, lengths)
    if model.clean:
        nodes = _envelope(nodes)
    nodes = _every_batch(nodes, rows, verified)
    probe = int(axes.length[len(axes.length) // 2]) * 3 // 2
    averaged = model.generation_attention(1, probe) != model.lookup("generation", 1, probe)
    several = np.array([model.lookup("generation", 1, at) for at in _spread(np.array([probe]))[:, 0]])
    lookups = 5 if averaged and np.isclose(several.mean(), model.generation_attention(1, probe), rtol=1e-9) else 1
    found = {
        "generation_lengths": lengths,
        "generation_nodes": _row_zero(nodes),
        "generation_outside": _row_zero(outside),
        "generation_batches": np.append(0, np.isin(verified, axes.batch)).astype(np.int64),
    }
    return found, lookups


def _blends_in_the_root(ask: Callable[[Any, Any], Floats], batches: Ints, lengths: Ints, frontier: Ints) -> bool:
    """Whether the table is blended in the square root of the latency along its lengths."""
    inside = [
        (int(n), int(a), int(b))
        for n, end in zip(batches, frontier)
        for a, b in pairwise(lengths)
        if b <= end and b - a > 1
    ]
    if not inside:
        return True
    n, a, b = np.array(inside).T
    middle = (a + b) // 2
    low, high, found, share = ask(n, a), ask(n, b), ask(n, middle), (middle - a) / (b - a)
    linear = np.abs(low + (high - low) * share - found).sum()
    rooted = np.abs((np.sqrt(low) + (np.sqrt(high) - np.sqrt(low)) * share) ** 2 - found).sum()
    return bool(rooted < linear)


def _reaching(knots: Ints, length: int) -> Ints:
    """The knots from 1 (or 0) on, doubled beyond the last until `length` is inside."""
    found = sorted({int(k) for k in knots} | {min(1, int(knots[0]))})
    while found[-1] < length:
        found.append(2 * found[-1])
    if len(found) == 1:
        found.append(2 * found[0])
    return np.array(found, np.int64)


def _octaves_outside(axes: Any, batches: Ints, lengths: Ints) -> Floats:
    """Distance of each node to the measured staircase in powers of two; 0 inside. Shape (batches, lengths)."""
    known, frontier = axes.batch, axes.frontier.astype(np.float64)
    above = np.clip(np.searchsorted(known, batches, side="left"), 0, len(known) - 1)
    below = np.clip(np.searchsorted(known, batches, side="right") - 1, 0, len(known) - 1)
    reach = np.minimum(frontier[above], frontier[below])
    far = np.maximum(np.log2(np.maximum(lengths, 1)[None] / reach[:, None]), 0.0)
    short = np.maximum(np.log2(axes.length[0] / np.maximum(lengths, 1)), 0.0)[None]
    wide = np.maximum(np.log2(batches / known[-1]), np.maximum(np.log2(known[0] / batches), 0.0))[:, None]
    return np.sqrt(far**2 + short**2 + np.maximum(wide, 0.0) ** 2)


def _every_batch(nodes: Floats, rows: Ints, batches: Ints) -> Floats:
    """Rows at every batch asked for, linear between those that were looked up: at a knot of the other axes that is the
    tables' own blend."""
    i = np.clip(np.searchsorted(rows, batches, side="right") - 1, 0, len(rows) - 2)
    share = ((batches - rows[i]) / (rows[i + 1] - rows[i])).reshape(-1, *[1] * (nodes.ndim - 1))
    return nodes[i] + (nodes[i + 1] - nodes[i]) * share


def _beyond(prefixes: Ints, last: int) -> Floats:
    return np.maximum(np.log2(np.maximum(prefixes, 1) / max(int(last), 1)), 0.0)


def _envelope(nodes: Floats) -> Floats:
    """Non-decreasing along every axis; the least such array above the given one."""
    for axis in range(nodes.ndim):
        nodes = np.maximum.accumulate(nodes, axis=axis)
    return nodes


def _risen(values: Floats, clean: bool) -> Floats:
    return np.maximum.accumulate(values) if clean else values


def _from_zero(values: Floats) -> Floats:
    return np.append(0.0, values).astype(np.float64)


def _row_zero(nodes: Floats) -> Floats:
    """Rows count from batch 0, which is never asked."""
    return np.concatenate([nodes[:1], nodes]).astype(np.float64)


def _intervals(values: Ints, knots: Ints) -> Ints:
    """Number of the interval [knot, next knot) that each value lies in."""
    return np.searchsorted(np.asarray(knots), values, side="right").astype(np.int64)


def _token_knots(model: Any) -> Ints:
    """Token counts at which the token tables of this deployment have rows."""
    tables = getattr(model, "tables", None)
    found: set[int] = set()
    for table, column in _TOKEN_KNOTS:
        try:
            values = tables.values(table, column) if tables is not None else []
        except PerfDataError:
            values = []
        share = model.deployment.dp if table == "moe" else 1  # all ranks' tokens enter one pool of experts
        found |= {-(-int(v) // share) for v in values}
    return np.array(sorted(found) or [1], np.int64)


# ---------------------------------------------------------------- the arrays, evaluated without a kernel
def _interpolate(row: Floats, knots: Ints, x: Floats, root: bool) -> Floats:
    i = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    share = (x - knots[i]) / (knots[i + 1] - knots[i])
    y = np.sqrt(row) if root else row
    blended = y[i] + (y[i + 1] - y[i]) * share
    return blended * blended if root else blended


def _blend(nodes: Floats, knots: Ints, batch: Ints, x: Floats) -> Floats:
    i = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    share = (x - knots[i]) / (knots[i + 1] - knots[i])
    low, high = nodes[batch, i], nodes[batch, i + 1]
    return low + (high - low) * share


def evaluate_context(compiled: Compiled, batch: Ints, new: Ints, prefix: Ints) -> Floats:
    """Context attention from the arrays, ms."""
    a, root, extra = compiled.arrays, compiled.header["square_root"], compiled.header["extra_ms"]
    knots, prefixes, nodes = a["context_lengths"], a["context_prefixes"], a["context_nodes"]

    def at(row: Ints, x: Floats) -> Floats:
        i = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
        share = (x - knots[i]) / (knots[i + 1] - knots[i])
        y = nodes[batch, row, i] + (nodes[batch, row, i + 1] - nodes[batch, row, i]) * share
        return y * y if root else y

    if len(prefixes) == 1:
        full = (new + prefix).astype(np.float64)
        return at(np.zeros_like(batch), full) * ((full * full - prefix * prefix) / (full * full)) + extra
    j = np.clip(np.searchsorted(prefixes, prefix, side="right") - 1, 0, len(prefixes) - 2)
    share = (prefix - prefixes[j]) / (prefixes[j + 1] - prefixes[j])
    low, high = at(j, new.astype(np.float64)), at(j + 1, new.astype(np.float64))
    return low + (high - low) * share + extra


def evaluate_generation(compiled: Compiled, requests: Ints, kv: Ints) -> Floats:
    """Decode attention from the arrays, ms."""
    a = compiled.arrays
    looks = _spread(kv) if compiled.header["lookups"] == 5 else kv[None]
    return np.mean([_blend(a["generation_nodes"], a["generation_lengths"], requests, x) for x in looks], axis=0)


def _spread(kv: Ints) -> Ints:
    low, high = kv * 9 // 10, kv * 11 // 10
    return np.stack([np.maximum(low + (high - low) * k // 4, 1) for k in range(5)])


def deviation(model: Any, compiled: Compiled, limits: Limits, *, seed: int = 7) -> dict[str, dict[str, float]]:
    """Relative distance of the arrays to the direct rule on random passes: inside the data, and outside.

    Returns:
        per phase that is priced, and side: `n`, `median`, `p99`, `max`.
    """
    rng = np.random.default_rng(seed)
    a, nx = compiled.arrays, limits.per_request(model.deployment.nextn)
    longest = min(limits.max_length, LONGEST)

    def drawn(top: int) -> Ints:
        return np.maximum(np.floor(2.0 ** rng.uniform(0, np.log2(max(top, 1) + 1), PROBES)).astype(np.int64), 1)

    n = np.minimum(drawn(limits.max_sequences), limits.prefill_batch)
    s = np.maximum(np.minimum(drawn(limits.max_batched_tokens), limits.max_batched_tokens // n), 1)
    p = np.where(rng.random(PROBES) < 0.4, 0, drawn(longest))
    p = np.minimum(p, np.maximum(longest - s, 0))
    found: dict[str, dict[str, float]] = {}
    refused = compiled.header.get("refused", {})
    if "context" not in refused:
        direct = model.prefill(n, s, p)
        got = a["context_shared"][n * s] + a["context_logits"][n] + evaluate_context(compiled, n, s, p)
        found |= _sides("prefill", direct, got, _outside_at(compiled, n, s, p) == 0)
    if "generation" in refused:
        return found
    b, kv = drawn(limits.max_sequences), np.minimum(drawn(longest) + 1, longest)
    # The model multiplies by its own nextn + 1.
    direct = model.decode(b * nx // (model.deployment.nextn + 1), kv)
    got = a["generation_shared"][b] + evaluate_generation(compiled, b, kv)
    axes = model.axes("generation")
    reach = np.minimum.reduce([axes.frontier[_row(axes.batch, b * nx, side)] for side in (-1, 0)])
    inside = (kv * 11 // 10 <= reach) & (kv * 9 // 10 >= axes.length[0]) & (b * nx <= axes.batch[-1])
    return found | _sides("decode", direct, got, inside)


def _row(known: Ints, values: Ints, side: int) -> Ints:
    at = np.searchsorted(known, values, side="right") - 1 if side < 0 else np.searchsorted(known, values, side="left")
    return np.clip(at, 0, len(known) - 1)


def _outside_at(compiled: Compiled, n: Ints, new: Ints, prefix: Ints) -> Floats:
    a = compiled.arrays
    knots, outside, beyond = a["context_lengths"], a["context_outside"], a["prefix_outside"]
    x = new + prefix if compiled.header["outside_by_prompt"] else new
    above = np.clip(np.searchsorted(knots, x, side="left"), 0, len(knots) - 1)
    below = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 1)
    row = np.clip(np.searchsorted(a["context_prefixes"], prefix, side="left"), 0, len(beyond) - 1)
    return np.maximum(np.maximum(outside[n, above], outside[n, below]), beyond[row])


def _sides(phase: str, direct: Floats, got: Floats, inside: np.ndarray) -> dict[str, dict[str, float]]:
    apart = np.abs(got / direct - 1.0)
    found = {}
    for name, mask in (("inside", inside), ("outside", ~inside)):
        some = apart[mask]
        figures = [float(f(some)) if len(some) else 0.0 for f in (np.median, lambda v: np.quantile(v, 0.99), np.max)]
        found[f"{phase}_{name}"] = {"n": float(len(some)), **dict(zip(("median", "p99", "max"), figures))}
    return found


# ---------------------------------------------------------------- kept between runs
def key_name(key: Mapping[str, Any]) -> str:
    """Under which name something that follows from a key is kept."""
    return hashlib.blake2b(json.dumps(dict(key), sort_keys=True).encode(), digest_size=16).hexdigest()


def cached(key: Mapping[str, Any], folder: Path | None, make: Callable[[], Compiled]) -> Compiled:
    """Arrays of a key (deployment, data, cleaning, factors, limits), made once per machine.

    Args:
        folder: where they are kept; None: nowhere.
    """
    path = None if folder is None else folder / f"{key_name(key)}.npz"
    if path is not None and (found := _load(path)) is not None:
        return found
    compiled = make()
    if path is not None:
        _save(path, compiled)
    return compiled


def _load(path: Path) -> Compiled | None:
    """None when there is no such file, or it is damaged: then it is made again."""
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files if name != "header"}
            return Compiled(json.loads(str(held["header"])), arrays)
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _save(path: Path, compiled: Compiled) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be writing the same arrays: whoever is last replaces equal bytes.
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, header=np.array(json.dumps(compiled.header)), **compiled.arrays)  # type: ignore[arg-type]
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def data_state(model_root: Any, system: str) -> list[list[Any]]:
    """Names and digests of everything a deployment on `system` may read.

    Contents, not sizes and times: two roots, or one before and after an edit, may agree in those and not in prices.
    """
    root = Path(model_root.path)
    files = sorted((root / "systems" / "data" / system).rglob("*.parquet"))
    files += sorted({root / "systems" / f"{system}.yaml", *(root / "systems").glob("*.yaml")})
    files += sorted((root / "model_configs").glob("*.json"))
    return [[f.relative_to(root).as_posix(), content_digest(f)] for f in files if f.is_file()]


def op_level_key(
    model_key: Mapping[str, Any], root: Any, limits: Limits, *, clean: bool, factors: Any
) -> dict[str, Any]:
    """Everything compiled arrays depend on: what is priced, from what, how, how far, and the code that does it."""
    sources = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).parent.rglob("*")):
        if file.suffix in (".py", ".yaml"):
            sources.update(file.read_bytes())
    return {
        "format": FORMAT,
        "code": sources.hexdigest(),
        "deployment": dict(model_key),
        "data": data_state(root, str(model_key["system"])),
        "version": root.version,
        "limits": asdict(limits),
        "clean": clean,
        "factors": dict(factors or {}),
    }


def compile_deployment(
    deployment: Any,
    root: Any,
    limits: Limits,
    *,
    clean: bool,
    factors: Mapping[str, float] | None,
    folder: Path | None,
    needs: tuple[Phase, ...] = PHASES,
) -> Compiled:
    """The arrays of a deployment, from the cache if they are there. `header["key"]` names what they follow from.

    Args:
        needs: phases that must be priced; see `compile_op_level`.

    Raises:
        PerfDataError: the deployment cannot be priced.
    """

    def make() -> Compiled:
        model = OpLevel(deployment, root, clean=clean, factors=factors)
        compiled = compile_op_level(model, limits, needs=needs)
        compiled.header["provenance"] = model.provenance()
        return compiled

    key = op_level_key(deployment.as_dict(), root, limits, clean=clean, factors=factors)
    compiled = cached(key, folder, make)
    # Kept arrays may have been made for workers with other needs.
    for phase in needs:
        if (told := compiled.header.get("refused", {}).get(phase)) is not None:
            raise PerfDataError(told["reason"], told["why"])
    compiled.header["key"] = key_name(key)
    return compiled
