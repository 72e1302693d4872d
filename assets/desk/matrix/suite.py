"""Suites: one YAML file says what is replayed with what; the product of its axes is a list of scenarios.

A scenario's name is the suite's and its places on the axes, in the order of AXES. It says what is replayed, so that
adding a place to an axis renames nothing.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sim.config import ConfigError, RunConfig, load_run_config
from sim.config.yaml_text import parse_file

AXES = ("traces", "engines", "loads", "timing")
KEEPS = ("all", "failed", "none")
FOLDER = Path("examples/scenarios")
_FIELDS = ("about", "keep", "common", *AXES, "leave_out")
_PLACE = re.compile(r"[a-z0-9][a-z0-9_-]*")
_LONGEST = 100  # names become names of runs and of folders


@dataclass(frozen=True)
class Scenario:
    """One point of the product.

    Attributes:
        name: of its runs and of its baseline.
        places: axis -> place on it; axes that the suite has not are left out.
        base: folder that relative paths of the configuration start from.
    """

    name: str
    places: dict[str, str]
    config: RunConfig
    base: Path

    def place(self, axis: str) -> str | None:
        return self.places.get(axis)


@dataclass(frozen=True)
class Suite:
    """A checked suite.

    Attributes:
        keep: whose rows are kept when nothing else is said: of "all" scenarios, of "failed" ones, of "none".
        scenarios: by name.
    """

    name: str
    path: Path
    about: str
    keep: str
    scenarios: tuple[Scenario, ...]

    def chosen(self, only: Sequence[str]) -> list[Scenario]:
        """Scenarios that fit one of the patterns (`*` and `?`), with or without the suite's name; all without any.

        Raises:
            ConfigError: a pattern fits none.
        """
        if not only:
            return list(self.scenarios)
        names = {s.name: s for s in self.scenarios}
        found: dict[str, Scenario] = {}
        for pattern in only:
            fits = [n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{self.name}.{pattern}")]
            if not fits:
                known = ", ".join(list(names)[:8]) + (", …" if len(names) > 8 else "")
                raise ConfigError(f"{self.path}: no scenario fits {pattern!r}; there are: {known}")
            found |= {n: names[n] for n in fits}
        return [s for s in self.scenarios if s.name in found]


def find_suite(word: str, folder: Path = FOLDER) -> Path:
    """The file of a suite given by path, or by name in `folder`.

    Raises:
        ConfigError: there is none.
    """
    path = Path(word)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise ConfigError(f"{word}: no such file")
        return path
    found = folder / f"{word}.yaml"
    if not found.exists():
        known = ", ".join(suite_names(folder))
        if not known:
            raise ConfigError(f"{no_suites(folder)}, or the path of the suite's file")
        raise ConfigError(f"no suite {word!r} in {folder}; there is: {known}. Or give the path of its file")
    return found


def suite_names(folder: Path = FOLDER) -> list[str]:
    """Suites of a folder."""
    return sorted(p.stem for p in folder.glob("*.yaml"))


def no_suites(folder: Path) -> str:
    """What to do where nothing is found: the default folder is one of the clone."""
    shown = folder if folder.is_absolute() else f"./{folder}"
    return f"no suites in {shown}; stand in the clone, or give --scenarios DIR"


def load_suite(path: Path) -> Suite:
    """Check a suite and every configuration it makes, before anything runs.

    Raises:
        ConfigError: listing every fault, each with field or scenario, value and remedy.
    """
    source = str(path)
    values = parse_file(path, source)
    faults = list(_faults(values, path))
    if faults:
        raise _error(source, faults)
    scenarios = []
    for name, places, parts in _product(path.stem, values):
        try:
            merged = _merged(parts)
            config = load_run_config(merged, source=name, base=path.parent)
        except ConfigError as error:
            # All faults of a scenario follow its name; the first line is the one with the count.
            faults += [f"{name}: {line.strip()}" for line in str(error).splitlines()[1:] or [str(error)]]
            continue
        scenarios.append(Scenario(name, places, config, path.parent.absolute()))
    if faults:
        raise _error(source, faults)
    if not scenarios:
        raise ConfigError(f"{source}: leave_out leaves no scenario")
    scenarios.sort(key=lambda s: s.name)
    return Suite(path.stem, path, values.get("about") or "", values.get("keep") or "failed", tuple(scenarios))


def _error(source: str, faults: Iterable[str]) -> ConfigError:
    lines = list(dict.fromkeys(faults))
    return ConfigError(f"{source}: {len(lines)} problem(s)\n" + "\n".join(f"  {line}" for line in lines))


def _faults(values: Mapping[str, Any], path: Path) -> Iterator[str]:
    """What is wrong with the file itself."""
    if not _PLACE.fullmatch(path.stem):
        yield f"file name {path.stem!r}: a suite is named by small letters, digits, dashes and underscores"
    for name in values:
        if name not in _FIELDS:
            close = difflib.get_close_matches(str(name), _FIELDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"use: {', '.join(_FIELDS)}"
            yield f"{name}={_short(values[name])}: unknown field; {hint}"
    if not isinstance(values.get("about", ""), str):
        yield f"about={_short(values['about'])}: write text"
    if values.get("keep", "failed") not in KEEPS:
        yield f"keep={_short(values['keep'])}: not one of the allowed values; use {', '.join(KEEPS)}"
    yield from _part_faults("common", values.get("common", {}))
    if not any(axis in values for axis in AXES):
        yield f"no axis: give at least one of {', '.join(AXES)}"
    for axis in AXES:
        if axis in values:
            yield from _axis_faults(axis, values[axis])
    yield from _leave_out_faults(values)


def _axis_faults(axis: str, places: Any) -> Iterator[str]:
    if not isinstance(places, Mapping) or not places:
        yield f"{axis}: expected names, each with a part of a run configuration"
        return
    for name, part in places.items():
        if not isinstance(name, str) or not _PLACE.fullmatch(name):
            yield f"{axis}.{name}: use small letters, digits, dashes and underscores"
        else:
            yield from _part_faults(f"{axis}.{name}", part)


def _part_faults(where: str, part: Any) -> Iterator[str]:
    if part is None:
        return
    if not isinstance(part, Mapping):
        yield f"{where}={_short(part)}: expected a part of a run configuration, such as {{seed: 7}}"
        return
    if "name" in part:
        yield f"{where}.name: remove it; scenarios are named after their places"
    if "output" in part:
        yield f"{where}.output: remove it; results go to the warehouse of the command"
    try:
        _expanded(part)
    except ConfigError as error:
        yield f"{where}: {error}"


def _leave_out_faults(values: Mapping[str, Any]) -> Iterator[str]:
    rules = values.get("leave_out", [])
    if not isinstance(rules, list):
        yield "leave_out: expected a list of places, such as [{traces: chat, engines: trtllm}]"
        return
    for i, rule in enumerate(rules):
        if not isinstance(rule, Mapping) or not rule:
            yield f"leave_out[{i}]={_short(rule)}: expected places, such as {{traces: chat, engines: trtllm}}"
            continue
        for axis, place in rule.items():
            known = values.get(axis) if axis in AXES else None
            if not isinstance(known, Mapping):
                yield f"leave_out[{i}].{axis}: no such axis; there are {', '.join(a for a in AXES if a in values)}"
            elif place not in known:
                yield f"leave_out[{i}].{axis}={_short(place)}: no such place; there are {', '.join(map(str, known))}"


def _product(suite: str, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], list[tuple[str, Any]]]]:
    """(name, places, parts in the order in which they are merged) of every scenario that is not left out."""
    axes = [axis for axis in AXES if axis in values]
    for chosen in itertools.product(*(values[axis] for axis in axes)):
        places = dict(zip(axes, chosen, strict=True))
        if any(all(places.get(a) == p for a, p in rule.items()) for rule in values.get("leave_out", [])):
            continue
        parts = [("common", values.get("common"))]
        parts += [(f"{axis}.{place}", values[axis][place]) for axis, place in places.items()]
        name = ".".join([suite, *chosen])
        if len(name) > _LONGEST:
            raise ConfigError(f"{name}: {len(name)} letters; a scenario's name may have {_LONGEST}: use shorter places")
        yield name, places, parts


def _merged(parts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """One configuration of the parts; two axes must not set the same field to different values.

    Raises:
        ConfigError: they do.
    """
    whole: dict[str, Any] = {}
    setter: dict[str, tuple[str, Any]] = {}
    faults = []
    for where, part in parts:
        for field, value in _leaves(_expanded(part or {})):
            before, given = setter.get(field, ("common", value))
            if before != "common" and given != value:
                faults.append(f"{field}: set by {before} to {_short(given)} and by {where} to {_short(value)}")
            setter[field] = where, value
        _into(whole, _expanded(part or {}))
    if faults:
        raise ConfigError("\n".join(["", *faults]))
    return whole


def _expanded(part: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names, as in `--set`, written out as sections."""
    out: dict[str, Any] = {}
    for name, value in part.items():
        inner: Any = _expanded(value) if isinstance(value, Mapping) else deepcopy(value)
        for step in reversed(str(name).split(".")):
            if not step:
                raise ConfigError(f"{name!r}: write path.to.field")
            inner = {step: inner}
        _into(out, inner)
    return out


def _into(whole: dict[str, Any], part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping) and isinstance(whole.get(name), dict) and not _is_other_kind(whole[name], value):
            _into(whole[name], value)
        else:
            whole[name] = deepcopy(value) if not isinstance(value, Mapping) else deepcopy(dict(value))


def _is_other_kind(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Sections with a `type` have other fields when the type is another: they replace each other."""
    return "type" in after and before.get("type", after["type"]) != after["type"]


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
