"""The UI command finds a port and takes its whole process group with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from pipelines.commands import ui

# Ignores the polite signal, as Dagster's server does, and has a child.
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal, time; "
    "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)'])\n"
    "print(child.pid, flush=True); time.sleep(60)"
)


def test_the_next_free_port_is_taken() -> None:
    with socket.socket() as busy:
        busy.bind((ui.HOST, 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert ui.free_port(port) != port


def test_the_whole_group_ends_even_if_it_does_not_want_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "GRACE_S", 0.5)
    command = [sys.executable, "-c", STUBBORN]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    ui.end_group(child)
    assert child.poll() is not None
    for _ in range(50):
        if not _alive(grandchild):
            return
        time.sleep(0.1)
    pytest.fail("a process of the group outlived it")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Killed and not yet reaped by whoever adopted it.
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
