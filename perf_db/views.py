"""SQL views as the store sees them: a name, one statement, and what its rows and columns are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from perf_db.schema import quoted


class ViewError(ValueError):
    """A view's text does not have the form the store asks for."""


@dataclass(frozen=True, slots=True)
class View:
    """One `CREATE OR REPLACE VIEW <name> AS ...`, or `... MACRO <name>(...) AS ...`.

    Attributes:
        comment: what one row is.
        columns: name -> what it means, with its unit in front.
    """

    name: str
    sql: str
    comment: str
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_macro(self) -> bool:
        return bool(re.match(r"\s*CREATE OR REPLACE MACRO\b", self.statement))

    @property
    def statement(self) -> str:
        """The text without comments and the closing semicolon."""
        return re.sub(r"--[^\n]*", "", self.sql).strip().rstrip(";").strip()

    def comments(self) -> list[str]:
        """COMMENT statements."""
        if self.is_macro:
            kind = "MACRO TABLE" if re.search(r"\)\s*AS\s+TABLE\b", self.statement) else "MACRO"
            return [f"COMMENT ON {kind} {self.name} IS {quoted(self.comment)}"]
        return [f"COMMENT ON VIEW {self.name} IS {quoted(self.comment)}"] + [
            f"COMMENT ON COLUMN {self.name}.{c} IS {quoted(text)}" for c, text in self.columns.items()
        ]


def parse_view(name: str, sql: str) -> View:
    """Read a view's text. Comment lines before the statement explain it; from the first of the form `-- column [unit]
    meaning` on, they explain columns.

    Raises:
        ViewError: the statement does not create or replace exactly `name`.
    """
    head = sql.split("CREATE", 1)[0]
    lines = [line.removeprefix("--").strip() for line in head.splitlines() if line.startswith("--")]
    columns, comment = {}, []
    for line in lines:
        match = re.fullmatch(r"(\w+) (\[.*?\] .*)", line)
        if match:
            columns[match[1]] = match[2]
        elif columns:
            columns[next(reversed(columns))] += f" {line}"
        else:
            comment.append(line)
    view = View(name, sql, " ".join(comment), columns)
    if not re.match(rf"CREATE OR REPLACE (VIEW {name} AS\b|MACRO {name}\()", view.statement) or ";" in view.statement:
        raise ViewError(
            f"view {name!r}: the text must be one statement, CREATE OR REPLACE VIEW {name} AS ... (or MACRO)"
        )
    if not view.comment:
        raise ViewError(f"view {name!r}: the text must begin with a comment that says what one row is")
    return view


def in_order(views: Iterable[View]) -> list[View]:
    """Every view after those it reads from."""
    by_name = {v.name: v for v in views}
    words = {v.name: set(re.findall(r"\w+", v.statement)) for v in by_name.values()}
    try:
        order = TopologicalSorter(
            {n: sorted((w & by_name.keys()) - {n}) for n, w in sorted(words.items())}
        ).static_order()
        return [by_name[n] for n in order]
    except CycleError as error:
        raise ViewError(f"views read from each other in a circle: {' -> '.join(error.args[1])}") from error
