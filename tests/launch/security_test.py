"""security_test.py MILLRACE CLUSTER_PROBE: the certificates of a job, and who gets nothing (docs/security.md)."""

import glob
import json
import os
import re
import signal
import subprocess

import jobs
from jobs import LaunchTest
from ssh_server import OverSsh

# A client of the job's server that ends once it has its answer, and a server without one.
MULTIPLY = ("multiply", "/job:worker/task:0", "/job:worker/task:0")


class CredentialsTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.runtime = os.path.join(self.folder, "runtime")
        os.mkdir(self.runtime)

    def start(self, *words, client="sleep 1000", hosts=()):
        """A job with one server and one client, which is no task of the cluster. The client may start before the server serves."""
        return self.launch(*hosts, "--workers", "1", "--serve", "worker", "--side_job", "client=1", "--service_job", "worker",
                           "--restart", "client=on-failure:9", *words, "--", *client.split(), env={"XDG_RUNTIME_DIR": self.runtime})

    def serving(self, *words, **kwargs):
        """The job, once its server serves, and the address."""
        job = self.start(*words, **kwargs).wait_for(" serves at ").wait_for("client/0 is running")
        return job, re.search(r"serves at (grpc://\S+)", job.stdout).group(1)

    def ask(self, target, *words):
        """A client outside of the job."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")}
        return subprocess.run([jobs.PROBE, "--target=" + target, *(words or MULTIPLY)], capture_output=True, text=True, timeout=60, env=environment)

    def folders(self):
        return sorted(glob.glob(os.path.join(self.runtime, "millrace-tls-*")))

    def test_a_client_of_the_job_is_served(self):
        job = self.start(client=" ".join((jobs.PROBE, "--target=grpc://{worker_hosts}", *MULTIPLY)))
        self.assertEqual(job.end(60), 0, job.stderr)
        self.assertIn("[client/0] 15\n", job.stdout)

    def test_nobody_else_is(self):
        job, target = self.serving()
        self.assertIn(", TLS", job.stdout)
        self.assertEqual(self.ask(target).returncode, 1)

    def test_an_insecure_job_serves_everybody(self):
        job, target = self.serving("--insecure")
        self.assertNotIn("TLS", job.stdout)
        self.assertEqual(self.ask(target).stdout, "15\n")
        self.assertEqual(self.folders(), [])

    def test_keys_are_private_and_in_no_command_line_or_environment(self):
        job, _ = self.serving()
        self.assertEqual(len(self.folders()), 2)
        for folder in self.folders():
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
            self.assertEqual(sorted(os.listdir(folder)), ["ca.pem", "cert.pem", "key.pem"])
            for name in os.listdir(folder):
                self.assertEqual(os.stat(os.path.join(folder, name)).st_mode & 0o777, 0o600)
        for pid in job.below():
            for what in ("cmdline", "environ"):
                with open("/proc/%d/%s" % (pid, what), "rb") as f:
                    self.assertNotIn(b"BEGIN", f.read())

    def test_nothing_of_them_is_left(self):
        def after(end):
            job, _ = self.serving()
            end(job)
            job.process.wait(30)
            self.assertEqual(self.left(15), {})
            self.assertEqual(self.folders(), [])
        for end in (lambda job: job.process.terminate(), lambda job: job.process.kill(),
                    lambda job: [os.kill(pid, signal.SIGKILL) for pid in job.keepers("millrace-keeper")]):
            after(end)

    def test_the_launcher_and_its_user_may_ask_for_the_status(self):
        job, target = self.serving()
        told = self.status("--target", target)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        self.assertIn("/job:worker/task:0", told.stdout)
        said = self.status("--job", str(job.pid), "--json").stdout
        self.assertEqual(json.loads(said)["jobs"][0]["pid"], job.pid)
        self.assertNotIn("BEGIN", said)

    def test_a_file_root_confines_the_servers(self):
        for name in ("in", "out"):
            os.mkdir(os.path.join(self.folder, name))
            with open(os.path.join(self.folder, name, "file"), "w") as f:
                f.write("contents of " + name)
        for words, name, line in (((), "out", "contents of out"), (("--file_root", "in"), "in", "contents of in"),
                                  (("--file_root", "in"), "out", "PERMISSION_DENIED")):
            path = os.path.join(self.folder, name, "file")
            job = self.start(*words, client=" ".join((jobs.PROBE, "--target=grpc://{worker_hosts}", "read", path)))
            job.wait_for(line, 60)
            job.process.terminate()
            job.end()


class CredentialsOverSshTest(OverSsh, CredentialsTest):
    """The same with the server and the client on hosts."""

    def start(self, *words, client="sleep 1000"):
        hosts = self.host_words("localhost slots=2\n")
        return super().start(*words, client=client, hosts=hosts)

    def folders(self):
        # A keeper there does not get XDG_RUNTIME_DIR.
        return []

    def test_keys_are_private_and_in_no_command_line_or_environment(self):
        job, _ = self.serving()
        folders = set()
        for pid in job.below():
            with open("/proc/%d/environ" % pid, "rb") as f:
                environment = f.read()
            self.assertNotIn(b"BEGIN", environment)
            folders.update(re.findall(rb"MILLRACE_TLS_DIR=([^\0]+)", environment))
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                self.assertNotIn(b"BEGIN", f.read())
        self.assertEqual(len(folders), 2)
        for folder in folders:
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        job.process.kill()
        self.assertEqual(self.left(15), {})
        for folder in folders:
            self.assertFalse(os.path.exists(folder))


if __name__ == "__main__":
    jobs.main()
