"""Table `pressure`: preemptions, and what they cost."""

from perf_db.schema import Column, Dtype, Table

PRESSURE = Table(
    name="pressure",
    row_is="one preemption, in the order they happened",
    key=("request_id", "worker", "dp_rank", "pass_no", "chosen_ns"),
    columns=(
        Column("request_id", Dtype.INT32, "", "the victim"),
        Column("worker", Dtype.INT32, "", "worker"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("pass_no", Dtype.INT32, "", "pass being chosen, or the next that runs if this choice came out empty"),
        Column("chosen_ns", Dtype.INT64, "ns", "when"),
        Column("asker_id", Dtype.INT32, "", "request_id of the one that found no block"),
        Column("blocks_released", Dtype.INT32, "blocks", "KV blocks the victim gave up"),
        Column("tokens_lost", Dtype.INT32, "tokens", "computed tokens the victim gave up"),
        Column("n_running", Dtype.INT32, "requests", "running requests afterwards"),
        Column("n_waiting", Dtype.INT32, "requests", "waiting requests afterwards, preempted ones included"),
        Column("active_blocks", Dtype.INT32, "blocks", "KV blocks in use afterwards"),
        Column("reserving", Dtype.INT32, "", "1: for tokens that drafts may bring; 0: for tokens to be computed"),
    ),
)
