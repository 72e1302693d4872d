"""Table `cell_ops`: which raw rows of performance data the cells rest on that a replay has hit."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.evidence import PHASES, ROLES

CELL_OPS = Table(
    name="cell_ops",
    row_is="one raw row of performance data that takes part in the price of one operator in one cell",
    key=("role", "phase", "cell", "operator", "file", "row_no"),
    columns=(
        Column("role", Dtype.TEXT, "", "role of the workers whose passes were priced", values=ROLES),
        Column("phase", Dtype.TEXT, "", "part of the pass that was priced, as in evidence", values=PHASES),
        Column("cell", Dtype.INT32, "", "grid cell, as in evidence"),
        Column("operator", Dtype.TEXT, "", "operator of the model"),
        Column(
            "file",
            Dtype.TEXT,
            "",
            "path below the performance root; the hardware file for operators that are computed, not measured",
        ),
        Column("file_digest", Dtype.TEXT, "", "blake2b of its bytes"),
        Column("row_no", Dtype.INT64, "", "row in the file, from 0"),
        Column("share", Dtype.FLOAT64, "ratio", "of the operator's time; the rows of an operator sum to 1"),
        Column("operator_ms", Dtype.FLOAT64, "ms", "the operator, all layers, at the cell's typical pass"),
        Column("operator_share", Dtype.FLOAT64, "ratio", "of the phase's time at that pass"),
        Column("requests", Dtype.INT64, "requests", "the cell's typical pass: requests of the phase"),
        Column("length", Dtype.INT64, "tokens", "new tokens per request (prefill), KV length per request (decode)"),
        Column("prefix", Dtype.INT64, "tokens", "cached tokens per request (prefill); 0 in decode"),
    ),
)
