"""ssh_test.py MILLRACE CLUSTER_PROBE: `millrace launch --hosts` against a real ssh server on loopback."""

import os
import signal
import subprocess

import jobs
from jobs import LaunchTest
from ssh_server import OverSsh

TALK = """
import json, os
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
print("I am %s/%d of %s in %s" % (task["type"], task["index"], sorted(config["cluster"]), os.getcwd()))
print("at", config["cluster"][task["type"]][task["index"]])
"""
STAY = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["setsid", "sleep", "1000"])
print("step 3"); print("up", flush=True)
time.sleep(1000)
"""


class SshTest(OverSsh, LaunchTest):
    def over_ssh(self, *words, hosts="localhost slots=2\n127.0.0.1 slots=8\n", key="client_key", **kwargs):
        return self.launch(*self.host_words(hosts, key), *words, **kwargs)

    def up(self, *words):
        job = self.over_ssh("--ps", "1", "--workers", "2", *words, "--", *self.program(STAY))
        for task in ("ps/0", "worker/0", "worker/1"):
            job.wait_for("[%s] up" % task)
        return job

    def clients(self, job):
        return [pid for pid, command in job.below().items() if command.startswith("ssh ")]

    def test_tasks_run_on_the_hosts_in_order_in_the_same_folder(self):
        job = self.over_ssh("--job", "chief=1", "--workers", "2", "--", *self.program(TALK))
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertIn("[worker/1] I am worker/1 of ['chief', 'worker'] in %s\n" % self.folder, job.stdout)
        self.assertRegex(job.stdout, r"\[chief/0\] at localhost:\d+\n")
        self.assertRegex(job.stdout, r"\[worker/0\] at localhost:\d+\n")
        self.assertRegex(job.stdout, r"\[worker/1\] at 127.0.0.1:\d+\n")

    def test_environment_goes_where_it_is_asked_to(self):
        job = self.over_ssh("--workers", "1", "--env", "A", "--env", "B=it's $HOME", "--", "sh", "-c", 'echo "$A $B"', env={"A": "1 2"})
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertEqual(job.stdout, "[worker/0] 1 2 it's $HOME\n")

    def test_a_failure_there_gives_its_code_and_its_name(self):
        job = self.over_ssh("--workers", "2", "--", "sh", "-c", "[ {task_index} = 0 ] && exec sleep 1000; echo step 4; echo broken >&2; exit 9")
        self.assertEqual(job.end(), 9)
        self.assertEqual(job.stderr.splitlines()[-1], "millrace: worker/1 exited with code 9 at step 4 (broken); the others stopped because of it")
        self.assertEqual(self.left(0), {})

    def test_ctrl_c_ends_what_runs_there(self):
        job = self.up("--grace", "0.5")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(15), 130)
        self.assertEqual(self.left(2), {})

    def test_nothing_is_left_there_after_kill_9_of_the_launcher(self):
        job = self.up()
        job.process.kill()
        job.process.wait()
        self.assertEqual(self.left(10), {})

    def test_a_killed_ssh_client_loses_its_task_and_ends_the_job(self):
        job = self.up()
        os.kill(self.clients(job)[0], signal.SIGKILL)
        self.assertEqual(job.end(15), 1)
        self.assertRegex(job.stderr.splitlines()[-1], r"was lost at step 3: the connection to \S+ ended; the others stopped because of it$")
        self.assertEqual(self.left(10), {})

    def test_all_clients_and_the_launcher_killed_leave_nothing(self):
        job = self.up()
        for pid in [job.pid, *self.clients(job)]:
            os.kill(pid, signal.SIGKILL)
        job.process.wait()
        self.assertEqual(self.left(10), {})

    def test_a_lost_task_is_restarted_over_a_new_connection(self):
        program = "import os, sys, time\nprint('up', flush=True)\nif os.path.exists('again'): sys.exit(0)\nopen('again', 'w').close()\ntime.sleep(1000)"
        job = self.over_ssh("--workers", "1", "--restart", "on-failure", "--", *self.program(program)).wait_for("up")
        self.until(lambda: os.path.exists(os.path.join(self.folder, "again")))
        os.kill(self.clients(job)[0], signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertIn("was lost: the connection to localhost ended; it is restarted", job.stderr)

    def test_a_keeper_that_is_cut_off_is_ended_before_its_successor_starts_the_program(self):
        program = "import os, time\nopen('pid-%d' % os.getpid(), 'w').close()\nprint('up', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.05)"
        job = self.over_ssh("--workers", "1", "--restart", "on-failure", "--", *self.program(program)).wait_for("up")
        pids = lambda: [int(name[4:]) for name in os.listdir(self.folder) if name.startswith("pid-")]
        first, = pids()
        # The server's end of the connection hangs, so the keeper does not hear that the launcher's has ended.
        server = first
        while open("/proc/%d/comm" % server).read().strip() != "sshd":
            server = int(open("/proc/%d/stat" % server).read().rsplit(")", 1)[1].split()[1])
        os.kill(server, signal.SIGSTOP)
        self.addCleanup(os.kill, server, signal.SIGCONT)
        os.kill(self.clients(job)[0], signal.SIGKILL)
        self.until(lambda: len(pids()) == 2)
        self.assertFalse(os.path.exists("/proc/%d" % first))
        open(os.path.join(self.folder, "end"), "w").close()
        self.assertEqual(job.end(), 0, job.stderr)

    def test_a_host_that_does_not_let_us_in_is_named(self):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.server.path("stranger")], check=True)
        job = self.over_ssh("--workers", "1", "--", "true", key="stranger")
        self.assertEqual(job.end(), 1)
        self.assertIn("worker/0 could not be reached: localhost:", job.stderr)
        self.assertIn("Permission denied", job.stderr)

    def test_a_host_without_millrace_is_named(self):
        job = self.over_ssh("--workers", "1", "--remote_millrace", "/no/such/millrace", "--", "true")
        self.assertEqual(job.end(), 1)
        self.assertIn("/no/such/millrace", job.stderr)

    def test_too_few_slots_are_told_at_once(self):
        job = self.over_ssh("--workers", "3", "--", "true", hosts="localhost slots=2\n")
        self.assertEqual(job.end(), 2)
        self.assertIn("2 slots for 3 tasks", job.stderr)

    def test_tasks_outlive_a_suspended_launcher_for_as_long_as_they_are_told(self):
        for words, patience in (((), "120.000"), (("--suspend_limit", "300"), "300.000"), (("--suspend_limit", "0"), "inf")):
            job = self.up(*words)
            commands = [command for command in job.below().values() if command.startswith("ssh ")]
            self.assertEqual(len(commands), 3)
            for command in commands:
                self.assertIn(" task-keeper %s '" % patience, command)
            os.kill(job.pid, signal.SIGKILL)
            self.assertEqual(self.left(15), {})

    def test_many_tasks_on_one_host(self):
        job = self.over_ssh("--workers", "20", "--", *self.program(TALK), hosts="localhost slots=32\n")
        self.assertEqual(job.end(60), 0, job.stderr)
        self.assertEqual(job.stdout.count("I am worker/"), 20)


if __name__ == "__main__":
    jobs.main()
