"""What a query plan joins on."""

from __future__ import annotations

import json
from typing import Any


def joins(con: Any, query: str) -> list[str]:
    """The conditions of every join in the plan, as text."""
    (_, plan), *_ = con.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    return [text for node in json.loads(plan) for text in _conditions(node)]


def _conditions(node: dict[str, Any]) -> list[str]:
    own = [str(node["extra_info"].get("Conditions", ""))] if "JOIN" in node["name"] or "PRODUCT" in node["name"] else []
    return own + [text for child in node["children"] for text in _conditions(child)]
