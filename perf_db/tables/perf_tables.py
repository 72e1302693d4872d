"""Table `perf_tables`: the files of a performance-data version, counted and judged."""

from perf_db.schema import Column, Dtype, Table

# Which performance data a row is about; in front of all tables about performance data.
PERF_VERSION = (
    Column("system", Dtype.TEXT, "", "GPU system, as its folder is named"),
    Column("backend", Dtype.TEXT, "", "serving backend, or library of collectives, that was measured"),
    Column("version", Dtype.TEXT, "", "its version"),
)

PERF_TABLES = Table(
    name="perf_tables",
    row_is="one file of performance data",
    key=("file",),
    columns=(
        *PERF_VERSION,
        Column("family", Dtype.TEXT, "", "folder of the kind of operator"),
        Column("table_name", Dtype.TEXT, "", "kind of table: the file's name without its ending"),
        Column("file", Dtype.TEXT, "", "path below the performance root"),
        Column("digest", Dtype.TEXT, "", "blake2b of its bytes"),
        Column("n_bytes", Dtype.INT64, "bytes", "size"),
        Column("n_rows", Dtype.INT64, "rows", "rows"),
        Column("valid", Dtype.BOOL, "", "it is what its name promises; otherwise nothing is taken from it"),
        Column("faults", Dtype.TEXT, "", "what is wrong with it: column, what, in how many rows", nullable=True),
        Column("key_columns", Dtype.TEXT, "", "columns that name a slice"),
        Column("axes", Dtype.TEXT, "", "numeric axes: smallest to largest (different values)"),
        Column("precisions", Dtype.TEXT, "", "precisions it holds"),
        Column("unit", Dtype.TEXT, "", "unit of what was measured"),
        Column("min_value", Dtype.FLOAT64, "unit", "smallest measured value", nullable=True),
        Column("max_value", Dtype.FLOAT64, "unit", "largest measured value", nullable=True),
        Column("n_slices", Dtype.INT64, "slices", "different keys"),
        Column("n_points", Dtype.INT64, "points", "different points; rows without their duplicates"),
        Column("coverage", Dtype.FLOAT64, "ratio", "share of its grids that was measured; null for curves", True),
        Column("n_holes", Dtype.INT64, "slices", "slices that do not fill their grid"),
        Column("n_pairs", Dtype.INT64, "pairs", "neighbours on the main axis"),
        Column("n_falling", Dtype.INT64, "pairs", "of them, where more work took over 10 % less time"),
        Column("n_halved", Dtype.INT64, "pairs", "of them, where it took less than half"),
        Column("n_spikes", Dtype.INT64, "points", "points above 1.5 times both neighbours"),
        Column("n_duplicates", Dtype.INT64, "rows", "rows that repeat a point"),
        Column("widest_duplicate", Dtype.FLOAT64, "ratio", "largest over smallest value of one point", True),
        Column("n_host_bound", Dtype.INT64, "slices", "slices whose small points timed the launch, not the kernel"),
        Column(
            "host_ratio",
            Dtype.FLOAT64,
            "ratio",
            "small points against other backends' median, median over a precision, the largest; null without others",
            nullable=True,
        ),
    ),
)
