"""Table `perf_repairs`: every cell of performance data that cleaning changes, before and after."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.perf_tables import PERF_VERSION

REPAIR_KINDS = ("duplicate", "host_bound", "spike", "non_monotone")

PERF_REPAIRS = Table(
    name="perf_repairs",
    row_is="one repair of one measured value; a value that several repairs touch has a row for each, in order of kind",
    key=("file", "row_no", "measure", "kind"),
    columns=(
        *PERF_VERSION,
        Column("table_name", Dtype.TEXT, "", "kind of table"),
        Column("file", Dtype.TEXT, "", "path below the performance root"),
        Column("row_no", Dtype.INT64, "", "row in the file, from 0; -1 for a note about the table"),
        Column("kind", Dtype.TEXT, "", "which repair", values=REPAIR_KINDS),
        Column("measure", Dtype.TEXT, "", "measured column"),
        Column("slice", Dtype.TEXT, "", "the slice's key"),
        Column("point", Dtype.TEXT, "", "where in it"),
        Column("unit", Dtype.TEXT, "", "unit of the values"),
        Column("before", Dtype.FLOAT64, "unit", "value before this repair", nullable=True),
        Column("after", Dtype.FLOAT64, "unit", "value after it", nullable=True),
        Column("launch_ms", Dtype.FLOAT64, "ms", "kept aside as launch cost of passes outside a captured graph", True),
        Column(
            "basis",
            Dtype.TEXT,
            "",
            "where the value comes from: rows, rows of other files, or the stretch of the main axis that now is level",
            nullable=True,
        ),
        Column("note", Dtype.TEXT, "", "why a repair was left out", nullable=True),
    ),
)
