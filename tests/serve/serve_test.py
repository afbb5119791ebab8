"""serve_test.py MILLRACE CLUSTER_PROBE: the `millrace` command as a person uses it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import processes
from certificates import Authority
from processes import ServeTest, clean_environment, free_ports, suspend

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


class HelpTest(ServeTest):
    def test_help_tells_every_flag_and_an_example(self):
        result = self.millrace("serve", "--help")
        self.assertEqual(result.returncode, 0)
        for flag in ("cluster_spec", "ps_hosts", "worker_hosts", "job_name", "task_index", "file_root", "tls_cert", "tls_key", "tls_ca", "insecure", "client_clusters",
                     "peer_timeout", "missing_task_timeout", "session_grace", "memory_limit", "session_memory_limit", "file_threads", "stop_timeout", "intra_op_threads", "inter_op_threads", "cpu_devices", "gpu_devices"):
            # With words beside it.
            self.assertRegex(result.stdout, r"--%s\b.*(\n +)?.*\w+ \w+" % flag)
        example = re.search(r"millrace (serve --cluster_spec='.*?' --job_name=ps --task_index=0) &", result.stdout)
        self.assertTrue(example, result.stdout)

    def test_help_of_status_tells_exit_codes(self):
        result = self.millrace("status", "--help")
        self.assertEqual(result.returncode, 0)
        for word in ("--target", "--timeout", "--json", "--hang_after", "--watch", "--rates", "--ceilings", "--tls_ca", "Exit code", "hangs"):
            self.assertIn(word, result.stdout)

    def test_the_command_lists_its_commands(self):
        result = self.millrace("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("serve", result.stdout)
        self.assertIn("status", result.stdout)
        self.assertEqual(self.millrace("--version").returncode, 0)
        self.assertNotEqual(self.millrace().returncode, 0)


class StartTest(ServeTest):
    def test_the_first_line_says_what_it_is_and_where(self):
        server = self.alone()
        self.assertEqual(server.task, "/job:worker/replica:0/task:0")
        self.assertGreater(server.port, 0)
        self.assertIn("/job:worker/replica:0/task:0/device:CPU:0", server.line)
        self.assertNotIn("all interfaces", server.line)
        self.assertEqual(self.probe(server, "multiply", WORKER, WORKER).stdout, "15\n")

    def test_a_host_that_is_not_loopback_is_told_to_be_open(self):
        server = self.serve("--cluster_spec=worker|0.0.0.0:0", "--job_name=worker", "--insecure")
        self.assertIn("all interfaces", server.line)

    def test_lists_of_hosts_make_a_cluster(self):
        ps, worker = free_ports(2)
        hosts = ["--ps_hosts=localhost:%d" % ps, "--worker_hosts=localhost:%d" % worker]
        self.serve(*hosts, "--job_name=ps", "--task_index=0")
        server = self.serve(*hosts, "--job_name=worker", "--task_index=0")
        self.assertEqual(self.probe(server, "multiply", PS, WORKER).stdout, "15\n")

    def test_mistakes_end_it_at_once_and_say_what_to_do(self):
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        good = ["--cluster_spec=ps|localhost:0,worker|localhost:0", "--job_name=ps", "--task_index=0"]
        not_pem = os.path.join(self.folder, "not.pem")
        with open(not_pem, "w") as f:
            f.write("nothing\n")
        missing = os.path.join(self.folder, "missing.pem")
        for flags, words in (
                ([], ["--cluster_spec", "--ps_hosts"]),
                (good[:1], ["--job_name", "ps, worker"]),
                (["--cluster_spec=ps|localhost:%d" % port, "--job_name=ps"], ["localhost:%d" % port, "another"]),
                (["--cluster_spec=ps", "--job_name=ps"], ["'ps'", "host:port"]),
                (["--cluster_spec=ps|localhost", "--job_name=ps"], ["'localhost'", "host:port"]),
                (["--cluster_spec=ps|localhost:99999", "--job_name=ps"], ["'99999'", "65535"]),
                (["--cluster_spec=ps|a:1;a:1", "--job_name=ps"], ["same address a:1"]),
                (["--cluster_spec=ps|localhost:0", "--ps_hosts=localhost:0", "--job_name=ps"], ["--cluster_spec", "not both"]),
                (["--cluster_spec=ps|no.such.host.invalid:1", "--job_name=ps", "--task_index=1"], ["no task 1", "0"]),
                (good[:1] + ["--job_name=wroker"], ["'wroker'", "ps, worker"]),
                (good[:2] + ["--task_index=7"], ["no task 7", "its tasks are: 0"]),
                (good[:2] + ["--task_index=-1"], ["-1"]),
                (good[:2] + ["--task_index=x"], ["--task_index"]),
                (good + ["--no_such_flag"], ["--no_such_flag", "--help"]),
                (good + ["--cpu_devices=0"], ["cpu_devices"]),
                (good + ["--peer_timeout=-1"], ["--peer_timeout"]),
                (good + ["--transport=bad"], ["bad", "auto, shm, tcp or grpc"]),
                (good + ["--file_root=" + missing], ["--file_root", missing]),
                (good + ["--tls_cert=" + not_pem], ["--tls_cert", "--tls_key", "--tls_ca", "all three"]),
                (good + ["--tls_cert=" + missing, "--tls_key=" + missing, "--tls_ca=" + missing], [missing]),
                (good + ["--tls_cert=" + not_pem, "--tls_key=" + not_pem, "--tls_ca=" + not_pem], [not_pem, "PEM"])):
            with self.subTest(flags=flags):
                result = self.millrace("serve", *flags)
                self.assertEqual(result.returncode, 1 if "another" in words else 2)
                self.assertEqual(result.stdout, "")
                for word in words:
                    self.assertIn(word, result.stderr)
                self.assertNotIn("INVALID_ARGUMENT", result.stderr)


class HealthTest(ServeTest):
    def test_a_task_that_serves_is_healthy_and_one_that_does_not_is_not(self):
        port, = free_ports(1)
        away = self.millrace("health", "--port", str(port), "--timeout", "1")
        self.assertEqual(away.returncode, 1)
        self.assertIn("localhost:%d does not serve" % port, away.stderr)
        self.serve("--cluster_spec=worker|localhost:%d" % port, "--job_name=worker")
        for flags in (("--port", str(port)), ("--target", "grpc://localhost:%d" % port)):
            here = self.millrace("health", *flags)
            self.assertEqual(here.returncode, 0, here.stderr)
            self.assertEqual(here.stdout, "millrace: /job:worker/replica:0/task:0 serves at localhost:%d\n" % port)

    def test_mistakes_are_told_from_a_task_that_is_away(self):
        for flags, word in (((), "which task?"), (("--port", "70000"), "--port"), (("--port", "1", "--target", "a:1"), "either"), (("--target", "nonsense"), "--target"),
                            (("--port", "1", "--timeout", "0"), "--timeout")):
            result = self.millrace("health", *flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(word, result.stderr)


class EndTest(ServeTest):
    def test_signals_end_it_cleanly_and_free_the_port(self):
        port, = free_ports(1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            server = self.serve("--cluster_spec=worker|localhost:%d" % port, "--job_name=worker")
            self.assertEqual(server.stop(number), 0)
            self.assertIn("/job:worker/replica:0/task:0 ends (%s)" % number.name, server.process.stdout.read().decode())

    def test_signals_end_it_in_the_middle_of_a_step(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.alone()
            client = self.start_probe(server, "block", WORKER, WORKER)
            self.until(lambda: self.waits(server))
            self.assertEqual(server.stop(number), 0)
            error = client.communicate(timeout=15)[1].decode()
            self.assertIn("UNAVAILABLE", error)
            self.assertIn("/job:worker/replica:0/task:0", error)

    def waits(self, server):
        status = json.loads(self.millrace("status", "--json", "--target", server.target).stdout)
        return status["tasks"][0]["waits"]


class FileTest(ServeTest):
    def test_files_are_confined(self):
        inside, outside = os.path.join(self.folder, "inside"), os.path.join(self.folder, "outside")
        os.mkdir(inside)
        for name, text in ((os.path.join(inside, "f"), "yes"), (outside, "no")):
            with open(name, "w") as f:
                f.write(text)
        os.symlink(outside, os.path.join(inside, "link"))
        server = self.alone("--file_root=" + inside)
        self.assertIn(inside, server.line)
        self.assertEqual(self.probe(server, "read", os.path.join(inside, "f")).stdout, "yes\n")
        for path in (outside, os.path.join(inside, "link"), os.path.join(inside, "..", "outside"), "/etc/passwd"):
            result = self.probe(server, "read", path)
            self.assertEqual(result.returncode, 1)
            self.assertIn("PERMISSION_DENIED", result.stderr)
        self.assertEqual(self.probe(self.alone(), "read", outside).stdout, "no\n")


class TlsTest(ServeTest):
    def test_a_cluster_takes_only_those_whom_its_authority_signed(self):
        authority, stranger = Authority(self.folder, "authority"), Authority(self.folder, "stranger")
        ps, worker = self.cluster(*authority.flags("task"))
        self.assertIn("TLS", worker.line)
        right = authority.flags("client")
        self.assertEqual(self.probe(worker, "multiply", PS, WORKER, tls=right).stdout, "15\n")
        status = self.millrace("status", "--target", worker.target, *right)
        self.assertEqual(status.returncode, 0, status.stdout + status.stderr)
        plain = self.probe(worker, "multiply", PS, WORKER)
        self.assertEqual(plain.returncode, 1)
        self.assertIn("TLS", plain.stderr)
        wrong = self.probe(worker, "multiply", PS, WORKER, tls=stranger.flags("other", authority))
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("UNAVAILABLE", wrong.stderr)
        status = self.millrace("status", "--target", worker.target, "--timeout=3")
        self.assertEqual(status.returncode, 1)
        self.assertIn("NO ANSWER", status.stdout)
        # The other way round: who wants TLS does not talk to who has none.
        self.assertEqual(self.probe(self.alone(), "multiply", WORKER, WORKER, tls=right).returncode, 1)

    def test_who_waits_for_a_task_that_wants_tls_is_told_so(self):
        ps, worker = free_ports(2)
        spec = "--cluster_spec=ps|localhost:%d,worker|localhost:%d" % (ps, worker)
        self.serve(spec, "--job_name=ps", "--task_index=0", *Authority(self.folder, "authority").flags("task"))
        plain = self.probe(self.serve(spec, "--job_name=worker", "--task_index=0", "--missing_task_timeout=2"), "multiply", PS, WORKER)
        self.assertEqual(plain.returncode, 1)
        self.assertIn("DEADLINE_EXCEEDED", plain.stderr)
        self.assertIn("no answer from /job:ps/replica:0/task:0 at localhost:%d" % ps, plain.stderr)
        self.assertIn("TLS", plain.stderr)


class MemoryTest(ServeTest):
    def resident_mb(self, server):
        with open("/proc/%d/status" % server.process.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) // 1024

    def test_what_clients_left_is_given_back(self):
        server = self.alone("--session_grace=0.2")
        self.assertEqual(self.probe(server, "leave", "5").returncode, 0)
        before = self.resident_mb(server)
        # About 150 MB.
        self.assertEqual(self.probe(server, "leave", "2", "--nodes=100000").returncode, 0)
        self.until(lambda: self.resident_mb(server) < before + 40)


class ProxyTest(ServeTest):
    def test_a_dead_proxy_is_not_asked(self):
        dead = "http://127.0.0.1:%d" % free_ports(1)[0]
        env = clean_environment(**{name: dead for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")})
        ps, worker = self.cluster(env=env)
        self.assertEqual(self.probe(worker, "multiply", PS, WORKER, env=env).stdout, "15\n")
        self.assertEqual(self.millrace("status", "--target", ps.target, env=env).returncode, 0)


class StatusTest(ServeTest):
    def status(self, server, *flags):
        return json.loads(self.millrace("status", "--json", "--target", server.target, *flags).stdout)["tasks"]

    def test_a_blocked_step_is_shown_on_both_its_tasks(self):
        ps, worker = self.cluster("--session_grace=1")
        client = self.start_probe(worker, "block", PS, WORKER)
        at_worker, at_ps = self.until(lambda: [t for t in self.status(worker) if t["waits"]][1:] and self.status(worker))
        self.assertEqual((at_worker["task"], at_ps["task"]), (worker.task, ps.task))
        step, = at_worker["steps"]
        self.assertEqual(step["waits_for"], [worker.task, ps.task])
        self.assertEqual(at_ps["steps"][0]["id"], step["id"])
        self.assertIn("FIFOQueue 'numbers'", at_ps["waits"][0]["what"])
        self.assertEqual(at_ps["waits"][0]["node"], "take")
        self.assertIn("take", at_worker["waits"][0]["node"])
        self.assertIn(ps.task, at_worker["waits"][0]["what"])
        session, = at_worker["sessions"]
        self.assertEqual((session["running_steps"], session["nodes"]), (1, 3))
        self.assertEqual(at_ps["sessions"][0]["handle"], session["handle"])

        text = self.millrace("status", "--target", ps.target)
        self.assertEqual(text.returncode, 0)
        for part in (r"^%s: 2 tasks$" % ps.target, r"^/job:ps/task:0 +localhost:%d +up for [\d.]+ m?s$" % ps.port,
                     r"^  devices +CPU:0 +incarnation [0-9a-f]{16}$", r"^  sessions +%s +open for [\d.]+ m?s +1 running +3 nodes" % session["handle"],
                     r"^  steps +%s +session %s +for [\d.]+ m?s +waits for /job:worker/task:0, /job:ps/task:0$" % (step["id"], session["handle"]),
                     r"^  waits +step %s +for [\d.]+ m?s +take: .*'numbers'" % step["id"]):
            self.assertRegex(text.stdout, re.compile(part, re.M))

        # A client that is killed takes its step and, after the grace, its session along, on both tasks.
        client.kill()
        self.until(lambda: not any(t["steps"] or t["waits"] or t["sessions"] for t in self.status(worker)))

    def test_a_master_that_dies_leaves_nothing_at_other_tasks(self):
        ps, worker = self.cluster("--session_grace=0.5")
        client = self.start_probe(worker, "block", PS, WORKER)
        self.until(lambda: self.status(ps)[0]["waits"])
        worker.end()
        self.assertIn("UNAVAILABLE", client.communicate(timeout=15)[1].decode())
        self.until(lambda: not any(self.status(ps, "--timeout=1")[0][what] for what in ("sessions", "steps", "waits")))

    def test_tasks_that_do_not_answer_are_named_in_time(self):
        ps, worker = self.cluster()
        suspend(ps.process)
        result = self.millrace("status", "--target", worker.target, "--timeout=1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("2 tasks, 1 does not answer", result.stdout)
        self.assertRegex(result.stdout, r"/job:ps/task:0 +localhost:%d +NO ANSWER: \S" % ps.port)
        ps.process.send_signal(signal.SIGCONT)
        ps.end()
        result = self.millrace("status", "--target", worker.target, "--json")
        self.assertEqual(result.returncode, 1)
        task = json.loads(result.stdout)["tasks"][1]
        self.assertFalse(task["answered"])
        self.assertIn("localhost:%d" % ps.port, task["error"])
        result = self.millrace("status", "--target", ps.target)
        self.assertEqual(result.returncode, 1)
        self.assertIn("NO ANSWER", result.stdout)

    def test_mistakes_in_its_flags_are_explained(self):
        for flags, word in ((["--job=1", "--target=grpc://localhost:1"], "--target"), (["--target=nowhere"], "'nowhere'"), (["--target=grpc://localhost:1", "--timeout=0"], "--timeout"),
                            (["--target=grpc://localhost:1", "--tls_ca=x"], "all three")):
            result = self.millrace("status", *flags)
            self.assertGreater(result.returncode, 1)
            self.assertIn(word, result.stderr)

    def test_sessions_that_clients_left_are_closed(self):
        ps, worker = self.cluster("--session_grace=0.5")
        self.assertEqual(self.probe(worker, "leave", "20").returncode, 0)
        self.until(lambda: not any(t["sessions"] for t in self.status(worker)))
        self.assertEqual(self.probe(worker, "multiply", PS, WORKER).stdout, "15\n")
        self.assertIn("connections had ended", worker.error_text())


class RatesTest(ServeTest):
    """What `millrace status` says of how fast a cluster is."""

    def test_cores_are_told_always_and_rates_when_asked_for(self):
        ps, worker = self.cluster()
        text = self.millrace("status", "--target", worker.target)
        self.assertEqual(text.returncode, 0)
        self.assertRegex(text.stdout, re.compile(r"^  cpu +[\d.]+ cores? +[\d.]+ s user, [\d.]+ s system$", re.M))
        self.assertNotIn("BOTTLENECK", text.stdout)
        begin = time.monotonic()
        text = self.millrace("status", "--target", worker.target, "--rates=0.2")
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(text.returncode, 0)
        self.assertRegex(text.stdout, re.compile(r"^  cpu +[\d.]+ of [\d.]+ cores? busy +[\d.]+ s user", re.M))
        self.assertRegex(text.stdout, r"\nBOTTLENECK: nothing runs: no step ended within \d+\.\d s\n$")
        # A second apart when it is not said how far.
        status = json.loads(self.millrace("status", "--target", worker.target, "--json", "--rates").stdout)
        self.assertEqual(status["bottleneck"]["kind"], "nothing_runs")
        self.assertIsNone(status["bottleneck"]["suggests"])
        for task in status["tasks"]:
            self.assertGreaterEqual(task["rates"]["seconds"], 0.9)
            self.assertGreater(task["cpu"]["cores"], 0)
        self.assertIsNone(json.loads(self.millrace("status", "--target", worker.target, "--json").stdout)["bottleneck"])

    def test_ceilings_come_from_a_file_of_bench_net(self):
        server = self.alone()
        good, bad = os.path.join(self.folder, "net.json"), os.path.join(self.folder, "bad.json")
        self.assertEqual(self.millrace("bench-net", "--max_size=1KB", "--seconds=0.1", "--json", good).returncode, 0)
        result = self.millrace("status", "--target", server.target, "--rates=0.1", "--ceilings", good)
        self.assertEqual(result.returncode, 0, result.stderr)
        for content in ("", "[]", "{}", '{"where": 1, "ways": 2}', '{"where": "this host", "ways": [1, {"kind": "ceiling", "gigabytes_per_second": ["x"]}]}'):
            with open(bad, "w") as f:
                f.write(content)
            result = self.millrace("status", "--target", server.target, "--ceilings", bad)
            self.assertEqual((result.returncode, result.stdout), (2, ""), content)
            self.assertIn(bad, result.stderr)
        for flags in (["--rates=1"], ["--ceilings=" + good], ["--target", server.target, "--rates=-1"], ["--target", server.target, "--rates=x"],
                      ["--target", server.target, "--ceilings=" + bad + ".not"]):
            self.assertEqual(self.millrace("status", *flags).returncode, 2, flags)


class HangTest(ServeTest):
    """What `millrace status` says of a cluster in which nothing goes on."""

    def hang(self, server, *flags):
        result = self.millrace("status", "--json", "--target", server.target, "--hang_after=0.3", *flags)
        return json.loads(result.stdout)["hang"], result.returncode

    def hangs(self, server, *flags, waits=1):
        """What it says once so many wait."""
        def found():
            hang = self.hang(server, *flags)[0]
            return hang and len(hang["waits"]) >= waits and hang
        return self.until(found)

    def test_a_queue_that_nobody_fills_is_named(self):
        ps, worker = self.cluster()
        self.assertEqual(self.hang(worker), (None, 0))
        self.start_probe(worker, "block", PS, WORKER)
        hang = self.hangs(worker, waits=2)
        self.assertRegex(hang["cause"], r"^FIFOQueue 'numbers' on ps/0 stays empty and nobody fills it: ps/0 waits .* at node take for 1 element \(step ")
        self.assertIn(" for tensor take", "".join(hang["waits"]))
        text = self.millrace("status", "--target", ps.target, "--hang_after=0.3")
        self.assertEqual(text.returncode, 3)
        self.assertRegex(text.stdout, re.compile(r"^HANGS: FIFOQueue 'numbers' on ps/0", re.M))
        self.assertRegex(text.stdout, re.compile(r"^  worker/0 waits .* from ps/0 \(step \d+\)$", re.M))
        # Not before its time.
        text = self.millrace("status", "--target", ps.target, "--hang_after=3600")
        self.assertEqual((text.returncode, "HANGS" in text.stdout), (0, False))

    def test_a_ps_that_is_stopped_is_named(self):
        # For longer than it takes its peers to give it up, and shorter.
        for peer_timeout in ("60", "1"):
            with self.subTest(peer_timeout=peer_timeout):
                ps, worker = self.cluster("--peer_timeout=" + peer_timeout)
                client = self.start_probe(worker, "block", PS, WORKER)
                self.hangs(worker)
                suspend(ps.process)
                if peer_timeout == "1":
                    self.assertIn("UNAVAILABLE", client.communicate(timeout=20)[1].decode())
                    client = self.start_probe(worker, "multiply", PS, WORKER)  # waits for its session
                begin = time.monotonic()
                text = self.millrace("status", "--target", worker.target, "--timeout=1")
                self.assertLess(time.monotonic() - begin, 10)
                self.assertEqual(text.returncode, 1)
                if peer_timeout == "60":
                    hang = self.hangs(worker, "--timeout=1", waits=3)
                    self.assertRegex(hang["cause"], r"^ps/0 at localhost:%d does not answer: it is stopped, swamped or cut off; worker/0 waits for it$" % ps.port)
                    self.assertRegex("\n".join(hang["waits"]), r"worker/0 waits .* for tensor take\S* from ps/0")
                ps.process.send_signal(signal.SIGCONT)

    def test_a_worker_that_is_stopped_is_named_when_its_master_waits_for_it(self):
        ps, zero, one = free_ports(3)
        spec = "--cluster_spec=ps|localhost:%d,worker|localhost:%d;localhost:%d" % (ps, zero, one)
        servers = [self.serve(spec, "--job_name=" + job, "--task_index=%d" % index, "--peer_timeout=60") for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
        self.start_probe(servers[1], "block", "/job:worker/task:1", WORKER)
        self.hangs(servers[1])
        suspend(servers[2].process)
        self.until(lambda: self.hangs(servers[1], "--timeout=1")["cause"].startswith("worker/1 at localhost:%d does not answer" % one))
        servers[2].process.send_signal(signal.SIGCONT)

    def test_it_watches_until_it_is_interrupted(self):
        server = self.alone()
        process = subprocess.Popen([processes.MILLRACE, "status", "--target", server.target, "--watch=0.05"], stdout=subprocess.PIPE, env=clean_environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        seen = 0
        while seen < 3:
            seen += process.stdout.readline().decode().startswith(server.target)


if __name__ == "__main__":
    processes.MILLRACE, processes.PROBE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
