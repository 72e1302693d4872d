"""docs/performance-data.md lists the tables as they are declared."""

from perf_db.gpu import docs
from perf_db.gpu.operator_tables import OPERATOR_TABLES


def test_the_list_of_tables_is_up_to_date():
    assert docs.PAGE.read_text() == docs.page(), "run: python -m perf_db.gpu.docs"
    assert all(f"/{table.file_name}`" in docs.listing() for table in OPERATOR_TABLES.values())
