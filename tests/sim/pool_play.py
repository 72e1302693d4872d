"""The kernels of `sim/kv/pool.py` against the reference's pool, move by move. Needs a process without compilation.

Replays cut a hit only where a rule says so. Here hits are cut anywhere, so that runs overlap and break into pieces.
"""

from __future__ import annotations

import random

import numpy as np

import sim.state as S
from sim.inputs import Workload
from sim.kv import pool
from sim.plays import followers
from sim.prefix import share
from sim.reference import Block, Pool, Tables
from sim.setup import allocate, config_of, inputs_of
from sim.spec import EngineSpec


def play(seeds: range) -> None:
    for seed in seeds:
        _Game(random.Random(seed)).play(60)


class _Game:
    """A few requests that come, grow, are thrown out and end, on both pools."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, n, self.size = rng, rng.randint(1, 5), rng.randint(4, 14)
        shared = rng.randint(0, 3)  # leading blocks that all of them have
        load = Workload(
            np.zeros(n, np.int64),
            np.full(n, 12),
            np.zeros(n, np.int64),
            hash_offsets=np.arange(n + 1) * shared,
            hash_ids=np.tile(np.arange(shared), n),
            hash_block_tokens=1,
        )
        spec = EngineSpec(block_tokens=1, blocks=self.size)
        found, config = share(load, 1), config_of(spec, load)
        follow = followers(load)
        self.inp, self.state = inputs_of(load, found, follow), allocate(spec, load, found, follow, config, 8)
        self.state.q[:, S.RANK] = 0
        self.plain, self.chains = Pool(self.size), Tables(load, spec)
        self.asks = [_Ask(i) for i in range(n)]

    def play(self, moves: int) -> None:
        for _ in range(moves):
            ask = self.rng.choice(self.asks)
            if ask.ended:
                continue
            if not ask.runs:
                self.admit(ask)
            else:
                self.rng.choice([self.grow, self.grow, self.leave])(ask)
            self.compare()

    def hit(self, ask: _Ask) -> list[Block]:
        found: list[Block] = []
        while len(found) < 12 and (copies := self.plain.copies.get(self.chains.identity(ask, len(found)))):
            found.append(copies[0])
        return found

    def admit(self, ask: _Ask) -> None:
        hit = self.hit(ask)
        hit = hit[: self.rng.randint(0, len(hit))] if self.rng.random() < 0.5 else hit
        for block in hit:
            self.plain.pin(block)
        pool.pin(self.inp, self.state, ask.index, len(hit))
        ask.blocks, ask.closed, ask.runs = hit, len(hit), True

    def grow(self, ask: _Ask) -> None:
        count = self.rng.randint(1, 3)
        if count > self.plain.available or len(ask.blocks) + count > 12:
            return
        ask.blocks += self.plain.take(count)
        pool.take(self.state, 0, count)
        closed = self.rng.randint(ask.closed, len(ask.blocks))
        for i in range(ask.closed, closed):
            self.plain.close(ask.blocks[i], self.chains.identity(ask, i))
        pool.close_shared(self.inp, self.state, ask.index, closed)
        ask.closed = closed

    def leave(self, ask: _Ask) -> None:
        self.plain.release(ask.blocks)
        ask.ended = self.rng.random() < 0.15
        pool.release(self.inp, self.state, ask.index, len(ask.blocks), ask.closed, ask.ended)
        self.state.q[ask.index, S.N_PREEMPTED] += 1
        ask.blocks, ask.closed, ask.runs = [], 0, False

    def compare(self) -> None:
        rank = self.state.r[0]
        assert (rank[S.FREE], rank[S.INACTIVE]) == (self.plain.free, len(self.plain.cached))
        for ask in self.asks:
            if not ask.runs and not ask.ended:
                hit = self.hit(ask)
                used = sum(block.users > 0 for block in hit)
                assert pool.lookup(self.inp, self.state, ask.index, 12) == (len(hit), used)


class _Ask:
    """What the chains of the reference want to know of a request, and its lease."""

    def __init__(self, index: int) -> None:
        self.index, self.prompt, self.chain = index, 12, []
        self.blocks: list[Block] = []
        self.closed, self.runs, self.ended = 0, False, False
