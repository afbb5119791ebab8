"""usage_test.py MILLRACE CLUSTER_PROBE: `millrace launch` and `millrace status` as a person uses them."""

import json
import os
import signal
import subprocess

import jobs
from jobs import LaunchTest
from programs import STEPS, TALK


class HelpTest(LaunchTest):
    def test_help_tells_every_flag_examples_and_exit_codes(self):
        result = subprocess.run([jobs.MILLRACE, "launch", "--help"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0)
        for word in ("--ps", "--workers", "--job", "--hosts", "--ssh", "--restart", "--host_flags", "--serve", "--log_dir", "--grace", "--color",
                     "--hang_after", "--bind_workers", "--insecure", "--file_root", "--profile_steps", "TF_CONFIG", "{task_index}", "Exit code", "millrace launch --ps 1 --workers 2 -- "):
            self.assertIn(word, result.stdout)

    def test_mistakes_end_it_at_once_and_say_what_to_do(self):
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w") as f:
            f.write("one\ntwo slots=many\n")
        for words, told in (
                (["--", "true"], ["--workers"]),
                (["--workers", "1"], ["no program", "--"]),
                (["--workers", "x", "--", "true"], ["--workers"]),
                (["--workers", "-1", "--", "true"], ["negative"]),
                (["--workers", "1", "--no_such_flag", "--", "true"], ["--no_such_flag"]),
                (["--workers", "1", "./program", "--its_flag"], ["./program", "after --"]),
                (["--workers", "1", "--job", "worker=2", "--", "true"], ["worker", "twice"]),
                (["--job", "chief", "--", "true"], ["--job chief"]),
                (["--job", "chief=none", "--", "true"], ["'none'"]),
                (["--workers", "1", "--restart", "worker=always", "--", "true"], ["'always'", "on-failure:N"]),
                (["--workers", "1", "--restart", "wroker=never", "--", "true"], ["'wroker'", "worker"]),
                (["--workers", "1", "--serve", "ps", "--", "true"], ["'ps'", "worker"]),
                (["--workers", "1", "--job_program", "worker='a", "--", "true"], ["quote"]),
                (["--workers", "1", "--color", "blue", "--", "true"], ["'blue'", "never"]),
                (["--workers", "1", "--grace", "-3", "--", "true"], ["--grace"]),
                (["--ps", "1", "--bind_workers", "--", "true"], ["--bind_workers", "worker"]),
                (["--workers", "1", "--profile_steps", "5:2", "--", "true"], ["'5:2'"]),
                (["--workers", "1", "--hosts", hosts + "x", "--", "true"], ["--hosts", hosts + "x"]),
                (["--workers", "1", "--hosts", hosts, "--", "true"], ["line 2", "many"])):
            with self.subTest(words=words):
                job = self.run_job(*words)
                self.assertEqual(job.code, 2, job.stderr)
                self.assertEqual(job.stdout, "")
                for word in told:
                    self.assertIn(word, job.stderr)


class PlaceTest(LaunchTest):
    def test_each_task_gets_its_place_and_its_lines_their_names(self):
        job = self.run_job("--job", "chief=1", "--workers", "2", "--job", "evaluator=1", "--", *self.program(TALK))
        self.assertEqual(job.code, 0, job.stderr)
        for task in ("chief/0", "worker/0", "worker/1", "evaluator/0"):
            self.assertIn("[%s] I am %s\n" % (task, task), job.stdout)

    def test_the_cluster_is_the_same_for_all_and_its_ports_are_free(self):
        program = """
import json, os, socket, sys
config = json.loads(os.environ["TF_CONFIG"])
address = config["cluster"][config["task"]["type"]][config["task"]["index"]]
s = socket.socket()
s.bind(("127.0.0.1", int(address.split(":")[1])))   # without SO_REUSEADDR
s.listen()
print(json.dumps(config["cluster"], sort_keys=True))
"""
        job = self.run_job("--ps", "2", "--workers", "3", "--", *self.program(program))
        self.assertEqual(job.code, 0, job.stderr)
        clusters = {line.split("] ", 1)[1] for line in job.stdout.splitlines()}
        self.assertEqual(len(clusters), 1, job.stdout)
        cluster = json.loads(clusters.pop())
        self.assertEqual([len(cluster["ps"]), len(cluster["worker"])], [2, 3])
        self.assertEqual(len(set(cluster["ps"] + cluster["worker"])), 5)

    def test_host_flags_follow_the_programs_own(self):
        job = self.run_job("--ps", "1", "--workers", "2", "--host_flags", "--", "echo", "--mine", "-x")
        self.assertEqual(job.code, 0)
        self.assertRegex(job.stdout, r"\[worker/1\] --mine -x --ps_hosts=localhost:\d+ --worker_hosts=localhost:\d+,localhost:\d+ --job_name=worker --task_index=1\n")

    def test_braces_are_filled_in_and_others_stay(self):
        job = self.run_job("--workers", "1", "--", "echo", "{job_name}:{task_index}", "{worker_hosts}", '{"a": 1}')
        self.assertRegex(job.stdout, r'\[worker/0\] worker:0 localhost:\d+ \{"a": 1\}\n')

    def test_words_that_are_commands_of_millrace_may_follow(self):
        job = self.run_job("--workers", "1", "--", "echo", "serve", "--", "status", "--help")
        self.assertEqual(job.stdout, "[worker/0] serve -- status --help\n")

    def test_a_side_job_knows_the_cluster_and_is_not_in_it(self):
        job = self.run_job("--workers", "1", "--side_job", "board=1", "--job_program", "board=echo {cluster_spec} at {port}", "--", "echo", "{cluster_spec}")
        self.assertRegex(job.stdout, r"\[worker/0\] worker\|localhost:\d+\n")
        self.assertRegex(job.stdout, r"\[board/0\] worker\|localhost:\d+ at \d+\n")

    def test_a_job_may_have_a_program_of_its_own(self):
        job = self.run_job("--workers", "1", "--job", "side=1", "--job_program", "side=echo 'a  b' {task_index}", "--", "echo", "main")
        self.assertIn("[side/0] a  b 0\n", job.stdout)
        self.assertIn("[worker/0] main\n", job.stdout)

    def test_serve_runs_servers_that_status_can_ask(self):
        job = self.launch("--ps", "1", "--workers", "1", "--serve", "ps", "--", "sh", "-c", "echo {ps_hosts} > where; sleep 1000")
        job.wait_for("[ps/0] millrace: /job:ps/replica:0/task:0 serves at")
        with open(os.path.join(self.folder, "where")) as f:
            target = f.read().strip()
        status = self.status("--target", "grpc://" + target, "--timeout", "2")
        self.assertIn("/job:ps/task:0", status.stdout)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(), 130)

    def test_the_environment_and_the_working_directory_are_the_launchers(self):
        job = self.run_job("--workers", "1", "--env", "B=2", "--", "sh", "-c", "echo $A $B $MILLRACE_TASK; pwd", env={"A": "1"})
        self.assertEqual(job.stdout, "[worker/0] 1 2 worker/0\n[worker/0] %s\n" % self.folder)


class RestartTest(LaunchTest):
    def test_a_task_that_fails_is_restarted_at_its_address_with_a_pause(self):
        program = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
print("at", config["cluster"]["worker"])
count = len(os.listdir("."))
open("%d" % count, "w").close()
if os.environ["MILLRACE_RESTARTS"] != str(count):
    sys.exit("it was told of %s restarts" % os.environ["MILLRACE_RESTARTS"])
sys.exit(3 if count < 2 else 0)
"""
        os.mkdir(os.path.join(self.folder, "runs"))
        job = self.run_job("--workers", "1", "--restart", "worker=on-failure:2", "--", *self.program(program), cwd=os.path.join(self.folder, "runs"))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("worker/0 exited with code 3; it is restarted in 1 s (restart 1 of 2)", job.stderr)
        self.assertIn("it is restarted in 2 s (restart 2 of 2)", job.stderr)
        self.assertEqual(len(job.stdout.splitlines()), 3)
        self.assertEqual(len(set(job.stdout.splitlines())), 1)

    def test_after_the_last_restart_the_job_fails(self):
        job = self.run_job("--workers", "1", "--restart", "on-failure:1", "--", "sh", "-c", "exit 4")
        self.assertEqual(job.code, 4)
        self.assertEqual(job.stderr.splitlines()[-1], "millrace: worker/0 exited with code 4, after 1 restart")

    def test_a_killed_keeper_is_replaced(self):
        program = "import os, sys, time\nprint('up', flush=True)\nif os.path.exists('again'): sys.exit(0)\nopen('again', 'w').close()\ntime.sleep(1000)"
        job = self.launch("--workers", "1", "--restart", "on-failure", "--", *self.program(program)).wait_for("up")
        self.until(lambda: os.path.exists(os.path.join(self.folder, "again")))
        keeper = job.keepers("millrace-keeper")[0]
        os.kill(keeper, signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertIn("worker/0 was lost", job.stderr)


class StatusTest(LaunchTest):
    def jobs(self, *words):
        return json.loads(self.status("--json", *words).stdout)["jobs"]

    def test_status_shows_the_jobs_of_this_machine(self):
        job = self.launch("--ps", "1", "--workers", "2", "--", *self.program(STEPS))
        job.wait_for("[worker/1] step 50 ")
        mine = self.jobs("--job", str(job.pid))[0]
        self.assertEqual(mine["state"], "running")
        self.assertEqual(mine["pid"], job.pid)
        worker = [t for t in mine["tasks"] if t["task"] == "worker/1"][0]
        self.assertEqual(worker["state"], "running")
        self.assertGreaterEqual(worker["step"], 50)
        self.assertEqual(worker["pid"], job.tasks()["worker/1"])
        self.assertIn(job.pid, [j["pid"] for j in self.jobs()])
        text = self.status("--job", str(job.pid))
        self.assertEqual(text.returncode, 0)
        for word in ("TASK", "STATE", "RESTARTS", "worker/0", "ps/0", "running"):
            self.assertIn(word, text.stdout)
        job.process.send_signal(signal.SIGTERM)
        job.end()
        gone = self.status("--job", str(job.pid))
        self.assertEqual(gone.returncode, 1)
        self.assertIn(str(job.pid), gone.stderr)

    def test_progress_lines_go_before_what_is_printed(self):
        program = """
import os, time
with os.fdopen(int(os.environ["MILLRACE_PROGRESS_FD"]), "w") as f:
    f.write("step=7 loss=0.25 phase=warming up\\n"); f.flush()
    print("step 99"); print("said")
    time.sleep(1000)
"""
        job = self.launch("--workers", "1", "--", *self.program(program)).wait_for("said")
        task = self.until(lambda: [t for t in self.jobs("--job", str(job.pid))[0]["tasks"] if t["step"]])[0]
        self.assertEqual((task["step"], task["loss"], task["phase"]), (7, 0.25, "warming up"))
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(), 130)
        self.assertIn("worker/0", job.stderr)

    def test_a_mistake_in_the_flags_is_told(self):
        self.assertEqual(self.status("--job", "1", "--target", "grpc://localhost:1").returncode, 2)
        self.assertEqual(self.status("--job", "x").returncode, 2)


class HangTest(LaunchTest):
    def test_steps_that_no_longer_come_are_told_and_may_fail_the_job(self):
        program = "import time\nfor i in range(5): print('step', i)\ntime.sleep(1000)"
        job = self.launch("--workers", "2", "--hang_after", "1", "--hang_kill", "3", "--", *self.program(program))
        job.wait_for("no step for")
        self.assertEqual(job.end(), 1)
        self.assertRegex(job.stderr.splitlines()[-1], r"no step for \d+ s: .*; all tasks were stopped because of it")

    def test_what_a_program_says_it_waits_for_is_told(self):
        program = """
import json, os, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    with os.fdopen(int(os.environ["MILLRACE_PROGRESS_FD"]), "w") as f:
        f.write("phase=waiting for worker/0 to initialise w\\n")
time.sleep(1000)
"""
        job = self.launch("--workers", "2", "--hang_after", "1", "--", *self.program(program))
        job.wait_for("worker/1 has been waiting for worker/0 to initialise w for")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(), 143)

    def blocked(self, *words):
        """A client that wants an element of a queue that stays empty, on two servers."""
        return self.launch("--ps", "1", "--workers", "1", "--side_job", "client=1", "--serve", "ps", "--serve", "worker", "--service_job", "ps",
                           "--service_job", "worker", "--restart", "client=on-failure:9", "--hang_after", "1", *words, "--", jobs.PROBE, "--target=grpc://{worker_hosts}", "block",
                           "/job:ps/task:0", "/job:worker/task:0")

    def test_what_millraces_tasks_wait_for_is_told_and_in_status_too(self):
        job = self.blocked()
        job.wait_for("no step for")
        job.wait_for("FIFOQueue")
        told = json.loads(self.status("--json", "--job", str(job.pid)).stdout)["jobs"][0]
        self.assertNotEqual(told["hang"], "")
        self.assertIn("FIFOQueue", " ".join([told["hang"], *told["waits"]]))
        self.assertIn("hangs:", self.status("--job", str(job.pid)).stdout)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(), 143)

    def test_a_suspended_task_is_what_a_job_hangs_on(self):
        job = self.blocked("--suspend_limit", "0")
        job.wait_for("no step for")
        os.kill(job.tasks()["ps/0"], signal.SIGSTOP)
        job.wait_for("ps/0 is suspended by SIGSTOP")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(15), 143)

    def test_a_program_that_never_told_a_step_is_not_said_to_hang(self):
        job = self.run_job("--workers", "2", "--hang_after", "0.5", "--", "sleep", "3")
        self.assertEqual(job.code, 0)
        self.assertNotIn("no step", job.stderr)


if __name__ == "__main__":
    jobs.main()
