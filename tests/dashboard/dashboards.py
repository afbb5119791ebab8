"""Dashboards as processes, and requests to them as anybody could send them."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))

import jobs  # noqa: E402
from jobs import LaunchTest  # noqa: E402

URL = re.compile(r"dashboard: (https?)://([^:/]+|\[[^]]+\]):(\d+)/#k=(\S+)")


class Dashboard:
    """The address of a dashboard that runs."""

    def __init__(self, text):
        found = URL.search(text)
        assert found, "no address in %r" % text
        self.url = found.group(0).split(" ", 1)[1]
        self.port, self.token = int(found.group(3)), found.group(4)

    def get(self, path, token=True, method="GET", headers=None, host=None):
        """Status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", host or "localhost:%d" % self.port)
            if token:
                connection.putheader("Authorization", "Bearer " + (self.token if token is True else token))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read().decode(errors="replace")
        finally:
            connection.close()

    def state(self):
        status, _, body = self.get("/state")
        assert status == 200, (status, body)
        return json.loads(body)

    def events(self):
        """A stream: yields (name, document) until it ends."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as stream:
            stream.sendall(("GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % self.token).encode())
            data = b""
            while True:
                while b"\n\n" in data.replace(b"\r\n\r\n", b"\n\n", 1):
                    data = data.replace(b"\r\n\r\n", b"\n\n", 1)
                    part, data = data.split(b"\n\n", 1)
                    lines = part.decode().split("\n")
                    if lines[0].startswith("event: "):
                        yield lines[0][7:], json.loads(lines[1][6:])
                more = stream.recv(65536)
                if not more:
                    return
                data += more


class DashboardTest(LaunchTest):
    """A launched job, and a dashboard of it."""

    def job_with_dashboard(self, *words, **kwargs):
        job = self.launch("--dashboard", *words, **kwargs)
        job.wait_for("/#k=")
        self.until(lambda: job.read(0) is not None and URL.search(job.stderr + job.stdout))
        return job, Dashboard(job.stderr + job.stdout)

    def dashboard(self, *words, environment=None):
        """A dashboard started by itself."""
        process = subprocess.Popen([jobs.MILLRACE, "dashboard", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   cwd=self.folder, env=dict(os.environ, **{jobs.MARK: self.mark}, **(environment or {})))

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        line = process.stdout.readline()
        found = Dashboard(line)
        found.process = process
        return found

    def until_state(self, dashboard, reached, seconds=30):
        """The document, once `reached` is true of it."""
        deadline = time.monotonic() + seconds
        while True:
            state = dashboard.state()
            if state and reached(state):
                return state
            if time.monotonic() > deadline:
                raise AssertionError("this did not come to pass in %d s; there is\n%s" % (seconds, json.dumps(state, indent=1)[:5000]))
            time.sleep(0.05)
