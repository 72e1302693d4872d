"""Table `quarantine`: rows of the source that could not be used."""

from perf_db.schema import Column, Dtype, Table

QUARANTINE = Table(
    name="quarantine",
    row_is="one row of the source that was set aside; rows read = clean + quarantined",
    key=("source_line",),
    columns=(
        Column("source_line", Dtype.INT64, "", "line of the source file, from 1"),
        Column("reason", Dtype.TEXT, "", "what is wrong with it"),
        Column("field", Dtype.TEXT, "", "the field at fault, where there is one", nullable=True),
        Column("value", Dtype.TEXT, "", "its value as it stands in the source", nullable=True),
        Column("raw", Dtype.TEXT, "", "the row as it stands in the source"),
    ),
)
