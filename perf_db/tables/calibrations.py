"""Table `calibrations`: constants fitted to measurements."""

from perf_db.schema import Column, Dtype, Table

CALIBRATIONS = Table(
    name="calibrations",
    row_is="one constant of a calibration",
    key=("snapshot", "constant"),
    columns=(
        Column("snapshot", Dtype.TEXT, "", "digest of the snapshot it is part of"),
        Column("constant", Dtype.TEXT, "", "its name"),
        Column("unit", Dtype.TEXT, "", "unit of its value"),
        Column("value", Dtype.FLOAT64, "see unit", "fitted value"),
        Column("low", Dtype.FLOAT64, "see unit", "lower end of its 95 % interval", nullable=True),
        Column("high", Dtype.FLOAT64, "see unit", "upper end of its 95 % interval", nullable=True),
        Column("prior", Dtype.FLOAT64, "see unit", "value before the data", nullable=True),
        Column("free", Dtype.BOOL, "", "whether it was fitted"),
        Column("identified", Dtype.BOOL, "", "whether the data say what it is, rather than prior or bounds"),
        Column("at_bound", Dtype.BOOL, "", "whether it ended at a bound: a missing mechanism, not a value"),
        Column("truth_set", Dtype.TEXT, "", "what it was fitted to"),
        Column("train_error", Dtype.FLOAT64, "share", "mean error of the rows it was fitted to"),
        Column("held_out_error", Dtype.FLOAT64, "share", "mean error of rows kept away from the fit"),
    ),
)
