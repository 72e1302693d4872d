"""Table `baselines`: what was accepted as reference, by whom and why. A copy of the history kept in `baselines/`."""

from perf_db.schema import Column, Dtype, Table

BASELINES = Table(
    name="baselines",
    row_is="one acceptance of a run as a baseline",
    key=("baseline", "entry_no"),
    columns=(
        Column("baseline", Dtype.TEXT, "", "name of the baseline"),
        Column("entry_no", Dtype.INT32, "", "acceptance of this baseline, from 0"),
        Column("accepted_at", Dtype.TIMESTAMP, "UTC", "host time"),
        Column("author", Dtype.TEXT, "", "who accepted it"),
        Column("reason", Dtype.TEXT, "", "why, in the author's words"),
        Column("run_id", Dtype.TEXT, "", "the accepted run"),
        Column("replay_id", Dtype.TEXT, "", "what it replayed"),
        Column("result_digest", Dtype.TEXT, "", "digest of its result tables"),
        Column(
            "input_change", Dtype.TEXT, "", "inputs that differ from the acceptance before; null for the first", True
        ),
        Column("mechanism", Dtype.TEXT, "", "why the rows differ; null if they do not, or for the first", True),
        Column("detail", Dtype.TEXT, "", "the mechanism in a sentence", True),
        Column("ttft_change_ns", Dtype.INT64, "ns", "change of the TTFT, summed over requests", True),
        Column("e2e_change_ns", Dtype.INT64, "ns", "change of the E2E, summed over requests", True),
    ),
)
