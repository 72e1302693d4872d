"""What a person sees: the Dagster UI runs the demo and shows its checks, reports draw themselves without a network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.commands.ui import HOST, free_port
from pipelines.instance import open_instance
from pipelines.partitions import register
from tests.pipelines.browser import Browser, chromium
from tests.pipelines.conftest import Cli

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: chromium, chromium-browser or google-chrome"),
]
ROOT = Path(__file__).parents[2]
PATIENCE_S = 600  # a busy machine starts Dagster in minutes, and may have to compile


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    pytest.importorskip("websockets")
    with Browser(tmp_path / "profile") as opened:
        yield opened


@pytest.fixture
def ui(root: Path) -> Iterator[str]:
    """The address of a UI over a warehouse in which the demo is registered."""
    with open_instance(root) as instance:
        register(instance, root, ROOT / "examples" / "demo.yaml")
    port = free_port(3300)
    command = [sys.executable, "-m", "pipelines", "ui", "--port", str(port), "-w", str(root)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with open(root / "ui.log", "w") as log:
        child = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        address, deadline = f"http://{HOST}:{port}", time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(address, timeout=10).close()
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the UI did not start:\n{(root / 'ui.log').read_text()[-3000:]}")
                time.sleep(1)
        yield address
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=60)


def test_the_demo_is_run_in_the_ui_and_its_checks_are_read(ui: str, browser: Browser) -> None:
    browser.open(f"{ui}/locations/tracemill/jobs/replay_graph")
    browser.press("Materialize all", PATIENCE_S)
    browser.press("All")  # partitions: there is one
    browser.press("Launch 1 run")
    # The page asks the server; going elsewhere before it has answered would take the question back.
    browser.wait_until("!document.body.innerText.includes('Partition selection')", PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while "Success" not in browser.text():
        browser.open(f"{ui}/runs")
        time.sleep(5)
        assert time.monotonic() < deadline and "Failed to start" not in browser.text(), browser.text()[:3000]
    browser.open(f"{ui}/assets/passes?view=checks")
    text = browser.wait_for_text("kv_blocks_are_conserved")
    text = browser.wait_for_text("Passed")
    assert "blocks in use + cached + free = the pool, in every pass" in browser.wait_for_text("the pool, in every pass")
    assert "Failed" not in text
    browser.open(f"{ui}/assets/replay?view=overview")
    assert "result_digest" in browser.wait_for_text("kv_pool_over_time")
    assert outside(browser) == []


def test_reports_draw_themselves_without_a_network(cli: Cli, tiny: Path, tmp_path: Path, browser: Browser) -> None:
    for change in ((), ("--set", "engine.workers.aggregated.timing.decode_ms=4")):
        assert cli("replay", tiny, "--json", *change).exit_code == 0
    first = json.loads(cli("sql", "SELECT min(run_id) AS r FROM runs", "--format", "json").stdout)["r"]
    browser.command("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                    uploadThroughput=-1)  # fmt: skip
    for words, charts, said in (((), 7, "Who waited longest"), ((first, "last"), 8, "First divergent pass")):
        target = tmp_path / f"{charts}.html"
        assert cli("report", *words, "-o", target).exit_code == 0
        browser.open(target.as_uri())
        browser.wait_for_text(said)
        browser.wait_until("document.readyState === 'complete'")
        assert browser.evaluate("document.querySelectorAll('.chart').length") == charts
        drawn = "[...document.querySelectorAll('.chart')].filter(c => c.querySelector('svg.main-svg')).length"
        assert browser.evaluate(drawn) == charts
        # No chart is wider than its frame.
        right = "getBoundingClientRect().right"
        within = f"c => c.querySelector('svg.main-svg').{right} <= c.{right} + 1"
        assert browser.evaluate(f"[...document.querySelectorAll('.chart')].every({within})")
    assert outside(browser) == []


def outside(browser: Browser) -> list[str]:
    """Addresses that are not on this machine."""
    own = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "file:", "blob:", "about:", "chrome")
    return [url for url in browser.requested if not url.startswith(own)]
