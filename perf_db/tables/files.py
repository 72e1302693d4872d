"""Table `files`: where the rows of a replay are kept."""

from perf_db.schema import Column, Dtype, Table

FILES = Table(
    name="files",
    row_is="one result table of one replay",
    key=("run_id", "table_name"),
    columns=(
        Column("run_id", Dtype.TEXT, "", "run"),
        Column("table_name", Dtype.TEXT, "", "table"),
        Column("n_rows", Dtype.INT64, "rows", "rows; a table without rows has no file"),
        Column("n_bytes", Dtype.INT64, "bytes", "size of the file"),
        Column("digest", Dtype.TEXT, "", "digest of the rows; equal for equal rows whatever file they are in"),
        Column("path", Dtype.TEXT, "", "the parquet file, absolute; null without rows, or if they were not kept", True),
    ),
)
