"""A real Chromium, driven over the DevTools protocol through a pipe."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page. Use it as a context."""

    def __init__(self, environment=None):
        self.folder = tempfile.TemporaryDirectory(prefix="millrace-browser-")
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()
        words = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--no-first-run",
                 "--disable-dev-shm-usage", "--user-data-dir=" + self.folder.name, "about:blank"]

        def give_pipes():
            # 3 and 4 are where Chromium looks for them. They are in use here, if only by these pipes.
            ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (to_browser, from_browser)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=give_pipes, pass_fds=(3, 4), start_new_session=True,
                                        env=dict(os.environ, **(environment or {})))
        os.close(to_browser)
        os.close(from_browser)
        self.data, self.last, self.session = b"", 0, None
        self.messages = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.folder is None:
            return
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            pass
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            os.close(self.writer)
            os.close(self.reader)
            self.folder.cleanup()
            self.folder = None

    def next_message(self, deadline):
        while b"\0" not in self.data:
            if not select.select([self.reader], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            more = os.read(self.reader, 1 << 16)
            if not more:
                raise AssertionError("the browser has ended")
            self.data += more
        message, self.data = self.data.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, seconds=30, **parameters):
        self.last += 1
        request = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.writer, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            message = self.next_message(deadline)
            if message.get("id") == self.last:
                if "error" in message:
                    raise AssertionError("%s: %s" % (method, message["error"]))
                return message["result"]
            self.messages.append(message)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.body !== null")

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def until(self, script, seconds=30):
        deadline = time.monotonic() + seconds
        while True:
            # While a page is loaded, nothing of it may be there.
            value = self.run("(() => { try { return %s } catch { return null } })()" % script)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError("%s did not become true; the page says\n%s" % (script, self.run("document.body.innerText")[:3000]))
            time.sleep(0.05)

    def resize(self, width, height, dark=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path, whole=True):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(picture))

    def complaints(self):
        """Errors that scripts or the browser reported."""
        found = []
        for message in self.messages:
            if message.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(message["params"])[:1000])
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                found.append(message["params"]["entry"]["text"])
        return found

    def requested(self):
        """The addresses that the page has asked for."""
        return [m["params"]["request"]["url"] for m in self.messages if m.get("method") == "Network.requestWillBeSent"]
