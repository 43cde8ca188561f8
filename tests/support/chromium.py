import base64
import json
import os
import select
import subprocess
import sys
import time

import pytest

from tests.support.needs import CHROMIUM

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--remote-debugging-pipe",
]
FLAGS += [
    f"--disable-{what}"
    for what in ("background-networking", "component-update", "sync")
]
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium, spoken to by the DevTools protocol over a pipe: real keys, a real pointer."""

    def __init__(self, profile):
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        profile_flag = f"--user-data-dir={profile}"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _PIPES,
                str(read),
                str(write),
                CHROMIUM,
                *FLAGS,
                profile_flag,
                "about:blank",
            ],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._buffer, self._calls, self.events = b"", 0, []
        self._session = None
        pages = [
            t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page"
        ]
        self._session = self(
            "Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method, **params):
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._calls:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def _receive(self):
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], 120)[0], "Chromium does not answer"
            some = os.read(self._in, 1 << 20)
            assert some, "Chromium has ended"
            self._buffer += some
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def size(self, width, height):
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, path, width=1200, height=900, **media):
        """Load one of our pages and wait for it and all its answers."""
        self.size(width, height)
        features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
        self("Emulation.setEmulatedMedia", features=features)
        self("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        self.visit(path.as_uri())
        self.wait(
            "document.querySelectorAll('.card').length === "
            "Math.min(200, JSON.parse(data.textContent).items.length)"
        )

    def visit(self, url):
        """Load any page; what it logs is in `events`."""
        self.events.clear()
        self("Page.navigate", url=url)
        while not any(
            e["method"] in ("Page.loadEventFired", "Page.navigatedWithinDocument")
            for e in self.events
        ):
            self.events.append(self._receive())

    def picture(self):
        """What the window shows, as PNG."""
        self("Emulation.setScrollbarsHidden", hidden=True)
        png = base64.b64decode(
            self("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        )
        self("Emulation.setScrollbarsHidden", hidden=False)
        return png

    def js(self, code):
        """The value of an expression in the page."""
        reply = self(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def wait(self, code, seconds=30):
        """Until an expression in the page is true."""
        end = time.monotonic() + seconds
        while not self.js(code):
            assert time.monotonic() < end, code
            time.sleep(0.02)

    def key(self, *names):
        """Press keys one after the other."""
        for name in names:
            text = {"text": "\r"} if name == "Enter" else {}
            for kind in ("keyDown", "keyUp"):
                self(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=name,
                    code=name,
                    windowsVirtualKeyCode=KEYS[name],
                    **text,
                )

    def point(self, selector, *, click=False):
        """Move the mouse to an element's first line, and perhaps press it."""
        spot = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];"
            "return {x: r.x + r.width / 2, y: r.y + r.height / 2} })()"
        )
        for kind in (
            "mouseMoved",
            *(("mousePressed", "mouseReleased") if click else ()),
        ):
            self(
                "Input.dispatchMouseEvent",
                type=kind,
                button="left" if click else "none",
                clickCount=1,
                **spot,
            )

    def texts(self, selector):
        """Text of all elements of a kind."""
        return self.js(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
        )


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip(
            "Chromium is not installed: the page was not tried in a browser (apt-get install chromium)"
        )
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser("Browser.close")
    browser.process.wait(30)
