"""A writing process for the tests: commits runs, or dies at a chosen moment.

Usage: writer_process.py ROOT PREFIX COUNT [MOMENT]
"""

from __future__ import annotations

import os
import signal
import sys

from perf_db import face, parquet, writer
from perf_db.store import Store
from tests.perf_db.hand_made import hand_made, identity, write_run


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(root: str, prefix: str, count: str, moment: str = "") -> None:
    store = Store(root)
    if moment == "while writing rows":
        parquet.GROUP_ROWS = 2
        run = store.begin(prefix, identity=identity())
        run.rows("requests", hand_made()["requests"])
        die()
    if moment == "before the commit record":
        writer.write_commit = die  # type: ignore[assignment]
    if moment == "before the face":
        face.Face.update = die  # type: ignore[method-assign]
    if moment == "while building the face":
        os.replace, kept = lambda a, b: die() if str(b).endswith(".duckdb") else kept(a, b), os.replace  # type: ignore
    if moment == "until told":
        run = store.begin(prefix, identity=identity())
        run.rows("requests", hand_made()["requests"])
        print("ready", flush=True)
        sys.stdin.readline()
        return
    for i in range(int(count)):
        write_run(store, f"{prefix}{i}")
        print(i, flush=True)


main(*sys.argv[1:])
