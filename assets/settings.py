"""What a person types into the launchpad, and how it becomes a checked configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from pydantic import ConfigDict, Field

from assets.errors import INPUT_ERRORS
from assets.partitions import Recipe, recall
from perf_db.store import Store

INPUT_FAULTS: tuple[type[Exception], ...] = (*INPUT_ERRORS, OSError)
TRACES = dg.DynamicPartitionsDefinition(name="trace")
INBOX = dg.DynamicPartitionsDefinition(name="inbox")  # of these, those that can be replayed are traces as well


class RunSettings(dg.Config):
    """Which configuration to replay. Strict: dg.Config alone would swallow a misspelt name.

    Left empty, the configuration registered with the partition is used.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    config_file: str = Field(default="", description="run configuration (YAML); empty: the partition's own")
    overrides: list[str] = Field(default_factory=list, description="key=value each, applied on top of the file")


def recipe_of(context: dg.AssetExecutionContext, settings: RunSettings, store: Store) -> Recipe:
    """The configuration file and overrides this run is about; raises ConfigError."""
    if settings.config_file:
        return Recipe(Path(settings.config_file).absolute(), tuple(settings.overrides))
    known = recall(store.root, context.partition_key)
    return Recipe(known.config_file, (*known.overrides, *settings.overrides))


@contextmanager
def input_faults() -> Iterator[None]:
    """Turn errors that lie in the input into one readable failure, which no retry would mend."""
    try:
        yield
    except INPUT_FAULTS as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
