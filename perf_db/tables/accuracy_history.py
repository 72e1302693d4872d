"""Table `accuracy_history`: how well a snapshot did on new truth, each time it was asked."""

from perf_db.schema import Column, Dtype, Table

ACCURACY_HISTORY = Table(
    name="accuracy_history",
    row_is="one metric of one drift check",
    key=("check_id", "metric"),
    columns=(
        Column("check_id", Dtype.TEXT, "", "the check; sorts by time"),
        Column("checked_at", Dtype.TIMESTAMP, "UTC", "host time of the check"),
        Column("snapshot", Dtype.TEXT, "", "digest of the snapshot that was checked"),
        Column("truth_set", Dtype.TEXT, "", "the new truth"),
        Column("metric", Dtype.TEXT, "", "as in ground_truth"),
        Column("n_rows", Dtype.INT64, "rows", "rows of the new truth"),
        Column("n_answered", Dtype.INT64, "rows", "rows with a prediction"),
        Column("error", Dtype.FLOAT64, "share", "MAPE on the new truth"),
        Column("reference_error", Dtype.FLOAT64, "share", "held-out error when the snapshot was made"),
        Column("alert", Dtype.BOOL, "", "worse by two points and by a tenth of the reference"),
    ),
)
