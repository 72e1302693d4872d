"""Table `admissions`: entries into the running set."""

from perf_db.schema import Column, Dtype, Table

KINDS = ("new", "resumed", "running")

ADMISSIONS = Table(
    name="admissions",
    row_is="one admission of a request: the first one, or a return after a preemption",
    key=("request_id", "admission_no"),
    columns=(
        Column("request_id", Dtype.INT32, "", "who was admitted"),
        Column("admission_no", Dtype.INT32, "", "admission of the request, from 0"),
        Column("worker", Dtype.INT32, "", "worker"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("pass_no", Dtype.INT32, "", "the rank's pass it was admitted to"),
        Column("chosen_ns", Dtype.INT64, "ns", "when the batch was chosen"),
        Column("start_ns", Dtype.INT64, "ns", "start of the pass"),
        Column("cached_tokens", Dtype.INT32, "tokens", "prefix found in the KV cache"),
        Column("kind", Dtype.TEXT, "", "first time or after a preemption", values=KINDS),
        Column(
            "order_no", Dtype.INT32, "", "place in the rank's running order; later admissions stand behind earlier ones"
        ),
    ),
)
