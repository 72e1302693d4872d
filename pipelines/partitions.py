"""Registering a trace as a partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.inputs import prepare
from assets.partitions import Recipe, partition_key, remember
from assets.settings import TRACES


def register(instance: dg.DagsterInstance, root: Path, config_file: Path, overrides: Sequence[str] = ()) -> str:
    """Make the trace of a configuration a partition, and keep the configuration as its recipe.

    Returns:
        The partition's key. Registering the same trace again replaces its recipe.

    Raises:
        ConfigError, TraceError: the configuration or its trace cannot be used.
    """
    recipe = Recipe(config_file.absolute(), tuple(overrides))
    facts = prepare(recipe.load(), base=recipe.base).provenance
    key = partition_key(facts["path"], facts["digest"])
    remember(root, key, recipe)
    assert TRACES.name is not None
    instance.add_dynamic_partitions(TRACES.name, [key])
    return key
