"""Table `anomalies`: what is wrong, or strange, with a replay. Written when a run is examined, not when it is made."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.runs import RUN_ID

ANOMALIES = Table(
    name="anomalies",
    row_is="one check that a replay did not pass",
    key=("run_id", "check_name"),
    columns=(
        RUN_ID,
        Column("check_name", Dtype.TEXT, "", "the check; its claim is in docs/regression.md"),
        Column("severity", Dtype.TEXT, "", "`error`: a law is broken, the figures mean nothing; `warning`: look at it"),
        Column("table_name", Dtype.TEXT, "", "the table it is about"),
        Column("row_key", Dtype.TEXT, "", "the worst row, by its key"),
        Column("figure", Dtype.FLOAT64, "", "how bad that row is, in the terms of the explanation", nullable=True),
        Column("n_rows", Dtype.INT64, "rows", "rows that do not pass"),
        Column("explanation", Dtype.TEXT, "", "what is wrong, in a sentence"),
    ),
)
