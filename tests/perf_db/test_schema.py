"""A declared table refuses what does not match it, and says everything at once."""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from perf_db.schema import Column, Dtype, SchemaError, Table
from perf_db.tables import RUN_COLUMNS, TABLES, TRACES, schema_digest
from sim import result

VISITS = Table(
    name="visits",
    row_is="one visit of somebody's house",
    key=("visit_id",),
    columns=(
        Column("visit_id", Dtype.INT32, "", "position in the book"),
        Column("stay_ns", Dtype.INT64, "ns", "how long", nullable=True),
        Column("kind", Dtype.TEXT, "", "why", values=("", "call", "stay")),
        Column("rooms", Dtype.INT64_LIST, "", "which rooms", nullable=True),
    ),
)


def test_a_matching_frame_comes_back_in_declared_order_and_types():
    frame = pl.DataFrame(
        {"rooms": [[1, 2], None], "kind": ["call", "stay"], "stay_ns": [None, 5], "visit_id": [0, 1]},
        schema={"rooms": pl.List(pl.Int64), "kind": pl.String, "stay_ns": pl.Int64, "visit_id": pl.Int32},
    )
    table = VISITS.validate(frame, source="book")
    assert table.schema == VISITS.arrow_schema()
    assert table.to_pylist()[0] == {"visit_id": 0, "stay_ns": None, "kind": "call", "rooms": [1, 2]}


def test_every_fault_in_one_message():
    frame = {"visit_id": pa.array(["0"]), "kind": pa.array(["party"]), "rooms": pa.array([[1]]), "colour": [1]}
    with pytest.raises(SchemaError) as error:
        VISITS.validate(frame, source="book.parquet")
    assert str(error.value) == (
        "book.parquet does not match table 'visits': column 'stay_ns' is missing; column 'colour' is not declared; "
        "column 'visit_id' is string, declared int32; column 'kind' holds ['party'], declared ['call', 'stay']"
    )


def test_nulls_and_repeated_keys_are_faults():
    ids = pa.array([1, 1, 2], pa.int32())
    good = {"visit_id": ids, "stay_ns": pa.nulls(3, pa.int64()), "rooms": pa.nulls(3, pa.list_(pa.int64()))}
    with pytest.raises(SchemaError, match=r"key \(visit_id\) repeats in 1 row"):
        VISITS.validate(good | {"kind": ["call"] * 3}, source="book")
    with pytest.raises(SchemaError, match="column 'kind' has 1 null"):
        VISITS.validate(good | {"kind": ["call", None, "call"]}, source="book")


def test_a_declaration_that_contradicts_itself_is_refused():
    with pytest.raises(SchemaError, match="key names no column"):
        Table("t", "a row", ("nothing",), (Column("a", Dtype.INT32, "", "a"),))


@pytest.mark.parametrize("name", TABLES)
def test_units_survive_into_the_database(name):
    table = TABLES[name]
    with duckdb.connect() as con:
        con.execute(table.ddl())
        query = "SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE table_name = ?"
        columns = con.execute(query, [name]).fetchall()
        (comment,) = con.execute("SELECT comment FROM duckdb_tables()").fetchone()
    assert columns == [(c.name, c.dtype.value, c.nullable, c.comment) for c in table.columns]
    assert comment == f"One row is {table.row_is}."


@pytest.mark.parametrize("name", TABLES)
def test_every_column_says_what_it_means(name):
    for column in TABLES[name].columns:
        assert column.meaning and not column.meaning.endswith("."), column.name
        # A unit is left out only where there is none: identifiers, categories, ordinals.
        if column.name.endswith(("_ns", "_ms", "_tokens", "_blocks")):
            assert column.unit, column.name


@pytest.mark.parametrize("name", result.TABLES)
def test_the_engine_hands_out_exactly_the_declared_columns(name):
    of_the_source = {"external_id", "source_line", "session_id", "turn"}
    of_later_models = {"correction"} if name == "evidence" else set()
    renamed = {"request": "request_id", "asker": "asker_id"}
    declared = [c for c in TABLES[name].column_names if c not in of_the_source | of_later_models]
    assert declared == [renamed.get(c, c) for c in result.TABLES[name]]


def test_categories_are_the_engines():
    def values(table: str, column: str) -> tuple[str, ...]:
        return TABLES[table].column(column).values

    assert values("requests", "status") == result.STATUS_NAMES
    assert values("requests", "reason") == result.REASON_NAMES
    assert values("admissions", "kind") == values("chunks", "kind") == result.KIND_NAMES


def test_the_schema_digest_sees_types_but_not_wording(monkeypatch):
    from perf_db import tables

    def digest_with(column: Column) -> str:
        other = Table("requests", "a row", ("request_id",), (column,))
        monkeypatch.setitem(tables.RESULT_TABLES, "requests", other)
        return schema_digest()

    first = digest_with(Column("request_id", Dtype.INT32, "", "said one way"))
    assert digest_with(Column("request_id", Dtype.INT32, "", "said another way")) == first
    assert digest_with(Column("request_id", Dtype.INT64, "", "said one way")) != first


def test_run_columns_lead_no_result_table():
    names = {c.name for c in RUN_COLUMNS}
    about_runs = {"runs", "files", "anomalies", "baselines", "scenarios"}
    assert not any(names & set(t.column_names) for t in TABLES.values() if t.name not in about_runs)
    assert "hash_ids" in TRACES.column_names
