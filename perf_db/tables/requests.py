"""Table `requests`: what one replay did to each request."""

from perf_db.schema import Column, Dtype, Table

STATUS = ("completed", "rejected", "unfinished", "failed", "canceled")
REASONS = (
    *("", "prompt_reaches_max_model_len", "exceeds_kv_pool", "lookahead_exceeds_kv_pool"),
    *("transfer_failed", "handoff_timeout"),
)

REQUESTS = Table(
    name="requests",
    row_is="one request of the trace, in the order they were replayed",
    key=("request_id",),
    columns=(
        Column("request_id", Dtype.INT32, "", "position of its row in the source, from 0, quarantined rows included"),
        Column("external_id", Dtype.TEXT, "", "the source's own name of the request", nullable=True),
        Column(
            "source_line", Dtype.INT32, "", "line of the source file, from 1; null for made-up traffic", nullable=True
        ),
        Column("session_id", Dtype.TEXT, "", "session it belongs to, as the source names it", nullable=True),
        Column("turn", Dtype.INT32, "", "turn within its session, from 0", nullable=True),
        Column("worker", Dtype.INT32, "", "worker it was sent to; null if it never arrived", nullable=True),
        Column(
            "dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker; null if it never arrived", nullable=True
        ),
        Column(
            "arrival_ns",
            Dtype.INT64,
            "ns",
            "arrival, at the front end where there is one; null if the replay stopped before it",
            nullable=True,
        ),
        Column("admitted_ns", Dtype.INT64, "ns", "start of the pass of its first admission", nullable=True),
        Column(
            "first_token_ns",
            Dtype.INT64,
            "ns",
            "first output token; null if none was made. With separate pools it is a decode worker's, after waiting for "
            "room, the transfer and a decode pass; handoffs.held_ns has the end of the prefill, and runs.ttft_ends "
            "tells which of the two TTFT counts to",
            nullable=True,
        ),
        Column("second_token_ns", Dtype.INT64, "ns", "second output token; null below two", nullable=True),
        Column("last_token_ns", Dtype.INT64, "ns", "latest output token; null if none was made", nullable=True),
        Column(
            "end_ns",
            Dtype.INT64,
            "ns",
            "completion, rejection, failure or cancellation; null if unfinished",
            nullable=True,
        ),
        Column("status", Dtype.TEXT, "", "how it ended", values=STATUS, digested=4),
        Column(
            "reason",
            Dtype.TEXT,
            "",
            "why it was rejected, failed or canceled; null otherwise",
            nullable=True,
            values=REASONS,
            digested=4,
        ),
        Column("prompt_tokens", Dtype.INT32, "tokens", "length of the prompt"),
        Column("requested_tokens", Dtype.INT32, "tokens", "output asked for"),
        Column("output_tokens", Dtype.INT32, "tokens", "output made"),
        Column(
            "cached_tokens_first",
            Dtype.INT32,
            "tokens",
            "prefix found in the KV cache at its first admission; null if never admitted",
            nullable=True,
        ),
        Column(
            "cached_tokens_max",
            Dtype.INT32,
            "tokens",
            "most prefix found at any of its admissions; null if never admitted",
            nullable=True,
        ),
        Column("n_admissions", Dtype.INT32, "admissions", "times it was admitted, after preemptions included"),
        Column("n_preemptions", Dtype.INT32, "preemptions", "times it lost its KV blocks"),
        Column("n_spans", Dtype.INT32, "spans", "stretches of consecutive passes in which it made tokens"),
    ),
)
