"""dashboard_test.py MILLRACE CLUSTER_PROBE: the dashboard beside real jobs, and what strangers get from its port."""

import json
import os
import signal
import socket
import ssl
import subprocess

import dashboards
import jobs
from dashboards import DashboardTest
from programs import ROLES, STEPS

# Reports by the launcher's pipe, and prints what a page must not take for markup.
TRAINS = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
pipe = os.fdopen(int(os.environ["MILLRACE_PROGRESS_FD"]), "w")
print("<script>alert('%s')</script> \\033[31mred\\033[0m \\a bell" % task["type"], flush=True)
for step in range(1, 100000):
    loss = {0: 0.5 / step, 1: float("nan"), 2: 1e308}[task["index"] % 3]
    pipe.write("step=%d loss=%r\\n" % (step, loss))
    if step == 20:
        pipe.write("saved=%d\\n" % step)
    pipe.flush()
    time.sleep(0.02)
"""


class JobTest(DashboardTest):
    def test_the_page_of_a_job_shows_what_status_shows(self):
        job, dashboard = self.job_with_dashboard("--workers", "3", "--", *self.program(TRAINS))
        state = self.until_state(dashboard, lambda s: all("step" in t for t in s["tasks"].values()) and
                                 [event["kind"] for event in s["events"].values()].count("save") == 3)
        status = json.loads(self.status("--job", str(job.pid), "--json").stdout)["jobs"][0]
        self.assertEqual(state["order"], [task["task"] for task in status["tasks"]])
        self.assertEqual(state["command"], status["command"])
        self.assertEqual(state["checkpoint"]["step"], status["checkpoint"]["step"])
        for task in status["tasks"]:
            shown = state["tasks"][task["task"]]
            for key in ("state", "phase"):
                self.assertEqual(shown.get(key, ""), task[key])
        self.assertEqual([state["tasks"]["worker/%d" % i]["loss"] for i in (1, 2)], ["NaN", 1e308])
        kinds = [event["kind"] for event in state["events"].values()]
        self.assertEqual(kinds.count("start"), 3)
        self.assertGreater(len(state["history"]), 0)
        self.assertTrue(dashboard.get("/output?task=worker/0")[0] == 200)
        text = self.until(lambda: dashboard.get("/output?task=worker%2F0")[2])
        self.assertIn("<script>alert('worker')</script>", text)
        job.process.send_signal(signal.SIGINT)
        job.end()

    def test_updates_come_by_themselves(self):
        job, dashboard = self.job_with_dashboard("--workers", "1", "--", *self.program(STEPS))
        state, steps = {}, set()
        for name, document in dashboard.events():
            if name == "state":
                state = document
            else:
                merge(state, document)
            step = state.get("tasks", {}).get("worker/0", {}).get("step")
            steps.add(step)
            if len(steps - {None}) >= 3:
                break
        job.process.send_signal(signal.SIGINT)
        job.end()

    def test_the_end_and_its_cause_are_on_the_saved_page_and_the_script_goes_on(self):
        worker = "print('step 812'); print('</script><b>markup</b>'); sys.exit('no more data')"
        job = self.run_job("--ps", "1", "--workers", "1", "--dashboard_save", "run.html", "--", *self.program(ROLES % worker))
        self.assertEqual(job.code, 1)
        with open(os.path.join(self.folder, "run.html")) as f:
            page = f.read()
        self.assertIn("worker/0 exited with code 1 at step 812 (no more data)", page)
        self.assertNotIn("<b>markup", page)
        saved = json.loads(page.split('id="saved">', 1)[1].split("</script>", 1)[0])
        self.assertTrue(saved["document"]["ended"])
        self.assertEqual(saved["document"]["exit_code"], 1)
        self.assertIn("</script><b>markup</b>", saved["outputs"]["worker/0"])
        self.assertEqual(saved["document"]["tasks"]["worker/0"]["state"], "failed")
        self.assertEqual(sorted(os.listdir(self.folder)), ["program.py", "run.html"])

    def test_a_dashboard_of_its_own_stays_after_the_end_with_the_cause(self):
        worker = "print('step 3')\nwhile not os.path.exists('go'): time.sleep(0.02)\nos.kill(os.getpid(), signal.SIGKILL)"
        job = self.launch("--workers", "1", "--", *self.program(ROLES % worker))
        job.wait_for("is running")
        dashboard = self.dashboard("--job", str(job.pid), "--save", "page.html")
        self.until_state(dashboard, lambda s: s["tasks"]["worker/0"].get("step") == 3)
        open(os.path.join(self.folder, "go"), "w").close()
        self.assertEqual(job.end(), 137)
        state = self.until_state(dashboard, lambda s: s["ended"])
        self.assertIn("worker/0 was killed by SIGKILL at step 3", state["cause"])
        self.assertEqual(state["exit_code"], 137)
        self.assertIn("step 3", self.until(lambda: dashboard.get("/output?task=worker/0")[2]))
        self.until(lambda: os.path.exists(os.path.join(self.folder, "page.html")))
        dashboard.process.send_signal(signal.SIGINT)
        self.assertEqual(dashboard.process.wait(10), 0)

    def test_a_killed_launcher_is_said_and_its_own_dashboard_ends_with_it(self):
        job, dashboard = self.job_with_dashboard("--workers", "1", "--", *self.program(STEPS))
        other = self.dashboard("--job", str(job.pid))
        self.until_state(other, lambda s: "worker/0" in s["tasks"])
        job.process.kill()
        job.process.wait()
        state = self.until_state(other, lambda s: s["ended"])
        self.assertIn("the launcher was killed", state["cause"])
        other.process.terminate()
        other.process.wait(10)

    def test_a_suspended_worker_is_the_verdict(self):
        job, dashboard = self.job_with_dashboard("--workers", "2", "--suspend_limit", "0", "--", *self.program(STEPS))
        job.wait_for("worker/1 is running")
        self.until_state(dashboard, lambda s: s["tasks"]["worker/1"].get("step", 0) > 3)
        pid = job.tasks()["worker/1"]
        os.kill(pid, signal.SIGSTOP)
        state = self.until_state(dashboard, lambda s: "hang" in s)
        self.assertIn("worker/1 is suspended by SIGSTOP", state["hang"]["cause"])
        self.assertIn("suspend", [event["kind"] for event in state["events"].values()])
        os.kill(pid, signal.SIGCONT)
        self.until_state(dashboard, lambda s: "hang" not in s)
        job.process.send_signal(signal.SIGINT)
        job.end()

    def test_on_a_terminal_it_stays_until_ctrl_c(self):
        job = self.launch("--dashboard", "--workers", "1", "--", "echo", "hello", terminal=(40, 200))
        job.wait_for("the dashboard stays until Ctrl-C")
        dashboard = dashboards.Dashboard(job.stdout)
        self.assertEqual(self.until_state(dashboard, lambda s: s["ended"])["exit_code"], 0)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(), 0)


class ClusterTest(DashboardTest):
    def test_a_cluster_without_a_launcher(self):
        job = self.launch("--insecure", "--ps", "1", "--workers", "1", "--serve", "ps", "--serve", "worker", "--service_job", "ps",
                          "--", "true")
        job.wait_for("worker/0 is running")
        address = [line.split(", ")[1] for line in job.stderr.splitlines() if "worker/0 is running" in line][0]
        dashboard = self.dashboard("--target", "grpc://" + address)
        state = self.until_state(dashboard, lambda s: len(s.get("tasks", {})) == 2 and s["tasks"]["ps/0"].get("answers"))
        self.assertEqual(state["title"], "grpc://" + address)
        self.assertEqual(state["tasks"]["ps/0"]["state"], "running")
        dashboard.process.terminate()
        self.assertEqual(dashboard.process.wait(10), 0)
        job.process.send_signal(signal.SIGINT)
        job.end()


class UsageTest(DashboardTest):
    def mistake(self, *words):
        done = subprocess.run([jobs.MILLRACE, *words], capture_output=True, text=True, timeout=30, cwd=self.folder)
        return done.returncode, done.stderr

    def test_mistakes_are_named(self):
        code, text = self.mistake("dashboard", "--job", "1")
        self.assertEqual((code, "no job of yours runs with pid 1" in text), (1, True), text)
        code, text = self.mistake("dashboard", "--job", "1", "--target", "grpc://localhost:1")
        self.assertEqual((code, "either --target or --job" in text), (2, True), text)
        code, text = self.mistake("dashboard", "--target", "nonsense")
        self.assertEqual((code, "--target" in text), (2, True), text)
        code, text = self.mistake("dashboard", "--target", "grpc://localhost:1", "--host", "0.0.0.0")
        self.assertEqual((code, "needs TLS" in text), (2, True), text)
        path = os.path.join(self.folder, "token")
        with open(path, "w") as f:
            f.write("0123456789abcdef\n")
        os.chmod(path, 0o644)
        code, text = self.mistake("dashboard", "--target", "grpc://localhost:1", "--token_file", path)
        self.assertEqual((code, "other users can read it" in text), (2, True), text)
        for where in ("no/such/folder/page.html", "."):
            code, text = self.mistake("dashboard", "--target", "grpc://localhost:1", "--save", where)
            self.assertEqual((code, "--save: " in text), (2, True), text)
            code, text = self.mistake("launch", "--workers", "1", "--dashboard_save", where, "--", "echo", "ran")
            self.assertEqual((code, "--dashboard_save: " in text), (2, True), text)
        code, text = self.mistake("launch", "--ps", "auto", "--workers", "2", "--", "true")
        self.assertEqual((code, "--plan FILE" in text), (2, True), text)
        code, text = self.mistake("launch", "--ps", "many", "--workers", "2", "--", "true")
        self.assertEqual((code, "--ps" in text), (2, True), text)

    def test_a_taken_port_is_said_and_the_job_runs_without_a_page(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            job = self.run_job("--dashboard_port", str(port), "--workers", "1", "--", "sh", "-c", "sleep 0.5; echo ran")
        self.assertEqual(job.code, 0)
        self.assertIn("ran", job.stdout)
        self.assertIn(str(port), job.stderr)


class TlsTest(DashboardTest):
    def test_with_a_certificate_it_speaks_https_and_its_cookie_is_secure(self):
        cert, key = (os.path.join(self.folder, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
        job = self.launch("--workers", "1", "--", *self.program(STEPS))
        job.wait_for("is running")
        dashboard = self.dashboard("--job", str(job.pid), "--https_cert", cert, "--https_key", key)
        self.assertTrue(dashboard.url.startswith("https://localhost:"))
        context = ssl.create_default_context(cafile=cert)
        with socket.create_connection(("localhost", dashboard.port), 30) as plain, context.wrap_socket(plain, server_hostname="localhost") as stream:
            stream.sendall(("GET /session HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % dashboard.token).encode())
            answer = stream.recv(65536).decode()
        self.assertIn("204 No Content", answer)
        self.assertIn("; Secure", answer)
        with socket.create_connection(("localhost", dashboard.port), 30) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                answer = plain.recv(65536)
            except ConnectionResetError:
                answer = b""
            self.assertNotIn(b"HTTP/1.1", answer)
        dashboard.process.terminate()
        self.assertEqual(dashboard.process.wait(10), 0)
        job.process.send_signal(signal.SIGINT)
        job.end()


class StrangersTest(DashboardTest):
    """What those get who have no token, or no manners."""

    def setUp(self):
        super().setUp()
        self.job, self.page = self.job_with_dashboard("--workers", "1", "--", *self.program(STEPS))
        self.until_state(self.page, lambda s: "worker/0" in s["tasks"])
        self.addCleanup(self.end_job)

    def end_job(self):
        # It is as well as before.
        self.assertEqual(self.page.get("/state")[0], 200)
        self.job.process.send_signal(signal.SIGINT)
        self.assertEqual(self.job.end(), 130)

    def test_without_the_token_there_is_only_the_empty_page(self):
        for path in ("/events", "/state", "/output?task=worker/0", "/metrics", "/session", "/nothing"):
            self.assertEqual(self.page.get(path, token=False)[0], 401, path)
            self.assertEqual(self.page.get(path, token="0" * 32)[0], 401, path)
        status, headers, body = self.page.get("/", token=False)
        self.assertEqual(status, 200)
        self.assertNotIn("worker/0", body)
        policy = headers["content-security-policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(headers["x-content-type-options"], "nosniff")
        self.assertEqual(headers["cache-control"], "no-store")

    def test_the_token_becomes_a_cookie(self):
        status, headers, _ = self.page.get("/session")
        self.assertEqual(status, 204)
        cookie = headers["set-cookie"]
        self.assertIn("HttpOnly", cookie)
        self.assertIn("SameSite=Strict", cookie)
        self.assertNotIn(self.page.token, cookie)
        value = cookie.split(";")[0]
        self.assertEqual(self.page.get("/state", token=False, headers={"Cookie": value})[0], 200)
        self.assertEqual(self.page.get("/state", token=False, headers={"Cookie": value[:-1]})[0], 401)

    def test_another_host_name_is_refused_even_with_the_token(self):
        for host in ("evil.example", "evil.example:%d" % self.page.port, "localhost.evil.example"):
            self.assertEqual(self.page.get("/state", host=host)[0], 403, host)
            self.assertEqual(self.page.get("/", host=host)[0], 403, host)
        self.assertEqual(self.page.get("/state", headers={"Origin": "http://localhost:1"})[0], 403)

    def test_nothing_changes_anything(self):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, headers, _ = self.page.get("/state", method=method)
            self.assertEqual((status, headers.get("allow")), (405, "GET, HEAD"), method)
        self.assertEqual(self.page.get("/state", method="HEAD")[2], "")

    def test_no_path_names_a_file(self):
        for path in ("/../../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/program.py", "/./main.js", "/main.js/..",
                     "/output?task=../../etc/passwd", "/output?task=/etc/passwd", "/%00", "/main.js%00"):
            status, _, body = self.page.get(path)
            self.assertNotIn("root:", body, path)
            self.assertTrue(status == 404 or (status == 200 and body == ""), (path, status, body[:100]))

    def test_it_listens_on_loopback_only(self):
        with open("/proc/net/tcp") as f:
            listening = [line.split()[1] for line in f.readlines()[1:] if line.split()[3] == "0A"]
        mine = [address for address in listening if int(address.split(":")[1], 16) == self.page.port]
        self.assertEqual([address.split(":")[0] for address in mine], ["0100007F"])

    def test_malformed_and_endless_requests_are_refused(self):
        for request in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
                        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.page.port), 10) as stream:
                try:
                    stream.sendall(request)
                    answer = stream.recv(4096)
                except (ConnectionResetError, BrokenPipeError):
                    answer = b""
                self.assertTrue(answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), answer[:80])

    def test_ten_thousand_connections_do_not_keep_the_viewer_out(self):
        stream = self.page.events()
        self.assertEqual(next(stream)[0], "state")
        held = []
        try:
            for i in range(10000):
                connection = socket.socket()
                connection.settimeout(5)
                connection.connect(("127.0.0.1", self.page.port))
                if i % 50 == 0:
                    held.append(connection)  # silent for ever
                else:
                    connection.close()
            self.assertEqual(self.page.get("/state")[0], 200)
            self.assertEqual(next(stream)[0], "patch")
            process = [pid for pid, words in self.job.below().items() if " dashboard " in words]
            self.assertEqual(len(process), 1)
            self.assertLess(len(os.listdir("/proc/%d/fd" % process[0])), 300)
        finally:
            for connection in held:
                connection.close()

    def test_a_viewer_that_does_not_read_holds_nobody_up(self):
        sleeper = socket.socket()
        self.addCleanup(sleeper.close)
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", self.page.port))
        sleeper.sendall(("GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % self.page.token).encode())
        stream = self.page.events()
        names = [next(stream)[0] for _ in range(3)]
        self.assertEqual(names, ["state", "patch", "patch"])


def merge(document, patch):
    """RFC 7396, as the page does it."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            document[key] = merge(document.get(key) if isinstance(document.get(key), dict) else {}, value)
        else:
            document[key] = value
    return document


if __name__ == "__main__":
    jobs.main()
