"""What every command says of a file of measurements: one set of options, read into one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from assets.accuracy.truth import TruthSet
    from assets.calibration.request_log import Prefixes

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--name", help="Name of the set.  [default: the file's]"),
    click.option("--format", "form", help="How the file is written.  [default: recognised by content]"),
    click.option("--about", multiple=True, metavar="FACT=VALUE", help="What the file does not say: model, system, …"),
    click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows that answer to it; != excludes."),
    click.option(
        "--deployments",
        "engine",
        type=_FILE,
        help="Run configuration of the engine that requests or passes were measured on; its traffic is not used.",
    ),
    click.option("--prefixes", type=_FILE, help="Trace of the same requests with prefix hashes, in the log's order."),
    click.option(
        "--perf-root",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder of performance data.  [default: the perfdata extra]",
    ),
    click.option("--clean/--no-clean", default=True, show_default=True, help="Repair the performance data first."),
    click.option("--term", "terms", multiple=True, help="Host constants to fit.  [default: chosen by held-out error]"),
)


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    found = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
        found[name] = value
    return found


@dataclass(frozen=True)
class TruthOptions:
    """The options as given; see `truth_options`."""

    name: str | None
    form: str | None
    about: tuple[str, ...]
    where: tuple[str, ...]
    engine: Path | None
    prefixes: Path | None
    perf_root: Path | None
    clean: bool
    terms: tuple[str, ...]

    @property
    def facts(self) -> dict[str, str]:
        """What `--about` says."""
        return pairs(self.about, "--about")

    def keep(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """Which rows `--where` leaves; None: all."""
        from assets.accuracy.sources import filter_of

        return filter_of(self.where)

    def read(self, path: Path) -> TruthSet:
        """The measurements of a file."""
        from assets.accuracy.importers import read_truth
        from assets.accuracy.sources import about_of

        return read_truth(path, about=about_of(self.name or path.stem, self.facts), form=self.form)

    def prefixes_of(self, truth: TruthSet) -> Prefixes | None:
        """Prefix identity of its requests, where a trace of them was given."""
        from assets.accuracy.sources import prefixes_of

        return None if self.prefixes is None else prefixes_of(self.prefixes, truth)


def truth_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that reads a file of measurements; it receives them as `given`."""

    @functools.wraps(command)
    def gathered(*args: Any, **values: Any) -> Any:
        given = TruthOptions(**{field.name: values.pop(field.name) for field in fields(TruthOptions)})
        return command(*args, given=given, **values)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered
