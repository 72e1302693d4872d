"""A headless Chromium, driven over its DevTools protocol: enough to open a page, press buttons and read it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--hide-scrollbars", "--remote-debugging-port=0", "--window-size=1600,1400",
)  # fmt: skip


def chromium() -> str | None:
    """The browser's path; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page. `websockets` comes with Dagster's web server."""

    def __init__(self, profile: Path) -> None:
        from websockets.sync.client import connect

        path = chromium()
        assert path is not None
        self._open = contextlib.ExitStack()
        self._child = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            port_file = profile / "DevToolsActivePort"
            self._wait(lambda: port_file.exists() and port_file.read_text().strip(), "the browser to start", 60)
            port = port_file.read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
                page = next(t for t in json.load(answer) if t["type"] == "page")
            self._socket = self._open.enter_context(connect(page["webSocketDebuggerUrl"], max_size=None))
        except BaseException:
            self.close()
            raise
        self._number = 0
        self.requested: list[str] = []
        self.command("Network.enable")
        self.command("Page.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; addresses of requests are noted on the way."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("method") == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self) -> str:
        """What the page says."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for_text(self, wanted: str, timeout_s: float = 90) -> str:
        self._wait(lambda: wanted in self.text(), f"{wanted!r}", timeout_s)
        return self.text()

    def wait_until(self, script: str, timeout_s: float = 90) -> None:
        self._wait(lambda: self.evaluate(script), script, timeout_s)

    def press(self, label: str, timeout_s: float = 60) -> None:
        """Press the first button or link whose text begins with `label`, as soon as it can be pressed."""
        script = f"""(() => {{
            const found = [...document.querySelectorAll('button, a, [role=button]')].find(
                e => e.innerText.trim().startsWith({json.dumps(label)}) && !e.disabled && e.offsetParent);
            if (found) found.click();
            return !!found; }})()"""
        self._wait(lambda: self.evaluate(script), f"a button {label!r}", timeout_s)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        image = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))

    def close(self) -> None:
        """End the browser and whatever it started."""
        self._open.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _wait(self, done: Any, what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                said = self.text()[:2000] if hasattr(self, "_socket") else ""
                raise TimeoutError(f"waited {timeout_s:g} s for {what}; the page says:\n{said}")
            time.sleep(0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
