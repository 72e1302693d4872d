"""Table `chunks`: the computing that was not a plain decode."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.admissions import KINDS

CHUNKS = Table(
    name="chunks",
    row_is="one request in one pass that computed anything but a plain decode (its newest token, and drafts) for it, "
    "or computed it in vain",
    key=("request_id", "worker", "dp_rank", "pass_no"),
    columns=(
        Column("request_id", Dtype.INT32, "", "whose tokens"),
        Column("worker", Dtype.INT32, "", "worker"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("pass_no", Dtype.INT32, "", "pass of the rank"),
        Column("n_tokens", Dtype.INT32, "tokens", "tokens computed"),
        Column("computed_before", Dtype.INT32, "tokens", "context it already had, prefix found in the cache included"),
        Column("prompt_tokens", Dtype.INT32, "tokens", "how many of n_tokens belong to the prompt"),
        Column("kind", Dtype.TEXT, "", "what the request was when the pass was chosen", values=KINDS),
        Column(
            "cached_tokens",
            Dtype.INT32,
            "tokens",
            "prefix found in the KV cache at this admission; null if the pass did not admit it",
            nullable=True,
        ),
        Column("n_drafts", Dtype.INT32, "tokens", "how many of n_tokens are drafts, or padding in their place"),
    ),
)
