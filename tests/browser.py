"""A real browser for tests: headless Chromium, told what to do through a pipe (its DevTools protocol).

Messages are JSON, each ended by a zero byte; no port is opened and no library is needed. The process has a group of
its own, so that nothing of it stays behind.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60.0
"""Seconds that anything may take which takes one on an idle machine."""
HEIGHT = 900

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, where Chromium has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)

# the two ends must be the descriptors 3 and 4; they are moved out of the way first, because one may be the other's goal
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
    os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""

needs_chromium = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not there (Debian's package chromium)"),
]
"""Marks of a test, or a module, that opens a browser."""


class Browser:
    """A running Chromium; see `running`."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process, self._commands, self._answers = process, commands, answers
        self._number, self._rest = 0, b""
        self._pages: dict[str, Page] = {}

    def open(self, address: str | Path, width: int = 1280, *, cut_off: bool = False) -> Page:
        """Open a page in a window of its own, and wait until it is there.

        Parameters
        ----------
        address
            A URL, or a file.
        width
            Of the window, in CSS pixels.
        cut_off
            Nothing but the file itself can be reached: a page that asks the network for anything has an error.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        if cut_off:
            page.call(
                "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
            )
        page.set_width(width)
        url = address if isinstance(address, str) else address.resolve().as_uri()
        answer = page.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url} does not open: {answer['errorText']}"
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'", f"{url} to be loaded")
        return page

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the DevTools protocol; what is told meanwhile goes to its page."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            heard = self._hear(end, method)
            if heard.get("id") == self._number:
                assert "error" not in heard, f"{method}: {heard['error']}"
                return dict(heard["result"])
            page = self._pages.get(heard.get("sessionId", ""))
            if page is not None:
                page.hear(heard["method"], heard["params"])

    def _hear(self, end: float, what: str) -> dict[str, Any]:
        """Return the next message."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"Chromium did not answer to {what} within {PATIENCE:.0f} s"
            part = os.read(self._answers, 1 << 20)
            assert part, f"Chromium has gone, with exit code {self._process.poll()}, at {what}"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """A page in a window.

    Attributes
    ----------
    errors
        What the browser has logged as an error or a warning, and errors of scripts.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self._asked: dict[str, str] = {}
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the DevTools protocol."""
        return self._browser.call(method, self._session, **parameters)

    def hear(self, event: str, about: dict[str, Any]) -> None:
        """Take note of what the browser tells."""
        if event == "Network.requestWillBeSent":
            self._asked[about["requestId"]] = about["request"]["url"]
        elif event == "Network.loadingFailed" and "blockedReason" in about:
            self._asked.pop(about["requestId"], None)
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(part.get("value", part)) for part in about["args"]))

    @property
    def requests(self) -> list[str]:
        """Addresses that it has asked for, its own among them; what its policy forbids is never asked for."""
        return list(self._asked.values())

    def set_width(self, width: int, height: int = HEIGHT) -> None:
        """Give the window another size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for.

        It is evaluated from outside: a page whose policy forbids scripts can be asked as well.
        """
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['result'].get('description')}"
        return answer["result"].get("value")

    def wait(self, script: str, what: str = "", seconds: float = PATIENCE) -> Any:
        """Return the value of an expression once it is true; fail where it does not come true."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {what or script}"
            time.sleep(0.02)
        return value

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """Write what is seen as a PNG file: the whole page, or the window alone."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
        return path


@contextmanager
def running() -> Iterator[Browser]:
    """Start Chromium, and end it with all that it has started.

    Examples
    --------
    ::

        with running() as browser:
            page = browser.open(Path("report.html"), width=400)
            title = page.evaluate("document.title")
    """
    assert CHROMIUM is not None
    command_end, commands = os.pipe()
    answers, answer_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                str(command_end),
                str(answer_end),
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(command_end, answer_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(command_end)
        os.close(answer_end)
        browser = Browser(process, commands, answers)
        try:
            yield browser
        finally:
            with suppress(OSError, AssertionError):  # it may have gone already
                browser.call("Browser.close")
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
            os.close(commands)
            os.close(answers)
