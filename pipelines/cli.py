"""Command line: `tracemill ...`. Assembles the commands; each lives in a file of its own."""

from __future__ import annotations

import click

from pipelines.commands.accuracy import accuracy
from pipelines.commands.anomalies import anomalies
from pipelines.commands.baseline import baseline
from pipelines.commands.bench import bench
from pipelines.commands.calibrate import calibrate
from pipelines.commands.demo import demo
from pipelines.commands.diff import diff
from pipelines.commands.evidence import evidence
from pipelines.commands.export import export
from pipelines.commands.golden import golden
from pipelines.commands.matrix import matrix
from pipelines.commands.perf import perf
from pipelines.commands.perf_diff import diff as perf_diff
from pipelines.commands.perf_import import import_ as perf_import
from pipelines.commands.perf_list import list_ as perf_list
from pipelines.commands.perf_quality import quality as perf_quality
from pipelines.commands.perf_register import register as perf_register
from pipelines.commands.perf_time import time as perf_time
from pipelines.commands.perf_tune import tune as perf_tune
from pipelines.commands.register import register
from pipelines.commands.replay import replay
from pipelines.commands.report import report
from pipelines.commands.runs import runs, show
from pipelines.commands.sql import sql
from pipelines.commands.store import store
from pipelines.commands.timeline import timeline
from pipelines.commands.trace import trace
from pipelines.commands.ui import ui
from pipelines.commands.validate import validate
from pipelines.commands.warmup import warmup
from pipelines.exits import Guarded


@click.group(cls=Guarded, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tracemill")
def main() -> None:
    """Replay LLM-serving traces and ask what happened, in SQL.

    Exit codes: 0 fine, 1 a check failed or an answer differs, 2 the input is at fault, 70 tracemill is.
    """


for command in (replay, validate, show, runs, sql, export, demo, golden, store, warmup, register, trace, ui, perf):
    main.add_command(command)
# The regression desk.
for command in (diff, anomalies, baseline, evidence, matrix, report, timeline, bench):
    main.add_command(command)
# Performance data.
for command in (perf_list, perf_quality, perf_import, perf_diff, perf_register, perf_tune, perf_time):
    perf.add_command(command)
# Measurements.
for command in (accuracy, calibrate):
    main.add_command(command)
