"""Table `runs`: what was replayed, with what, when, and what came out."""

from perf_db.schema import Column, Dtype, Table

RUN_ID = Column("run_id", Dtype.TEXT, "", "the execution: sorts by time")
REPLAY_ID = Column(
    "replay_id",
    Dtype.TEXT,
    "",
    "digest of what was replayed: configuration, trace, performance data, engine, tables, seed",
)

RUNS = Table(
    name="runs",
    row_is="one execution of a replay",
    key=("run_id",),
    columns=(
        RUN_ID,
        REPLAY_ID,
        Column("name", Dtype.TEXT, "", "name in the configuration"),
        Column("profile", Dtype.TEXT, "", "whose behaviour is reproduced"),
        Column("backend", Dtype.TEXT, "", "serving engine that is modelled"),
        Column("model", Dtype.TEXT, "", "served model, where it is known", nullable=True),
        Column("hardware", Dtype.TEXT, "", "accelerator, where it is known", nullable=True),
        Column("seed", Dtype.UINT64, "", "seed of everything that is drawn"),
        Column("config_digest", Dtype.TEXT, "", "digest of the configuration, defaults filled in"),
        Column("trace_digest", Dtype.TEXT, "", "digest of the trace's bytes, or of the recipe of made-up traffic"),
        Column("performance_digest", Dtype.TEXT, "", "digest of the performance data or timing model"),
        Column("engine_digest", Dtype.TEXT, "", "digest of the engine's sources"),
        Column("schema_digest", Dtype.TEXT, "", "digest of the table declarations"),
        Column("result_digest", Dtype.TEXT, "", "digest of all result tables; the same replay_id must give the same"),
        Column("tracemill_version", Dtype.TEXT, "", "version of this package"),
        Column("python_version", Dtype.TEXT, "", "version of Python"),
        Column("numpy_version", Dtype.TEXT, "", "version of numpy"),
        Column("numba_version", Dtype.TEXT, "", "version of numba"),
        Column("started_at", Dtype.TIMESTAMP, "UTC", "host time of the start"),
        Column("engine_ms", Dtype.FLOAT64, "ms", "host time from requests in memory to results in memory"),
        Column("total_ms", Dtype.FLOAT64, "ms", "host time from start to results on disk", nullable=True),
        Column("end_ns", Dtype.INT64, "ns", "virtual time of the last event"),
        Column("peak_active_blocks", Dtype.INT32, "blocks", "most KV blocks in use on one rank"),
        Column("n_requests", Dtype.INT64, "requests", "requests of the trace"),
        Column("n_completed", Dtype.INT64, "requests", "completed"),
        Column("n_rejected", Dtype.INT64, "requests", "rejected"),
        Column(
            "n_failed",
            Dtype.INT64,
            "requests",
            "failed: no decode worker could ever take them over, or no transfer held",
        ),
        Column("n_canceled", Dtype.INT64, "requests", "canceled: handed over too late"),
        Column("n_unfinished", Dtype.INT64, "requests", "neither, when the replay stopped"),
        Column("n_quarantined", Dtype.INT64, "rows", "rows of the source that were set aside"),
        Column("n_passes", Dtype.INT64, "passes", "forward passes"),
        Column("n_preemptions", Dtype.INT64, "preemptions", "preemptions"),
        Column("timing", Dtype.TEXT, "", "what priced the passes: kind of timing, or estimator", nullable=True),
        Column("kv_blocks", Dtype.INT64, "blocks", "usable KV blocks of one rank", nullable=True),
        Column(
            "kv_blocks_estimated",
            Dtype.INT64,
            "blocks",
            "the same by the memory model, where model and hardware are known; given blocks win",
            nullable=True,
        ),
        Column(
            "ttft_ends",
            Dtype.TEXT,
            "",
            "what TTFT counts to with separate pools: `decode`, a decode worker's first token, so that waiting for "
            "room, transfer and a decode pass are in it; or `prefill`, the prompt computed. Null with one pool: there "
            "they are the same instant",
            nullable=True,
        ),
        Column(
            "output_path_ns",
            Dtype.INT64,
            "ns",
            "from the engine to the client: so much later than the ends of their passes are the token times of "
            "requests; null for nothing",
            nullable=True,
        ),
        Column("mixed_pass", Dtype.TEXT, "", "how a pass with prefill and decode work is priced"),
        Column(
            "unproven", Dtype.TEXT, "", "features used that no recorded engine confirms, comma-separated; '' for none"
        ),
        Column("config_json", Dtype.TEXT, "", "the configuration, canonical JSON"),
        Column("provenance_json", Dtype.TEXT, "", "where the trace came from and how it was read, JSON"),
    ),
)
