"""`tracemill ui`: the Dagster UI over this project, with its history in the warehouse."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from pipelines.instance import dagster_home
from pipelines.options import warehouse, warehouse_root

HOST = "127.0.0.1"
GRACE_S = 10.0


@click.command()
@click.option("--port", default=3000, show_default=True, help="First port to try; the next free one is taken.")
@warehouse
def ui(port: int, root: Path | None) -> None:
    """Open the Dagster UI on 127.0.0.1 until Ctrl-C."""
    folder = warehouse_root(root)
    taken = free_port(port)
    if taken != port:
        click.echo(f"Port {port} is busy, taking {taken}.", err=True)
    click.echo(f"Dagster UI: http://{HOST}:{taken}   (ready in about 15 seconds; Ctrl-C ends it)", err=True)
    environment = os.environ | {"DAGSTER_HOME": str(dagster_home(folder)), "TRACEMILL_WAREHOUSE": str(folder)}
    workspace = Path(__file__).parents[2] / "workspace.yaml"
    command = [sys.executable, "-m", "dagster", "dev", "-h", HOST, "-p", str(taken), "-w", str(workspace)]
    # The supersession notice advertises another front end of theirs; `--log-level` leaves our own lines readable.
    command += ["--log-level", "warning"]
    raise SystemExit(serve(command, environment))


def free_port(first: int, tries: int = 50) -> int:
    """The first port from `first` on that nobody listens on."""
    for port in range(first, first + tries):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise click.ClickException(f"ports {first} to {first + tries - 1} are all busy; say --port")


def serve(command: list[str], environment: dict[str, str]) -> int:
    """Run `command` until it ends or we are told to stop; leave no process of its group behind.

    Dagster's development server starts several processes and outlives a polite SIGTERM, so it gets a process group
    of its own, an interrupt, some seconds of grace, and then SIGKILL for that group.
    """
    child = subprocess.Popen(command, env=environment, start_new_session=True)

    def stop(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)
    try:
        return child.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        end_group(child)


def end_group(child: subprocess.Popen[Any]) -> None:
    """Interrupt, wait, kill: nothing of the group is left afterwards."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            child.poll()  # reaps the leader; the group may live on without it
            os.killpg(child.pid, 0)
            time.sleep(0.1)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
