"""From a YAML file (or a mapping) and overrides to a RunConfig, or to one error that lists every fault."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.config.base import ConfigError
from sim.config.engine import PREFILL_MAX_SEQUENCES, TRTLLM_BLOCK_SIZE
from sim.config.lengths import NUMBER
from sim.config.rules import ABSENT, Fault, Raw, faults
from sim.config.run import ROLES, RunConfig
from sim.config.schema import names_at, paths_to
from sim.config.timing import CHOOSE
from sim.config.traffic import DEFAULT_TRAFFIC
from sim.config.yaml_text import parse_file, parse_scalar

MOST_PLACES = 2  # of one name: a suggestion, not a list of everything


def load_run_config(
    path_or_mapping: str | Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    source: str | None = None,
    base: Path | None = None,
) -> RunConfig:
    """Check a configuration completely before anything runs.

    Args:
        path_or_mapping: a YAML file, or its content already parsed.
        overrides: `a.b.c=value` with the value in YAML, applied left to right before checking.
        source: what the error calls the configuration; default: the file, or "configuration".
        base: folder that relative paths in a mapping start from; a file's paths start from its own folder.

    Raises:
        ConfigError: listing every fault, each with field, value and remedy.
    """
    if isinstance(path_or_mapping, Mapping):
        values, source = deepcopy(dict(path_or_mapping)), source or "configuration"
    else:
        path = Path(path_or_mapping)
        source, base = source or str(path_or_mapping), base or path.parent
        values = parse_file(path, source)
    # Written out before overrides, so that one can change a single number of the default traffic.
    values.setdefault("traffic", deepcopy(DEFAULT_TRAFFIC))
    problems, assigned = _apply(values, overrides)
    _fill_in_backend(values)
    config = None
    try:
        config = RunConfig.model_validate(values, context={"base": base})
    except ValidationError as error:
        problems += [_fault(each, values, assigned) for each in error.errors()]
    problems += faults(values)
    if problems or config is None:
        lines = "\n".join(f"  {line}" for line in dict.fromkeys(_line(each) for each in problems))
        raise ConfigError(f"{source}: {len(lines.splitlines())} problem(s)\n{lines}")
    return config


def _fill_in_backend(values: dict[str, Any]) -> None:
    """Defaults that depend on backend and role, written out where the file says nothing."""
    raw = Raw(values)
    prefill = raw.get("engine.workers.prefill")
    if isinstance(prefill, dict) and isinstance(scheduler := prefill.setdefault("scheduler", {}), dict):
        scheduler.setdefault("max_sequences", PREFILL_MAX_SEQUENCES)
    if raw.get("engine.backend") != "trtllm":
        return
    values.setdefault("profile", "trtllm")
    for role in ROLES:
        worker = raw.get(f"engine.workers.{role}")
        if isinstance(worker, dict) and isinstance(cache := worker.setdefault("kv_cache", {}), dict):
            cache.setdefault("block_size", TRTLLM_BLOCK_SIZE)


def _apply(values: dict[str, Any], overrides: Sequence[str]) -> tuple[list[Fault], set[str]]:
    """Write overrides into the values; return what is wrong with them, and the paths they set."""
    problems: list[Fault] = []
    assigned: set[str] = set()
    for text in overrides:
        path, equals, value = text.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            problems.append(Fault(f"--set {text}", ABSENT, "write path.to.field=value"))
            continue
        here = values
        for depth, part in enumerate(parts[:-1]):
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                at = ".".join(parts[: depth + 1])
                problems.append(Fault(f"--set {path}", ABSENT, f"{at} is a value, not a section"))
                break
            here = inner
        else:
            try:
                here[parts[-1]] = parse_scalar(value)
            except ValueError as error:
                problems.append(Fault(f"--set {path}", value, f"not readable as YAML: {error}"))
            assigned.add(".".join(parts))
    return problems, assigned


# What to do about each kind of fault that pydantic reports in its own words.
_REMEDY = {
    "missing": "required; add it",
    "model_type": "expected a section of fields",
    "model_attributes_type": "expected a section of fields",
    "bool_type": "write true or false",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "string_type": "write text",
    "list_type": "write a list",
    "finite_number": "write a finite number",
}


def _fault(error: Any, values: dict[str, Any], assigned: set[str]) -> Fault:
    """One of pydantic's faults in our form."""
    parts = _walk(error["loc"], values)
    field, kind, value, context = ".".join(parts), error["type"], error["input"], error.get("ctx", {})
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if kind == "extra_forbidden":
        by_override = next((path for path in sorted(assigned) if f"{path}.".startswith(f"{field}.")), None)
        if by_override:
            given = Raw(values).get(by_override)
            rest = by_override[len(field) :]
            return Fault(f"--set {by_override}", given, f"no such field; {_spelling(parts, values, rest)}")
        return Fault(field, value, f"unknown field; {_spelling(parts, values)}")
    if kind == "literal_error":
        message = f"not one of the allowed values; use {context['expected']}"
    elif kind == "union_tag_invalid":
        field, value = f"{field}.type", context["tag"]
        message = f"not one of the allowed values; use {context['expected_tags']}"
    elif kind == "union_tag_not_found":
        field, value, message = f"{field}.type", ABSENT, "required; add it"
    elif kind == "string_pattern_mismatch":
        message = "use letters, digits, dots, dashes and underscores, at most 100"
    elif kind == "missing" and parts[-1] == "timing":
        # Not the polynomial in silence.
        message = f"required; {CHOOSE}"
    else:
        message = _REMEDY.get(kind, message)
    if value is None and kind in ("model_type", "model_attributes_type"):
        message = "null is not the default; give its fields, or leave it out where it has a default"
    return Fault(field, ABSENT if kind == "missing" else value, message)


def _walk(loc: tuple[int | str, ...], values: Any) -> list[str]:
    """The path as the user wrote it: after a section with a `type`, pydantic also names the chosen type."""
    parts: list[str] = []
    here, entered = values, False
    for part in loc:
        if part == NUMBER and not isinstance(here, dict):
            continue  # one of the alternatives of a length
        if entered and here.get("type") == part:
            entered = False
            continue
        parts.append(str(part))
        inside = isinstance(here, (dict, list)) and isinstance(here, dict) != isinstance(part, int)
        here = (here.get(part) if isinstance(here, dict) else here[part]) if inside else None
        entered = isinstance(here, dict) and "type" in here
    return parts


def _spelling(parts: list[str], values: dict[str, Any], rest: str = "") -> str:
    """The closest known name, else the place where a field of this name stands, else the names there are.

    Args:
        rest: what was asked for inside the field.
    """
    known = names_at(parts[:-1], values)
    close = difflib.get_close_matches(parts[-1], known, n=1) or _by_first_words(parts[-1], known)
    if close:
        return f"did you mean {close[0]}?"
    if parts[-1] not in known and (places := _places(parts, rest, values)):
        top = " (at the top level)" if "." not in places[0].removesuffix(rest) else ""
        return f"did you mean {' or '.join(places)}{top}?"
    return f"remove it, or use one of: {', '.join(known)}" if known else "remove it"


def _places(parts: list[str], rest: str, values: dict[str, Any]) -> list[str]:
    """Where a field of this name stands elsewhere, in the roles there are; none if in too many places to be meant."""
    raw, here = Raw(values), ".".join(parts)
    absent = tuple(f"engine.workers.{role}." for role in ROLES if not raw.has(f"engine.workers.{role}"))
    inside = paths_to(rest.rpartition(".")[2]) if rest else {}
    found = [
        f"{path}{rest}"
        for path, is_section in paths_to(parts[-1]).items()
        # A number is not meant for a section, nor this place, which is one of another `type`.
        if path != here and not path.startswith(absent) and (isinstance(raw.get(here), dict) or not is_section)
    ]
    found = [place for place in found if not rest or place in inside]
    return found if len(found) <= MOST_PLACES else []


def _by_first_words(name: str, known: Sequence[str]) -> list[str]:
    """The name that begins with what was meant: units at its end are easily left out."""
    words = {one.rpartition("_")[0]: one for one in known if "_" in one}
    words |= {one.split("_")[0]: one for one in known if "_" in one}
    return [words[found] for found in difflib.get_close_matches(name, words, n=1, cutoff=0.8)]


def _line(fault: Fault) -> str:
    if fault.value is ABSENT or isinstance(fault.value, (dict, list)):
        return f"{fault.field}: {fault.remedy}"
    text = repr(fault.value)
    return f"{fault.field}={text if len(text) <= 80 else text[:77] + '...'}: {fault.remedy}"
