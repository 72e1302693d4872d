"""How the key figures of a suite's scenarios developed over the executions of its matrix."""

from __future__ import annotations

from dataclasses import dataclass

from perf_db.store import Store

EXECUTIONS = 30
KEY_FIGURES = (("ttft", "p99"), ("e2e_latency", "p99"), ("output_throughput", "mean"))


@dataclass(frozen=True)
class Trend:
    """One figure of one scenario, oldest execution first.

    Attributes:
        matrix_ids: the executions.
        values: the figure in each.
    """

    scenario: str
    metric: str
    stat: str
    unit: str
    matrix_ids: list[str]
    values: list[float]

    @property
    def relative(self) -> list[float]:
        """In percent of the oldest."""
        return [100 * value / self.values[0] if self.values[0] else 100.0 for value in self.values]


def trends(store: Store, suite: str, *, executions: int = EXECUTIONS) -> list[Trend]:
    """Every key figure of every scenario that has a run, over its last executions."""
    if not store.exists:
        return []
    wanted = ", ".join(f"('{metric}', '{stat}')" for metric, stat in KEY_FIGURES)
    with store.connect() as con:
        rows = con.execute(
            f"""
            SELECT scenario, metric, stat, any_value(unit), list(matrix_id ORDER BY matrix_id),
                   list(value ORDER BY matrix_id)
            FROM (
                FROM scenario_trends WHERE suite = ? AND (metric, stat) IN ({wanted}) AND value IS NOT NULL
                QUALIFY row_number() OVER (PARTITION BY scenario, metric ORDER BY matrix_id DESC) <= ?)
            GROUP BY scenario, metric, stat ORDER BY scenario, metric
            """,
            [suite, executions],
        ).fetchall()
    return [Trend(*row) for row in rows]
