"""Table `scenarios`: what became of every scenario of a matrix, each time it was run."""

from perf_db.schema import Column, Dtype, Table
from perf_db.tables.runs import RUN_ID

SCENARIOS = Table(
    name="scenarios",
    row_is="one scenario of a suite in one execution of its matrix",
    key=("suite", "scenario", "matrix_id"),
    columns=(
        Column("suite", Dtype.TEXT, "", "name of the suite: its file's"),
        Column("scenario", Dtype.TEXT, "", "name of the scenario; the runs of it have the same"),
        Column("matrix_id", Dtype.TEXT, "", "the execution of the matrix: sorts by time"),
        Column("trace", Dtype.TEXT, "", "its place on the axis `traces`; null if the suite has none", True),
        Column("engine", Dtype.TEXT, "", "its place on the axis `engines`", True),
        Column("load", Dtype.TEXT, "", "its place on the axis `loads`", True),
        Column("timing", Dtype.TEXT, "", "its place on the axis `timing`", True),
        Column(
            "status",
            Dtype.TEXT,
            "",
            "`same` as its baseline, `within` its tolerances, `new` without one, `differs` from it; `anomaly`: a law is"
            " broken; `failed`: the input's fault; `crashed`: ours",
        ),
        Column(RUN_ID.name, Dtype.TEXT, "", "the run; null if there is none", True),
        Column("result_digest", Dtype.TEXT, "", "digest of its result tables", True),
        Column("rows_kept", Dtype.BOOL, "", "whether requests, passes and the like can be read"),
        Column("config_digest", Dtype.TEXT, "", "digest of the configuration, defaults filled in"),
        Column("trace_digest", Dtype.TEXT, "", "digest of the trace files' bytes; '' for made-up traffic"),
        Column("performance_digest", Dtype.TEXT, "", "digest of the performance data or timing model"),
        Column("engine_digest", Dtype.TEXT, "", "digest of the engine's sources and of the table declarations"),
        Column("baseline_digest", Dtype.TEXT, "", "digest of what its baseline said; '' without one"),
        Column("input_change", Dtype.TEXT, "", "inputs that differ from the baseline's", True),
        Column("mechanism", Dtype.TEXT, "", "why the rows differ from the baseline's", True),
        Column("explanation", Dtype.TEXT, "", "the mechanism in a sentence, the broken laws, or the error", True),
        Column("ttft_change_ns", Dtype.INT64, "ns", "change of the TTFT, summed over requests", True),
        Column("e2e_change_ns", Dtype.INT64, "ns", "change of the E2E, summed over requests", True),
        Column("n_anomalies", Dtype.INT32, "", "checks of the run that found something"),
        Column("total_ms", Dtype.FLOAT64, "ms", "host time of replay, checks and comparison"),
    ),
)
