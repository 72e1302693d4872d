"""Two pools and a workload as the arrays their kernels run on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import sim.pools.state as P
import sim.state as S
from sim.inputs import Workload
from sim.plays import Followers
from sim.pools.state import Pools
from sim.prefix import Shared
from sim.setup import allocate, config_of
from sim.source import FAR
from sim.spec import PoolsSpec
from sim.speculation.draws import TRANSFER
from sim.speculation.setup import keys_of
from sim.state import Config, State


def configs_of(spec: PoolsSpec, load: Workload) -> tuple[Config, Config]:
    """Constants of the prefill and of the decode pool."""
    prefill, decode = config_of(spec.prefill, load), config_of(spec.decode, load)
    both = {"mask": max(prefill.mask, decode.mask), "pinned": int(len(pins_of(load)) > 0)}
    keeps_local = int(spec.local_prefill_tokens is not None)
    return (
        prefill._replace(role=S.PREFILLS, **both),
        decode._replace(role=S.DECODES, keeps_local=keeps_local, **both),
    )


def pins_of(load: Workload) -> np.ndarray:
    """Pins of the requests, then those of their bootstraps, each within its pool; empty when nobody is pinned."""
    pins = (load.pinned_rank, load.pinned_prefill_rank)
    if all(each is None for each in pins):
        return np.zeros(0, np.int32)
    free = np.full(len(load), -1)
    return np.concatenate([free if each is None else np.maximum(each, -1) for each in pins]).astype(np.int32)


def doubled(load: Workload, shared: Shared, block_tokens: int) -> tuple[Workload, Shared]:
    """Every request twice: itself, then its bootstrap, which shares the same prefix and makes one token at most."""

    def twice(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else np.concatenate([values, values])

    prompt, output = np.asarray(load.prompt_tokens), np.asarray(load.output_tokens)
    rows = replace(
        load,
        arrival_ns=np.concatenate([load.arrival_ns, load.arrival_ns]),
        prompt_tokens=np.concatenate([prompt, prompt]),
        output_tokens=np.concatenate([output, np.minimum(output, 1)]),
        session=twice(load.session),
    )
    of_prompt = np.minimum(shared.blocks, prompt // block_tokens).astype(np.int32)
    both = Shared(
        at=np.concatenate([shared.at, shared.at[-1] + shared.at[1:]]),
        chain=np.concatenate([shared.chain, shared.chain]),
        blocks=np.concatenate([shared.blocks, of_prompt]),
        n_identities=shared.n_identities,
    )
    return rows, both


def allocate_pools(
    spec: PoolsSpec, load: Workload, shared: Shared, follow: Followers, config: Config, rows: int
) -> State:
    """Arrays of a fresh replay; `load` and `shared` doubled."""
    ranks = spec.prefill.ranks + spec.decode.ranks
    # One worker per rank is at least as many as there are.
    wide = replace(spec.decode, workers=ranks, dp=1, blocks=max(spec.prefill.blocks, spec.decode.blocks))
    state = allocate(wide, load, shared, follow, config, rows)
    n = len(load) // 2
    state.q[:n, S.OUTPUT] = spec.decode.outputs(load.prompt_tokens[:n], load.output_tokens[:n])
    state.q[n:, S.OUTPUT] = load.output_tokens[n:]  # the decode pool's limits are not the bootstrap's
    state.r[: spec.prefill.ranks, S.FREE] = spec.prefill.blocks
    state.r[spec.prefill.ranks :, S.FREE] = spec.decode.blocks
    return state


def pools_of(spec: PoolsSpec, n: int) -> Pools:
    """The handoffs' constants and state, for `n` requests."""
    transfer, prefill, decode = spec.transfer, spec.prefill, spec.decode
    ranks, workers = prefill.ranks + decode.ranks, spec.workers
    worker_of = np.repeat(
        np.arange(workers, dtype=np.int32), [*([prefill.dp] * prefill.workers), *([decode.dp] * decode.workers)]
    )
    w = np.full((workers, P.W_WIDTH), -1, np.int64)
    w[:, P.FIRST_RANK] = np.searchsorted(worker_of, np.arange(workers))
    w[:, P.PASS_ENDED] = 0
    k = np.full((ranks, P.K_WIDTH), -1, np.int64)
    k[:, P.GIVEN_BACK] = k[:, P.RESERVATIONS] = 0
    g = np.zeros(P.G_WIDTH, np.int64)
    g[P.HELD_HEAD] = g[P.HELD_TAIL] = -1
    g[P.NEXT_TARGET] = prefill.ranks
    n_links = workers if transfer.links != "none" else 0
    g[P.FIRST_BYTE], g[P.LINKS], g[P.N_LINKS] = transfer.first_byte_ns, P.LINK_NAMES.index(transfer.links), n_links
    g[P.FAIR], g[P.FAILURES], g[P.RETRIES] = transfer.sharing == "fair", transfer.failure_threshold, transfer.retries
    g[P.TIMEOUT] = -1 if transfer.timeout_ns is None else transfer.timeout_ns
    g[P.LINKS_END] = FAR
    g[P.LAYERS] = transfer.layers
    g[P.DEADLINE_HEAD] = g[P.DEADLINE_TAIL] = -1
    h = np.full((n, P.H_WIDTH), -1, np.int64)
    if not transfer.plain:
        h = np.full((n + n_links, P.H_WIDE), -1, np.int64)
        h[:n, P.ATTEMPTS] = h[:n, P.OFF] = 0
        h[:n, P.KEY] = keys_of(transfer.seed, TRANSFER, n).view(np.int64)
        h[n:, P.MEMBERS_N] = h[n:, P.SERVED] = h[n:, P.REST] = h[n:, P.SEEN] = 0
        h[n:, P.LINK_END] = FAR
    timed = bool(transfer.bytes_per_token) and bool(transfer.bytes_per_second)
    return Pools(
        n=n,
        prefill_workers=prefill.workers,
        prefill_ranks=prefill.ranks,
        ranks=ranks,
        local_tokens=-1 if spec.local_prefill_tokens is None else spec.local_prefill_tokens,
        missing_only=int(transfer.missing_only),
        timed=int(timed),
        wired=int(not transfer.plain),
        fallback_ns=transfer.fallback_ns,
        bytes_per_token=float(transfer.bytes_per_token or 0.0),
        fixed_bytes=float(transfer.fixed_bytes),
        bytes_per_second=float(transfer.bytes_per_second or 1.0),
        ahead=int(prefill.speculation is not None and not prefill.native_drafts),
        h=h,
        k=k,
        w=w,
        g=g,
        worker_of=worker_of,
        transfers=np.zeros((n + 1, 2), np.int64),
        # Three commands a handoff; each may have been given in vain once, to a worker that began a pass then.
        obey=np.zeros(6 * n + 8, np.int32),
    )
