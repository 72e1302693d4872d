"""Table `metrics`: every summary figure of a replay."""

from perf_db.schema import Column, Dtype, Table

METRICS = Table(
    name="metrics",
    row_is="one figure of a replay",
    key=("scope", "metric", "stat"),
    columns=(
        Column("scope", Dtype.TEXT, "", "what it covers: `run`, or `steady` for the steady-state window"),
        Column("metric", Dtype.TEXT, "", "what is measured, such as `ttft` or `output_throughput`"),
        Column("stat", Dtype.TEXT, "", "which figure of it, such as `mean` or `p99`"),
        Column("value", Dtype.FLOAT64, "see unit", "the figure; null where there is no sample", nullable=True),
        Column("unit", Dtype.TEXT, "", "unit of the value"),
        Column("n", Dtype.INT64, "", "size of the sample behind it"),
    ),
)
