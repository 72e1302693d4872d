"""Reading YAML strictly: no doubled keys, and 1e3 is a number."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from sim.config.base import ConfigError

# Nested too deep, or a number of thousands of digits: as little a configuration as broken syntax is.
_UNREADABLE = (yaml.YAMLError, RecursionError, ValueError)
_TRACE_ENDING = re.compile(r"\.(jsonl|csv|parquet)(\.gz|\.zst)?$|\.json\.(gz|zst)$")
_A_TRACE = "this looks like a trace; name it in a run configuration (traffic.source.path), or use `tracemill validate`"


class _Loader(yaml.SafeLoader):
    """YAML as people mean it. The plain loader keeps the last of two equal keys and reads 1e3 as text."""


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
        if isinstance(key, (dict, list)):
            continue
        if key in seen:
            mark = key_node.start_mark
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=deep)


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    """YAML 1.1 takes 010 for eight and 1:30 for ninety; nobody who writes that here means it."""
    digits = node.value.lstrip("+-").replace("_", "")
    if ":" in digits or (len(digits) > 1 and digits[0] == "0" and digits.isdigit()):
        plain = digits.lstrip("0") or "0"
        raise yaml.constructor.ConstructorError(
            None,
            None,
            f"{node.value} is read as a number to another base; write {plain if ':' not in digits else 'it out'}, "
            f'or "{node.value}" for text',
            node.start_mark,
        )
    return int(yaml.SafeLoader.construct_yaml_int(loader, node))  # type: ignore[no-untyped-call]


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_file(path: Path, source: str) -> dict[str, Any]:
    """The mapping in a file.

    Raises:
        ConfigError: no such file, not text, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{source}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        if _is_trace(path, ""):
            raise ConfigError(f"{source}: {_A_TRACE}") from None
        raise ConfigError(f"{source}: cannot be read: {error}") from None
    if _is_trace(path, text):
        raise ConfigError(f"{source}: {_A_TRACE}")
    try:
        values = yaml.load(text, _Loader)
    except _UNREADABLE as error:
        raise ConfigError(f"{source}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: expected sections such as traffic: and engine:")
    return values


def _is_trace(path: Path, text: str) -> bool:
    """By its ending, or because several lines begin with one that is a JSON object of its own."""
    if _TRACE_ENDING.search(path.name.lower()):
        return True
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("{") or not rest.strip():
        return False
    try:
        return isinstance(json.loads(first), dict)
    except _UNREADABLE:
        return False


def parse_scalar(text: str) -> Any:
    """A value given on the command line.

    Raises:
        ValueError: not YAML.
    """
    try:
        return yaml.load(text, _Loader)
    except _UNREADABLE as error:
        raise ValueError(" ".join(str(error).split())) from None
