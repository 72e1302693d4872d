"""Every query of docs/sql.md runs, in the session that users have, and has an answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assets.views import open_store
from perf_db.sqlsafe import run_sql
from perf_db.store import Store
from tests.assets.desk.worlds import deployment, pools, record, traffic

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
QUERIES = dict(re.findall(r"^## (.+?)\n.*?```sql\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("cookbook")
    record(root, "a", deployment(2, workers=1, dp=2, blocks=21), traffic(2))
    record(root, "b", deployment(2, workers=1, dp=2, blocks=20), traffic(2))
    return open_store(root)


@pytest.fixture(scope="module")
def store_of_pools(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("cookbook_of_pools")
    record(root, "a", pools(0), traffic(0))
    return open_store(root)


def test_there_are_eighteen() -> None:
    assert len(QUERIES) == PAGE.count("```sql") == 18


@pytest.mark.parametrize("question", QUERIES)
def test_a_query_has_an_answer(question: str, store: Store, store_of_pools: Store) -> None:
    names, rows = run_sql(store_of_pools if question.startswith("Separate pools") else store, QUERIES[question])
    assert rows and len(set(names)) == len(names)


def test_what_a_handoff_waited_for_adds_up(store_of_pools: Store) -> None:
    question = next(text for text in QUERIES if "which handoffs" in text)
    names, rows = run_sql(store_of_pools, QUERIES[question])
    for row in rows:
        told = dict(zip(names, row, strict=True))
        parts = ("room_ms", "first_byte_ms", "link_ms", "bytes_ms", "notice_ms")
        assert sum(told[part] for part in parts) == pytest.approx(told["handoff_ms"])


def test_the_slowest_hundredth_is_one_request_at_least(store_of_pools: Store) -> None:
    question = next(text for text in QUERIES if "where does the time" in text)
    names, rows = run_sql(store_of_pools, QUERIES[question])
    assert [row[names.index("which")] for row in rows] == ["all", "slowest 1 %"]
    assert rows[1][names.index("requests")] == 1
