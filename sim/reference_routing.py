"""The executable specification of KV-aware routing (RT-4): what a router knows of each rank, and whom it picks.

A router sees no engine from inside. It hears of blocks when the group pass of their rank ends, and keeps books of its
own on what it placed where. Everything here is counted anew for every request, and nothing is fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.spec import EngineSpec, Routing

if TYPE_CHECKING:
    from sim.reference import Rank, Request, Tables

Key = tuple[int, int]  # a block: (-1, identity), or (request, place) where requests are not known to share any


@dataclass
class Books:
    """What the router knows of one rank."""

    published: set[int] = field(default_factory=set)  # identities of the blocks that could be hit, as last heard
    uncached: dict[int, int] = field(default_factory=dict)  # request without a token yet -> tokens seen uncached
    blocks: dict[int, list[Key]] = field(default_factory=dict)  # request not ended -> full blocks of its prompt

    def prefilled(self, request: Request) -> None:
        """Its first token is there."""
        self.uncached.pop(request.index, None)

    def ended(self, request: Request) -> None:
        self.prefilled(request)
        self.blocks.pop(request.index, None)


class Router:
    """In front of workers that do both: prompts to compute, less what is cached, and distinct blocks in use."""

    def __init__(self, routing: Routing, spec: EngineSpec, out: Tables) -> None:
        self.routing, self.spec, self.out = routing, spec, out

    def choose(self, request: Request, ranks: Sequence[Rank]) -> int:
        """Where in `ranks`: the least cost; then the fewest unfinished requests; then the first."""
        known = [(self.cost(request, rank), len(books_of(rank).blocks), i) for i, rank in enumerate(ranks)]
        return min(known)[2]

    def cost(self, request: Request, rank: Rank) -> float:
        books = books_of(rank)
        held = set(self.blocks_of(request)).union(*books.blocks.values())  # with this request on it
        return self.routing.prefill_load_scale * self.prefill_blocks(request, rank) + len(held)

    def prefill_blocks(self, request: Request, rank: Rank) -> float:
        tokens = sum(books_of(rank).uncached.values()) + request.prompt
        return tokens / self.spec.block_tokens - self.routing.overlap_credit * self.overlap(request, rank)

    def overlap(self, request: Request, rank: Rank) -> int:
        """Leading full blocks of the prompt that the rank is known to hold."""
        count = 0
        while count < request.prompt // self.spec.block_tokens:
            if self.out.identity(request, count) not in books_of(rank).published:
                break
            count += 1
        return count

    def blocks_of(self, request: Request) -> list[Key]:
        """Without prefix caching nobody knows which blocks are equal."""
        full, shares = request.prompt // self.spec.block_tokens, self.spec.prefix_caching
        return [(-1, self.out.identity(request, i)) if shares else (request.index, i) for i in range(full)]

    def place(self, request: Request, rank: Rank) -> None:
        """Into the books."""
        books = books_of(rank)
        books.uncached[request.index] = request.prompt - self.overlap(request, rank) * self.spec.block_tokens
        books.blocks[request.index] = self.blocks_of(request)


class PrefillRouter(Router):
    """In front of a prefill pool: nothing is decoded there, so only prompts count."""

    def cost(self, request: Request, rank: Rank) -> float:
        return self.routing.prefill_load_scale * self.prefill_blocks(request, rank)


class DecodeRouter(Router):
    """In front of a decode pool: prompts come computed, overlap is ignored, and every request counts in full."""

    def cost(self, request: Request, rank: Rank) -> float:
        return float(sum(len(blocks) for blocks in books_of(rank).blocks.values()))

    def place(self, request: Request, rank: Rank) -> None:
        full = request.prompt // self.spec.block_tokens
        books_of(rank).blocks[request.index] = [(request.index, i) for i in range(full)]


def books_of(rank: Rank) -> Books:
    if rank.books is None:
        rank.books = Books()
    return rank.books
