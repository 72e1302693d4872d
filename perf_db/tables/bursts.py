"""Table `bursts`: tokens per pass of replays with speculative decoding. Other replays have no rows here."""

from perf_db.schema import Column, Dtype, Table

BURSTS = Table(
    name="bursts",
    row_is="up to 16 passes of a span in a replay with speculative decoding, where a pass may make several tokens",
    key=("request_id", "span_no", "first_pass"),
    columns=(
        Column("request_id", Dtype.INT32, "", "whose tokens"),
        Column("span_no", Dtype.INT32, "", "span of the request that these passes belong to"),
        Column("worker", Dtype.INT32, "", "worker it ran on"),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the worker"),
        Column("first_pass", Dtype.INT32, "", "the rank's pass that made the first of these tokens"),
        Column("n_passes", Dtype.INT32, "passes", "passes, 1 to 16"),
        Column("n_tokens", Dtype.INT32, "tokens", "tokens of all these passes"),
        Column("first_token_no", Dtype.INT32, "", "place of the first token among the request's tokens, from 0"),
        Column(
            "tokens_packed",
            Dtype.INT64,
            "",
            "tokens made per pass, four bits each, the first pass lowest: pass i made (tokens_packed >> 4 * i) & 15",
        ),
        Column(
            "drafts_packed",
            Dtype.INT64,
            "",
            "draft tokens computed per pass, packed likewise, padding included; 0 where drafts are not scheduled as "
            "tokens (profiles parity and trtllm)",
        ),
    ),
)
