"""Performance data as assets: every version read, judged and shown before anything is priced with it."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from assets.identity import sources_digest
from assets.metadata import PREVIEW_ROWS, column_schema, picture, preview
from assets.perf_plots import worst_slices
from assets.perf_quality import Examined, examine_versions, folder_of, write_tables
from assets.perf_registry import recall_root
from assets.settings import input_faults
from perf_db.gpu.quality import PerfVersion
from perf_db.gpu.source import PerfRoot
from perf_db.schema import Table
from perf_db.store import Store
from perf_db.tables import PERF_ANOMALIES, PERF_REPAIRS, PERF_TABLES

VERSIONS = dg.DynamicPartitionsDefinition(name="performance_data")
CODE = sources_digest("perf_db")[:12]
WIDE = 1.5  # times; duplicates further apart disagree
MANY_FALLS = 0.05  # share of pairs

_CHECKS = {
    PERF_TABLES.name: (("files_are_valid", "every file is what its name says: columns, types, units, values", True),),
    PERF_ANOMALIES.name: (
        ("few_falling_pairs", "in no file more work takes less time in over 5 % of neighbours", False),
        ("duplicates_agree", "repeated points lie within 1.5x of each other", False),
        ("no_host_bound_slices", "no slice timed the launch instead of the kernel", False),
    ),
    PERF_REPAIRS.name: (("cleaned_curves_do_not_fall", "after cleaning more work never takes less time", True),),
}


def _spec(table: Table) -> dg.AssetSpec:
    return dg.AssetSpec(
        table.name,
        description=f"One row is {table.row_is}.",
        group_name="performance_data",
        kinds={"parquet"},
        code_version=CODE,
        partitions_def=VERSIONS,
        metadata={"dagster/column_schema": column_schema(table)},
    )


@dg.multi_asset(
    name="examine_performance_data",
    # Siblings: each follows from the files, none from another.
    specs=[_spec(table) for table in (PERF_TABLES, PERF_ANOMALIES, PERF_REPAIRS)],
    check_specs=[
        dg.AssetCheckSpec(name, asset=table, description=claim, blocking=strict)
        for table, checks in _CHECKS.items()
        for name, claim, strict in checks
    ],
    partitions_def=VERSIONS,
)
def examine_performance_data(
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]
) -> Iterator[dg.MaterializeResult]:
    """Read every file of the partition's version, judge it, and list what cleaning changes."""
    version = PerfVersion(*context.partition_key.split("|"))
    with input_faults():
        root = recall_root(store.root, version)
        found = examine_versions(root, [version])
    paths = write_tables(folder_of(store.root, version), found)
    state = dg.DataVersion(_state(found))
    yield _tables(found, root, paths[PERF_TABLES.name], state)
    yield _anomalies(found, root, paths[PERF_ANOMALIES.name], state)
    yield _repairs(found, paths[PERF_REPAIRS.name], state)


def _state(found: Examined) -> str:
    """Digest of the files examined: the same files, the same data version."""
    from assets.identity import canonical_json, digest

    return digest(canonical_json({row["file"]: row["digest"] for row in found.tables}))


def _tables(found: Examined, root: PerfRoot, path: Path, state: dg.DataVersion) -> dg.MaterializeResult:
    bad = [row for row in found.tables if not row["valid"]]
    rows = [[row[name] for name in PERF_TABLES.column_names] for row in found.tables]
    return dg.MaterializeResult(
        asset_key=PERF_TABLES.name,
        data_version=state,
        metadata={
            "dagster/row_count": len(found.tables),
            "files": preview(PERF_TABLES, rows),
            "measured_rows": sum(row["n_rows"] for row in found.tables),
            "bytes": sum(row["n_bytes"] for row in found.tables),
            "source": f"{root.kind} {root.version or ''}".strip(),
            "file": dg.MetadataValue.path(str(path)),
        },
        check_results=[
            _result(PERF_TABLES, "files_are_valid", [f"{row['file']}: {row['faults']}" for row in bad]),
        ],
    )


def _anomalies(found: Examined, root: PerfRoot, path: Path, state: dg.DataVersion) -> dg.MaterializeResult:
    falling = {row["file"]: row["n_falling"] / row["n_pairs"] for row in found.tables if row["n_pairs"]}
    wide = [row for row in found.tables if (row["widest_duplicate"] or 1) > WIDE]
    bound = [row for row in found.tables if row["n_host_bound"]]
    slices = worst_slices(root, found.anomalies, found.repairs)
    metadata: dict[str, Any] = {"dagster/row_count": found.anomalies.height}
    if slices:
        metadata["worst_slices"] = picture(slices, "worst slices, measured and cleaned")
    metadata |= {
        "by_kind": _by_kind(found.anomalies),
        "furthest_out": preview(PERF_ANOMALIES, found.worst(3).rows()),
        "file": dg.MetadataValue.path(str(path)),
    }
    return dg.MaterializeResult(
        asset_key=PERF_ANOMALIES.name,
        data_version=state,
        metadata=metadata,
        check_results=[
            _result(
                PERF_ANOMALIES,
                "few_falling_pairs",
                [f"{file}: {share:.1%}" for file, share in falling.items() if share > MANY_FALLS],
            ),
            _result(
                PERF_ANOMALIES, "duplicates_agree", [f"{row['file']}: {row['widest_duplicate']:.2f}x" for row in wide]
            ),
            _result(
                PERF_ANOMALIES,
                "no_host_bound_slices",
                [f"{row['file']}: {row['n_host_bound']} slice(s), {row['host_ratio']:.1f}x" for row in bound],
            ),
        ],
    )


def _repairs(found: Examined, path: Path, state: dg.DataVersion) -> dg.MaterializeResult:
    cells = found.repairs.filter(found.repairs["row_no"] >= 0)
    notes = found.repairs["note"].drop_nulls().unique(maintain_order=True).to_list()
    return dg.MaterializeResult(
        asset_key=PERF_REPAIRS.name,
        data_version=state,
        metadata={
            "dagster/row_count": found.repairs.height,
            "by_kind": _by_kind(cells),
            "first_rows": preview(PERF_REPAIRS, found.repairs.head(PREVIEW_ROWS).rows()),
            "left_out": "; ".join(notes) or "nothing",
            "file": dg.MetadataValue.path(str(path)),
        },
        check_results=[_result(PERF_REPAIRS, "cleaned_curves_do_not_fall", found.still_falling)],
    )


def _by_kind(frame: Any) -> dg.TableMetadataValue:
    """Rows by table and kind: a line per table."""
    counts: dict[str, dict[str, int]] = {}
    for table, kind, n in frame.group_by("table_name", "kind").len().sort("table_name", "kind").rows():
        counts.setdefault(table, {})[kind] = n
    kinds = sorted({kind for found in counts.values() for kind in found})
    records = [
        dg.TableRecord({"table": table, **{kind: found.get(kind, 0) for kind in kinds}})
        for table, found in counts.items()
    ]
    return dg.MetadataValue.table(records or [dg.TableRecord({"table": "none"})])


def _result(table: Table, name: str, against: list[str]) -> dg.AssetCheckResult:
    strict = next(strict for each, _, strict in _CHECKS[table.name] if each == name)
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=table.name,
        passed=not against,
        severity=dg.AssetCheckSeverity.ERROR if strict else dg.AssetCheckSeverity.WARN,
        metadata={"against": len(against), "first": "; ".join(against[:3]) or "none"},
    )
