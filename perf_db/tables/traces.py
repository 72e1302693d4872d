"""Table `traces`: requests as read from a source, before any replay; what every trace format is turned into."""

from perf_db.schema import Column, Dtype, Table

TRACES = Table(
    name="traces",
    row_is="one usable row of a trace",
    key=("request_id",),
    columns=(
        Column("request_id", Dtype.INT32, "", "position of its row in the source, from 0, quarantined rows included"),
        Column("external_id", Dtype.TEXT, "", "the source's own name of the request", nullable=True),
        Column(
            "source_line", Dtype.INT32, "", "line of the source file, from 1; null for made-up traffic", nullable=True
        ),
        Column("session_id", Dtype.TEXT, "", "session it belongs to, as the source names it", nullable=True),
        Column("turn", Dtype.INT32, "", "turn within its session, from 0", nullable=True),
        Column("pinned_rank", Dtype.INT32, "", "attention-DP rank that it is pinned to", nullable=True),
        Column("arrival_ns", Dtype.INT64, "ns", "arrival since the start of the trace"),
        Column("delay_ns", Dtype.INT64, "ns", "think time before a later turn of a session", nullable=True),
        Column(
            "not_before_ns",
            Dtype.INT64,
            "ns",
            "earliest arrival of a request that does not open its session, after the arrival of the one that does",
            nullable=True,
        ),
        Column(
            "wait_on",
            Dtype.INT64_LIST,
            "",
            "request_id of the requests of its session that it waits for; null where it just follows the turn before",
            nullable=True,
        ),
        Column(
            "wait_delay_ns", Dtype.INT64_LIST, "ns", "time between each of those and its own arrival", nullable=True
        ),
        Column(
            "wait_on_dispatch",
            Dtype.INT64_LIST,
            "",
            "of each of those: 1 if it waits for its arrival, 0 for its end",
            nullable=True,
        ),
        Column("prompt_tokens", Dtype.INT32, "tokens", "length of the prompt"),
        Column("output_tokens", Dtype.INT32, "tokens", "output asked for"),
        Column(
            "hash_ids",
            Dtype.INT64_LIST,
            "",
            "prefix identity as the source gives it, one id per block from the first token; null if none is known",
            nullable=True,
        ),
        Column(
            "hashed_tokens",
            Dtype.INT32,
            "tokens",
            "leading tokens that the ids describe: the prompt, or its whole blocks only, or generated tokens, too",
            nullable=True,
        ),
        Column("hash_block_tokens", Dtype.INT32, "tokens", "tokens that one hash id stands for", nullable=True),
    ),
)
