"""Table `perf_anomalies`: measured values that cannot be right, or lie where none were measured."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.perf_tables import PERF_VERSION

KINDS = ("duplicate", "host_bound", "spike", "non_monotone", "hole", "invalid")

PERF_ANOMALIES = Table(
    name="perf_anomalies",
    row_is="one fault of one point (of one slice: host_bound, hole; of one file: invalid) of performance data",
    key=("file", "kind", "row_no", "measure"),
    columns=(
        *PERF_VERSION,
        Column("table_name", Dtype.TEXT, "", "kind of table"),
        Column("file", Dtype.TEXT, "", "path below the performance root"),
        Column("row_no", Dtype.INT64, "", "row in the file, from 0; of a slice its first; -1 for the whole file"),
        Column("kind", Dtype.TEXT, "", "what is wrong", values=KINDS),
        Column("slice", Dtype.TEXT, "", "the slice's key"),
        Column("point", Dtype.TEXT, "", "where in it"),
        Column("measure", Dtype.TEXT, "", "measured column"),
        Column("unit", Dtype.TEXT, "", "its unit; ratio for holes"),
        Column("value", Dtype.FLOAT64, "unit", "the value; of a slice its median, or its share of the grid", True),
        Column("before", Dtype.FLOAT64, "unit", "the neighbour before it on the main axis, or the duplicate", True),
        Column("after", Dtype.FLOAT64, "unit", "the neighbour after it", nullable=True),
        Column("ratio", Dtype.FLOAT64, "ratio", "how far out: against what was to be expected", nullable=True),
        Column("suggested", Dtype.FLOAT64, "unit", "what cleaning starts from instead", nullable=True),
        Column("repair", Dtype.TEXT, "", "what cleaning does about it"),
    ),
)
