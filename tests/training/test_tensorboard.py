"""A log directory of ours in TensorBoard: read back through its HTTP interface, and looked at where there is a browser.

MILLRACE_SCREENSHOT=FILE keeps the picture.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest


class TensorBoard:
    def __init__(self, logs, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = open(os.path.join(folder, "tensorboard.log"), "w+")
        # A group of its own: the server starts a helper that reads the files.
        self.process = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", logs, "--host", "127.0.0.1", "--port", str(self.port),
                                         "--reload_interval", "1", "--load_fast", "false"],
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
                                        env={k: v for k, v in os.environ.items() if "proxy" not in k.lower()})

    def url(self, path, **query):
        return "http://127.0.0.1:%d/%s%s" % (self.port, path, "?" + urllib.parse.urlencode(query) if query else "")

    def get(self, path, **query):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(self.url(path, **query), timeout=20).read()

    def until(self, path, reached, **query):
        """What `path` gives once `reached` likes it."""
        deadline = time.monotonic() + 120
        last = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.text()
            try:
                last = json.loads(self.get(path, **query))
                if reached(last):
                    return last
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                last = error
            time.sleep(0.1)
        raise AssertionError("%s gave at last %r; TensorBoard said: %s" % (path, last, self.text()))

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    logs = folder / "logs"
    subprocess.run([os.environ["PROBE"], "log", str(logs / "train")], check=True, timeout=60)
    server = TensorBoard(str(logs), str(folder))
    yield server
    server.end()


def tags(board, plugin):
    return board.until("data/plugin/%s/tags" % plugin, lambda answer: "train" in answer and answer["train"])["train"]


def test_scalars_are_shown(board):
    assert {"loss", "by_hand"} <= set(tags(board, "scalars"))
    points = board.until("data/plugin/scalars/scalars", lambda p: len(p) == 10, run="train", tag="by_hand")
    assert [p[1] for p in points] == list(range(10))
    assert [p[2] for p in points] == [0.5 * i for i in range(10)]
    losses = [p[2] for p in board.until("data/plugin/scalars/scalars", lambda p: len(p) == 10, run="train", tag="loss")]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_histograms_are_shown(board):
    assert "weights/w" in tags(board, "histograms")
    points = board.until("data/plugin/histograms/histograms", lambda p: len(p) == 10, run="train", tag="weights/w")
    for _, step, buckets in points:
        assert abs(sum(bucket[2] for bucket in buckets) - 100) < 1e-3, step


def test_the_graph_and_what_a_step_took_are_shown(board):
    info = board.until("data/plugin/graphs/info", lambda a: "train" in a and a["train"]["tags"])["train"]
    assert info["run_graph"]
    assert info["tags"]["step 5"]["profile"]
    graph = board.get("data/plugin/graphs/graph", run="train").decode()
    assert 'name: "layer/w"' in graph and "VarHandleOp" in graph and "ScalarSummary" in graph
    metadata = board.get("data/plugin/graphs/run_metadata", run="train", tag="step 5").decode()
    assert "dev_stats" in metadata and "node_stats" in metadata and "layer/w" in metadata


def test_images_and_text_are_shown(board):
    assert any(tag.startswith("pixels") for tag in tags(board, "images"))
    images = board.until("data/plugin/images/images", lambda p: p, run="train", tag=next(iter(tags(board, "images"))), sample=0)
    picture = board.get("data/plugin/images/individualImage?" + images[0]["query"])
    assert picture.startswith(b"\x89PNG")
    assert "note" in tags(board, "text")
    notes = board.until("data/plugin/text/text", lambda p: p, run="train", tag="note")
    assert "<strong>Millrace</strong>" in notes[0]["text"]


def test_sounds_are_shown(board):
    [tag] = tags(board, "audio")
    assert tag.startswith("tone")
    sounds = board.until("data/plugin/audio/audio", lambda p: p, run="train", tag=tag, sample=0)
    assert board.get("data/plugin/audio/individualAudio?" + sounds[0]["query"]).startswith(b"RIFF")


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


@pytest.mark.skipif(browser() is None, reason="no Chromium here")
def test_the_page_opens_in_a_browser(board, tmp_path):
    tags(board, "scalars")
    picture = os.environ.get("MILLRACE_SCREENSHOT", str(tmp_path / "page.png"))
    result = subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--user-data-dir=" + str(tmp_path / "profile"),
                             "--window-size=1400,1000", "--virtual-time-budget=30000", "--screenshot=" + picture, board.url("#timeseries")],
                            capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    with open(picture, "rb") as f:
        assert f.read(8) == b"\x89PNG\r\n\x1a\n"
    assert os.path.getsize(picture) > 20000  # an empty page is smaller
