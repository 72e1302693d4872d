"""Table `passes`: every forward pass of every rank. Idle ranks of a group have no row."""

from perf_db.schema import Column, Dtype, Table

PASSES = Table(
    name="passes",
    row_is="one forward pass of one rank",
    key=("worker", "dp_rank", "pass_no"),
    columns=(
        Column("worker", Dtype.INT32, "", "worker"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("pass_no", Dtype.INT32, "", "pass of the rank, from 0"),
        Column("group_pass_no", Dtype.INT32, "", "pass of the worker; its ranks start passes together"),
        Column("chosen_ns", Dtype.INT64, "ns", "when the batch was chosen; before the start with async scheduling"),
        Column("start_ns", Dtype.INT64, "ns", "start"),
        Column("prefill_ns", Dtype.INT64, "ns", "price of the prefill part"),
        Column("decode_ns", Dtype.INT64, "ns", "price of the decode part"),
        Column("end_ns", Dtype.INT64, "ns", "when its tokens are visible: the end of the slowest rank of the group"),
        Column(
            "n_prefill",
            Dtype.INT32,
            "requests",
            "requests computing prompt tokens; 0 in a decode pool, which computes some again at no price",
        ),
        Column("prefill_tokens", Dtype.INT32, "tokens", "prompt tokens these computed"),
        Column("prefill_kv_tokens", Dtype.INT64, "tokens", "context those requests already had, summed"),
        Column("n_decode", Dtype.INT32, "requests", "decoding requests"),
        Column(
            "decode_kv_tokens", Dtype.INT64, "tokens", "context of the decoding requests, newest token included, summed"
        ),
        Column("scheduled_tokens", Dtype.INT32, "tokens", "tokens computed, recomputed output included"),
        Column("chunk_tokens", Dtype.INT32, "tokens", "those computed by rows of `chunks`"),
        Column("n_tokens", Dtype.INT32, "tokens", "output tokens made"),
        Column(
            "n_continuing",
            Dtype.INT32,
            "requests",
            "requests that made tokens here and in the rank's pass before this one",
        ),
        Column("n_admitted", Dtype.INT32, "requests", "requests admitted"),
        Column("n_preempted", Dtype.INT32, "requests", "requests preempted since the pass before"),
        Column("n_completed", Dtype.INT32, "requests", "requests that ended with this pass"),
        Column("n_running", Dtype.INT32, "requests", "running requests after the choice"),
        Column("n_waiting", Dtype.INT32, "requests", "requests waiting for the first time, after the choice"),
        Column("n_waiting_preempted", Dtype.INT32, "requests", "preempted requests waiting, after the choice"),
        Column("active_blocks", Dtype.INT32, "blocks", "KV blocks in use after the choice"),
        Column(
            "cached_blocks", Dtype.INT32, "blocks", "unused KV blocks that a prefix can still hit, after the choice"
        ),
        Column("free_blocks", Dtype.INT32, "blocks", "KV blocks holding nothing, after the choice"),
        Column("prefill_cell", Dtype.INT32, "", "performance grid cell of the prefill lookup", nullable=True),
        Column("decode_cell", Dtype.INT32, "", "performance grid cell of the decode lookup", nullable=True),
        Column("n_rounds", Dtype.INT32, "requests", "requests that verified drafts"),
        Column("n_drafts", Dtype.INT32, "tokens", "drafts they verified"),
        Column("n_accepted", Dtype.INT32, "tokens", "drafts accepted, those beyond the end of an output included"),
        Column("n_bursts", Dtype.INT32, "requests", "requests that made tokens"),
    ),
)
