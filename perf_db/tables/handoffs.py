"""Table `handoffs`: requests on their way from a prefill to a decode worker. Replays of one pool have no rows here."""

from perf_db.schema import Column, Dtype, Table

OUTCOMES = ("", "activated", "never_fits", "transfer_failed", "timed_out")

HANDOFFS = Table(
    name="handoffs",
    row_is="one request whose prompt a prefill worker computed, on its way to a decode worker",
    key=("request_id",),
    columns=(
        Column("request_id", Dtype.INT32, "", "whose KV"),
        Column("source_worker", Dtype.INT32, "", "prefill worker"),
        Column("source_rank", Dtype.INT32, "", "attention-DP rank inside the prefill worker"),
        Column("worker", Dtype.INT32, "", "decode worker; null where none could ever hold the prompt", nullable=True),
        Column("dp_rank", Dtype.INT32, "", "attention-DP rank inside the decode worker", nullable=True),
        Column("prefill_admitted_ns", Dtype.INT64, "ns", "start of the prefill pass that admitted it first"),
        Column(
            "held_ns",
            Dtype.INT64,
            "ns",
            "prompt computed; from now on the source holds its blocks. Where runs.ttft_ends is `prefill`, TTFT counts "
            "to here",
        ),
        Column(
            "reserved_ns",
            Dtype.INT64,
            "ns",
            "destination blocks taken; null not yet. With overlap it may come before held_ns",
            nullable=True,
        ),
        Column(
            "transferred_ns",
            Dtype.INT64,
            "ns",
            "end of the transfer; null not yet. Where transfers neither slow each other nor fail, it is foreseen when "
            "one begins",
            nullable=True,
        ),
        Column(
            "activated_ns",
            Dtype.INT64,
            "ns",
            "the destination takes note, at the first pass boundary after the transfer; null not yet",
            nullable=True,
        ),
        Column("decode_admitted_ns", Dtype.INT64, "ns", "start of its first decode pass; null not yet", nullable=True),
        Column("released_ns", Dtype.INT64, "ns", "the source gave its blocks back; null not yet", nullable=True),
        Column("sent_tokens", Dtype.INT32, "tokens", "whose KV was sent; null if no transfer began", nullable=True),
        Column(
            "sent_bytes",
            Dtype.INT64,
            "bytes",
            "KV and fixed state that each attempt sends; null if none began or the size is unknown",
            nullable=True,
        ),
        Column(
            "queued_ns",
            Dtype.INT64,
            "ns",
            "its last attempt joins the link: first_byte_ms after it was asked for and, with overlap, when its first "
            "layer is computed; null if none",
            nullable=True,
        ),
        Column(
            "began_ns",
            Dtype.INT64,
            "ns",
            "its last attempt has the link, or a share of it; null not yet",
            nullable=True,
        ),
        Column("attempts", Dtype.INT32, "attempts", "transfers asked for, the first included"),
        Column(
            "withdrawn_ns",
            Dtype.INT64,
            "ns",
            "the destination gave back the blocks of a handoff that was not to be; null for all others",
            nullable=True,
        ),
        Column("outcome", Dtype.TEXT, "", "how it ended; null not yet", nullable=True, values=OUTCOMES),
    ),
)
