"""What a replay hands back: numpy columns per table. Names, order and meaning are fixed here for `sim`.

`perf_db.tables` declares the same columns with units and meanings; an architecture test holds the two together.
All columns are int64; -1 stands for "none" where a value may be absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

# Status codes of requests.status.
COMPLETED, REJECTED, UNFINISHED, FAILED, CANCELED = range(5)
STATUS_NAMES = ("completed", "rejected", "unfinished", "failed", "canceled")

# Reason codes of requests.reason.
NO_REASON, PROMPT_AT_LIMIT, EXCEEDS_POOL, LOOKAHEAD_EXCEEDS_POOL, TRANSFER_FAILED, HANDOFF_TIMEOUT = range(6)
REASON_NAMES = (
    *("", "prompt_reaches_max_model_len", "exceeds_kv_pool", "lookahead_exceeds_kv_pool"),
    *("transfer_failed", "handoff_timeout"),
)

# Codes of handoffs.outcome.
UNDER_WAY, ACTIVATED, NEVER_FITS, GAVE_UP, TIMED_OUT = range(5)
OUTCOME_NAMES = ("", "activated", "never_fits", "transfer_failed", "timed_out")

# Kind codes of admissions.kind and chunks.kind.
KIND_NEW, KIND_RESUMED, KIND_RUNNING = 0, 1, 2
KIND_NAMES = ("new", "resumed", "running")

# Codes of evidence.role, evidence.phase and evidence.source. Parts of a mixed pass are phases of their own where the
# timing model prices it as one.
ROLE_NAMES = ("aggregated", "prefill", "decode")
PHASE_NAMES = ("prefill", "decode", "mixed_prefill", "mixed_decode")
SOURCE_NAMES = ("", "measured", "interpolated", "extrapolated")

REQUESTS = (
    "request",  # index into the workload
    "worker",
    "dp_rank",
    "arrival_ns",
    "admitted_ns",  # start of the pass of the first admission, -1 none
    "first_token_ns",  # -1 none
    "second_token_ns",  # -1 none
    "last_token_ns",  # -1 none
    "end_ns",  # completion or rejection, -1 unfinished
    "status",
    "reason",
    "prompt_tokens",
    "requested_tokens",  # output asked for
    "output_tokens",  # output made
    "cached_tokens_first",  # prefix tokens found at the first admission, -1 never admitted
    "cached_tokens_max",  # the most over its admissions, -1 never admitted
    "n_admissions",
    "n_preemptions",
    "n_spans",
)
SPANS = (
    "request",
    "span_no",
    "worker",
    "dp_rank",
    "first_pass",  # rank's pass number of the span's first token
    "n_tokens",  # all its tokens
    "n_passes",  # at least one token in each; as many as tokens where none made more than one (see BURSTS otherwise)
    "first_token_no",  # ordinal of its first token among the request's tokens, from 0
)
BURSTS = (  # stretch of at most 16 passes of a span; a replay with speculative decoding has them for all its spans
    "request",
    "span_no",
    "worker",
    "dp_rank",
    "first_pass",
    "n_passes",
    "n_tokens",
    "first_token_no",
    "tokens_packed",  # four bits per pass, the first lowest: tokens made
    "drafts_packed",  # likewise: draft tokens computed, padding included; 0 where drafts are not scheduled as tokens
)
PASSES = (
    "worker",
    "dp_rank",
    "pass_no",
    "group_pass_no",
    "chosen_ns",
    "start_ns",
    "prefill_ns",
    "decode_ns",
    "end_ns",  # when its results are visible: the slowest rank of the group
    "n_prefill",  # np: requests computing prompt tokens
    "prefill_tokens",  # Tp: prompt tokens computed
    "prefill_kv_tokens",  # KVp: prompt tokens present before, summed over those requests
    "n_decode",  # B
    "decode_kv_tokens",  # KV: context summed over decoding requests, the newest token included
    "scheduled_tokens",  # tokens computed, recomputed output included
    "chunk_tokens",  # those computed by rows of `chunks`
    "n_tokens",  # output tokens made
    "n_continuing",  # requests that made a token in this pass and in the rank's pass before: weight of this pass's ITL
    "n_admitted",
    "n_preempted",  # at this choice, and at empty choices since the pass before
    "n_completed",
    "n_running",  # after the choice
    "n_waiting",  # after the choice: fresh requests
    "n_waiting_preempted",  # after the choice: preempted requests
    "active_blocks",  # after the choice
    "cached_blocks",  # after the choice: unreferenced blocks that can still be hit
    "free_blocks",  # after the choice: anonymous blocks
    "prefill_cell",  # performance grid cell of the lookup, -1 none
    "decode_cell",
    "n_rounds",  # requests that verified drafts
    "n_drafts",  # drafts they verified
    "n_accepted",  # drafts accepted, those beyond the end of an output included
    "n_bursts",  # requests that made tokens
)
ADMISSIONS = (
    "request",
    "admission_no",
    "worker",
    "dp_rank",
    "pass_no",
    "chosen_ns",
    "start_ns",  # start of the pass
    "cached_tokens",
    "kind",
    "order_no",  # running order on the rank: later admissions stand behind earlier ones
)
CHUNKS = (  # request x pass: anything but a plain decode (one token, and drafts) was computed, or no token came of it
    "request",
    "worker",
    "dp_rank",
    "pass_no",
    "n_tokens",
    "computed_before",
    "prompt_tokens",  # how many of n_tokens are prompt
    "kind",
    "cached_tokens",  # at an admission, else -1
    "n_drafts",  # how many of n_tokens are drafts or their padding
)
PRESSURE = (
    "request",  # the victim
    "worker",
    "dp_rank",
    "pass_no",  # pass being chosen (or the next one that runs, when this choice came out empty)
    "chosen_ns",
    "asker",  # request whose allocation failed
    "blocks_released",
    "tokens_lost",  # computed tokens the victim gave up
    "n_running",  # after
    "n_waiting",  # after, preempted ones included
    "active_blocks",  # after
    "reserving",  # 1: it made room for a burst of accepted drafts (8.4); 0: for tokens to compute
)
ACCEPTANCE = (  # request that verified drafts; rounds in passes that also computed its prompt are left out (8.5)
    "request",
    "n_rounds",
    "n_drafts",
    "accepted_0",  # rounds in which no draft was accepted
    "accepted_1",
    "accepted_2",
    "accepted_3",
    "accepted_4",
    "accepted_5",
)
EVIDENCE = (
    "role",  # of the workers, code of ROLE_NAMES
    "phase",  # code of PHASE_NAMES
    "cell",
    "extrapolated",  # 0/1
    "source",  # code of SOURCE_NAMES; 0 for models that are no table of a measured deployment
    "correction_bin",  # of the tuned snapshot's store for this kind of pass, -1 none applied
    "n_lookups",
    "total_ns",  # after speed-ups and rounding
    "first_pass",  # global order is by (worker, dp_rank, pass_no); this is the rank pass of the first lookup
    "min_x",
    "max_x",
    "min_y",
    "max_y",
    "max_millioctaves",  # farthest lookup from the measured data, thousandths of an octave; 0 inside
)
# Coordinates of the first lookup of each row of `evidence`: the work of its pass. Beside the tables, not in them.
FIRST_LOOKUP = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")
# What counting lookups reads of a pass, in the order in which it reads it; codes stand for the cells.
LOOKED_UP = (*FIRST_LOOKUP, "prefill_ns", "decode_ns", "pass_no", "prefill_cell", "decode_cell")

HANDOFFS = (  # request x handover from a prefill to a decode worker; rows only with pools of their own
    "request",
    "source_worker",
    "source_rank",
    "worker",  # of the decode pool, -1 where it could never go
    "dp_rank",
    "prefill_admitted_ns",
    "held_ns",  # prompt computed; the source holds its blocks
    "reserved_ns",  # destination blocks taken, transfer begins; -1 not yet
    "transferred_ns",
    "activated_ns",  # the destination knows: first pass boundary after the transfer
    "decode_admitted_ns",
    "released_ns",  # the source gave its blocks back
    "sent_tokens",  # whose KV was sent
    "sent_bytes",  # by one attempt, -1 unknown
    "queued_ns",  # its last attempt joined the link, the first byte's latency over
    "began_ns",  # its last attempt had the link, or a share of it
    "attempts",
    "withdrawn_ns",  # the destination gave back the blocks of a handoff that was not to be, -1 for others
    "outcome",  # code of OUTCOME_NAMES
)

TABLES = {
    "requests": REQUESTS,
    "spans": SPANS,
    "bursts": BURSTS,
    "passes": PASSES,
    "admissions": ADMISSIONS,
    "chunks": CHUNKS,
    "pressure": PRESSURE,
    "acceptance": ACCEPTANCE,
    "handoffs": HANDOFFS,
    "evidence": EVIDENCE,
}

BURST_PASSES = 16  # passes in one row of BURSTS
MOST_DRAFTS = 5  # drafts in one round

Columns = dict[str, np.ndarray]


class Sink(Protocol):
    """Receives finished rows, chunk by chunk, in a fixed order per table."""

    def rows(self, table: str, columns: Columns) -> None:
        """Take int64 columns of equal length; the arrays belong to the sink from now on."""


class MemorySink:
    """Keeps everything; `table(name)` concatenates."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Columns]] = {name: [] for name in TABLES}

    def rows(self, table: str, columns: Columns) -> None:
        self._parts[table].append(columns)

    def table(self, name: str) -> Columns:
        parts = self._parts[name]
        if not parts:
            return {column: np.zeros(0, np.int64) for column in TABLES[name]}
        return {column: np.concatenate([p[column] for p in parts]) for column in TABLES[name]}


@dataclass
class Outcome:
    """Facts of a whole replay that are not rows.

    Attributes:
        end_ns: virtual time of the last event.
        engine_ms: host time spent between requests in memory and results in memory, without what the sink did with
            them; not part of any result digest.
        latencies: derived columns needed for metrics without reading the tables back (see `sim.metrics`).
        lookups: the evidence table and, for array timings, the work of the first lookup of each row (FIRST_LOOKUP).
    """

    end_ns: int
    engine_ms: float
    n_passes: int
    n_requests: int
    peak_active_blocks: int
    latencies: dict[str, np.ndarray] = field(default_factory=dict)
    lookups: dict[str, np.ndarray] = field(default_factory=dict)
