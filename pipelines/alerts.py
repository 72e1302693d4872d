"""Telling somebody when a job fails: a command of theirs gets the facts as JSON.

`$TRACEMILL_ALERT` is a command line; without it a failure is only logged. An example is in docs/matrix.md.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any

import dagster as dg

VARIABLE = "TRACEMILL_ALERT"
TIMEOUT_S = 30


@dg.failure_hook(name="alert_on_failure")
def alert_on_failure(context: dg.HookContext) -> None:
    """Runs whenever a step of the job fails, failed blocking checks included."""
    facts = facts_of(context)
    command = os.environ.get(VARIABLE, "").strip()
    if not command:
        context.log.info(f"{facts['job']} failed; {VARIABLE} names no command, so nobody is told")
        return
    fault = send(command, facts)
    # A hook that fails would hide the failure it is about.
    context.log.error(fault) if fault else context.log.info(f"told {command!r}")


def facts_of(context: dg.HookContext) -> dict[str, Any]:
    """What an alert says."""
    error = context.op_exception
    run = context.instance.get_run_by_id(context.run_id)
    tags = run.tags if run else {}
    return {
        "job": context.job_name,
        "step": context.step_key,
        "dagster_run_id": context.run_id,
        "partition": tags.get("dagster/partition"),
        "matrix_id": tags.get("tracemill/matrix_id"),
        "error": str(error) if error else None,
    }


def send(command: str, facts: dict[str, Any]) -> str | None:
    """Give the facts to a command on standard input; returns what went wrong."""
    try:
        done = subprocess.run(
            shlex.split(command),
            input=json.dumps(facts),
            text=True,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"{VARIABLE}: {error}"
    return f"{VARIABLE}: exit code {done.returncode}: {done.stderr[-500:]}" if done.returncode else None
