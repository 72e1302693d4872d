"""Table `spans`: when tokens were made, without a row per token."""

from perf_db.schema import Column, Dtype, Table

SPANS = Table(
    name="spans",
    row_is="one stretch of consecutive passes in which a request made a token each, or more than one with speculative "
    "decoding; in the order the spans end",
    key=("request_id", "span_no"),
    columns=(
        Column("request_id", Dtype.INT32, "", "whose tokens"),
        Column("span_no", Dtype.INT32, "", "span of the request, from 0"),
        Column("worker", Dtype.INT32, "", "worker it ran on"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("first_pass", Dtype.INT32, "", "the rank's pass that made the span's first token"),
        Column("n_tokens", Dtype.INT32, "tokens", "its tokens"),
        Column(
            "n_passes",
            Dtype.INT32,
            "passes",
            "its passes, first_pass and those after it; as many as tokens without speculative decoding, and then token "
            "i of the span was made in pass first_pass + i",
        ),
        Column("first_token_no", Dtype.INT32, "", "place of its first token among the request's tokens, from 0"),
    ),
)
