"""Table `accuracy`: predictions beside what was measured."""

from perf_db.schema import Column, Dtype, Table

ACCURACY = Table(
    name="accuracy",
    row_is="one prediction of a row of ground_truth, or the reason why there is none",
    key=("truth_set", "predictor", "row_id", "metric", "statistic"),
    columns=(
        Column("truth_set", Dtype.TEXT, "", "set of the ground truth"),
        Column(
            "predictor", Dtype.TEXT, "", "who predicted: `tracemill`, or another estimator whose answer is on record"
        ),
        Column("row_id", Dtype.TEXT, "", "row of ground_truth"),
        Column("metric", Dtype.TEXT, "", "as in ground_truth"),
        Column("statistic", Dtype.TEXT, "", "as in ground_truth"),
        Column("truth", Dtype.FLOAT64, "see ground_truth", "what was measured"),
        Column(
            "prediction", Dtype.FLOAT64, "see ground_truth", "what was predicted; null if nothing was", nullable=True
        ),
        Column("signed_error", Dtype.FLOAT64, "share", "prediction / truth - 1", nullable=True),
        Column(
            "standing",
            Dtype.TEXT,
            "",
            "`held_out`: no constant saw this row's group; `in_sample`: constants were fitted to it; `uncalibrated`: "
            "nothing was fitted; `recorded`: the answer of another estimator",
        ),
        Column("reason", Dtype.TEXT, "", "why there is no prediction; null if there is one", nullable=True),
        Column("provisional", Dtype.BOOL, "", "priced with another engine's scheduler until its own exists"),
        Column("extrapolated_share", Dtype.FLOAT64, "share", "of pass time priced outside the data", nullable=True),
        Column(
            "evidence_json", Dtype.TEXT, "", "what the prediction rests on: deployment, lookups, repairs", nullable=True
        ),
        Column("snapshot", Dtype.TEXT, "", "digest of the calibration used", nullable=True),
    ),
)
