"""Table `evidence`: what the performance model was asked, per grid cell. `passes` names the cells of every pass."""

from perf_db.schema import Column, Dtype, Table

ROLES = ("aggregated", "prefill", "decode")
PHASES = ("prefill", "decode", "mixed_prefill", "mixed_decode")
SOURCES = ("", "measured", "interpolated", "extrapolated")

EVIDENCE = Table(
    name="evidence",
    row_is="all lookups of one phase in one cell of the performance data; models without a grid have one cell",
    key=("role", "phase", "cell", "extrapolated", "source", "correction_bin"),
    columns=(
        Column("role", Dtype.TEXT, "", "what the workers do that asked", values=ROLES),
        Column(
            "phase",
            Dtype.TEXT,
            "",
            "part of the pass that was priced; parts of a mixed pass apart where the model prices it as one",
            values=PHASES,
        ),
        Column("cell", Dtype.INT32, "", "grid cell; null for models without a grid", nullable=True),
        Column("extrapolated", Dtype.BOOL, "", "the coordinates lie outside the measured data"),
        Column(
            "source",
            Dtype.TEXT,
            "",
            "how the performance data answered; null for models that are no table of a measured deployment",
            nullable=True,
            values=SOURCES,
        ),
        Column(
            "correction_bin",
            Dtype.INT32,
            "",
            "bin of the tuned snapshot's store for this kind of pass; null for none applied",
            nullable=True,
        ),
        Column(
            "correction", Dtype.FLOAT64, "ratio", "factor applied to the measured value; null for none", nullable=True
        ),
        Column("n_lookups", Dtype.INT64, "lookups", "how often"),
        Column("total_ns", Dtype.INT64, "ns", "what the lookups added up to, after speed-ups and rounding"),
        Column("first_pass", Dtype.INT32, "", "pass_no of the first lookup on its rank"),
        Column(
            "min_x", Dtype.INT64, "tokens", "smallest first coordinate: new tokens (prefill), summed context (decode)"
        ),
        Column("max_x", Dtype.INT64, "tokens", "largest first coordinate"),
        Column(
            "min_y",
            Dtype.INT64,
            "",
            "smallest second coordinate: context already there (prefill); mean context, or batch size where the model "
            "has no grid (decode)",
        ),
        Column("max_y", Dtype.INT64, "", "largest second coordinate"),
        Column(
            "max_millioctaves",
            Dtype.INT64,
            "1/1000 octave",
            "farthest lookup from the measured data, in powers of two of its coordinates; 0 inside",
        ),
    ),
)
