"""launch_test.py MILLRACE CLUSTER_PROBE: `millrace launch` as a person uses it, with real processes and real kills."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import jobs
from jobs import LaunchTest
from screen import Screen

PROBE = ""  # tests/serve/probe_main.cc, set below

# Says who it is, then does as it is told.
TALK = """
import json, os, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("I am %s/%d" % (task["type"], task["index"]))
"""
# Trains for ever, as far as anyone can tell.
STEPS = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
for step in range(1, 100000):
    print("step %d loss %.3f" % (step, 1.0 / step), flush=True)
    time.sleep(0.01)
"""
# A ps serves until it is ended; workers do what `%s` says.
ROLES = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "ps":
    print("serving")
    while True:
        time.sleep(1)
index = task["index"]
%s
"""


class HelpTest(LaunchTest):
    def test_help_tells_every_flag_examples_and_exit_codes(self):
        result = subprocess.run([jobs.MILLRACE, "launch", "--help"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0)
        for word in ("--ps", "--workers", "--job", "--hosts", "--ssh", "--restart", "--host_flags", "--serve", "--log_dir", "--grace", "--color",
                     "--hang_after", "--profile_steps", "TF_CONFIG", "{task_index}", "Exit code", "millrace launch --ps 1 --workers 2 -- "):
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
        job = self.run_job("--ps", "1", "--workers", "2", "--job", "evaluator=1", "--", *self.program(TALK))
        self.assertEqual(job.code, 0, job.stderr)
        for task in ("ps/0", "worker/0", "worker/1", "evaluator/0"):
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


class EndTest(LaunchTest):
    def test_the_job_ends_when_the_workers_are_done_and_the_ps_with_it(self):
        job = self.run_job("--ps", "2", "--workers", "2", "--", *self.program(ROLES % "print('done', index)"))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("[worker/1] done 1\n", job.stdout)
        self.assertIn("millrace: ps/0 stopped\n", job.stderr)
        self.assertIn("millrace: worker/0 succeeded\n", job.stderr)
        self.assertEqual(self.left(0), {})

    def test_a_failure_gives_its_code_and_one_line_that_names_it(self):
        worker = "if index == 1:\n    print('step 812'); sys.exit('no more data')\ntime.sleep(1000)"
        job = self.run_job("--ps", "1", "--workers", "3", "--", *self.program(ROLES % worker))
        self.assertEqual(job.code, 1)
        self.assertEqual(job.stderr.splitlines()[-1],
                         "millrace: worker/1 exited with code 1 at step 812 (no more data); the others stopped because of it")
        self.assertEqual(self.left(0), {})

    def test_the_code_of_the_task_is_the_code_of_the_job(self):
        self.assertEqual(self.run_job("--workers", "1", "--", "sh", "-c", "exit 37").code, 37)

    def test_a_program_that_is_not_there_is_named(self):
        job = self.run_job("--workers", "2", "--", "./no_such_program")
        self.assertEqual(job.code, 127)
        self.assertIn("worker/0 could not be started: ./no_such_program: No such file or directory", job.stderr.splitlines()[-1])
        self.assertEqual(self.run_job("--workers", "1", "--", "/etc/passwd").code, 126)

    def test_what_the_program_leaves_behind_is_ended_with_it(self):
        program = ("import os, signal, subprocess, sys\n"
                   "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                   "if os.fork() == 0:\n"
                   "    os.setsid()\n"
                   "    if os.fork() == 0:\n"
                   "        import time; time.sleep(1000)\n"
                   "    os._exit(0)\n")
        job = self.run_job("--workers", "1", "--", *self.program(program))
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(self.left(0), {})

    def test_other_processes_are_left_alone(self):
        other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.run_job("--workers", "2", "--", "sh", "-c", "sleep 1000 & exit 3")
        self.assertIsNone(other.poll())


class SignalTest(LaunchTest):
    def steps(self, *words, **kwargs):
        job = self.launch(*words, "--", *self.program(STEPS), **kwargs)
        for task in ("worker/0", "worker/1"):
            job.wait_for("[%s] step 20 " % task)
        return job

    def test_a_killed_worker_is_named_with_its_step(self):
        job = self.steps("--workers", "2")
        os.kill(job.tasks()["worker/1"], signal.SIGKILL)
        self.assertEqual(job.end(10), 137)
        self.assertRegex(job.stderr.splitlines()[-1], r"^millrace: worker/1 was killed by SIGKILL at step \d+; the others stopped because of it$")
        self.assertEqual(self.left(0), {})

    def test_ctrl_c_ends_all_with_130(self):
        job = self.steps("--workers", "2")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(10), 130)
        self.assertIn("KeyboardInterrupt", job.stderr)
        self.assertIn("interrupted by SIGINT", job.stderr.splitlines()[-1])
        self.assertEqual(self.left(0), {})

    def test_sigterm_and_sighup_end_all(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            job = self.steps("--workers", "2")
            job.process.send_signal(number)
            self.assertEqual(job.end(10), 128 + number)
            self.assertEqual(self.left(0), {})

    def test_a_program_that_ignores_signals_is_killed_after_the_grace(self):
        program = "import signal, time\nfor n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(1000)"
        job = self.launch("--workers", "1", "--grace", "0.5", "--", *self.program(program)).wait_for("deaf")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(10), 130)
        self.assertEqual(self.left(0), {})

    def test_a_second_ctrl_c_kills_at_once(self):
        program = "import signal, time\nfor n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(1000)"
        job = self.launch("--workers", "1", "--grace", "100", "--", *self.program(program)).wait_for("deaf")
        job.process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # signals of one number are not counted
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(10), 130)
        self.assertEqual(self.left(0), {})

    def test_nothing_is_left_after_kill_9_of_the_launcher(self):
        program = ("import os, signal, subprocess, time\n"
                   "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "subprocess.Popen(['setsid', 'sleep', '1000'])\n"
                   "print('up'); time.sleep(1000)")
        job = self.launch("--ps", "1", "--workers", "2", "--", *self.program(program))
        for task in ("ps/0", "worker/0", "worker/1"):
            job.wait_for("[%s] up" % task)
        job.process.kill()
        job.process.wait()
        self.assertEqual(self.left(10), {})

    def test_nothing_is_left_when_the_launcher_is_killed_while_it_starts(self):
        for delay in (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08):
            job = self.launch("--workers", "3", "--", "sleep", "1000")
            time.sleep(delay)
            job.process.kill()
            job.process.wait()
            self.assertEqual(self.left(10), {})

    def keepers(self, job, name):
        found = []
        for pid in job.below():
            try:
                with open("/proc/%d/comm" % pid) as f:
                    if f.read().strip() == name:
                        found.append(pid)
            except OSError:
                pass
        return found

    def test_a_killed_keeper_takes_its_program_with_it_and_the_task_is_lost(self):
        for name in ("millrace-keeper", "millrace-guard"):
            with self.subTest(name=name):
                program = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint('up'); time.sleep(1000)"
                job = self.launch("--workers", "2", "--", *self.program(program))
                for task in ("worker/0", "worker/1"):
                    job.wait_for("[%s] up" % task)
                os.kill(self.keepers(job, name)[0], signal.SIGKILL)
                self.assertEqual(job.end(10), 1)
                self.assertRegex(job.stderr.splitlines()[-1], r"worker/\d was lost.*; the others stopped because of it$")
                self.assertEqual(self.left(0), {})

    def test_what_a_keeper_and_its_guard_leave_behind_is_ended_by_the_launcher(self):
        program = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint('up'); time.sleep(1000)"
        job = self.launch("--workers", "1", "--", *self.program(program)).wait_for("up")
        for pid in self.keepers(job, "millrace-guard") + self.keepers(job, "millrace-keeper"):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.end(10), 1)
        self.assertEqual(self.left(0), {})

    def test_nothing_is_left_when_all_keepers_and_the_launcher_are_killed(self):
        job = self.launch("--workers", "2", "--", "sleep", "1000")
        self.until(lambda: job.read() and len(job.tasks()) == 2)
        for pid in self.keepers(job, "millrace-keeper"):
            os.kill(pid, signal.SIGKILL)
        job.process.kill()
        job.process.wait()
        self.assertEqual(self.left(10), {})

    def test_a_suspended_task_is_named_within_ten_seconds(self):
        job = self.steps("--workers", "2")
        os.kill(job.tasks()["worker/0"], signal.SIGSTOP)
        self.assertEqual(job.end(10), 137)
        self.assertRegex(job.stderr.splitlines()[-1], r"worker/0 was suspended by SIGSTOP at step \d+ for .*; the others stopped because of it$")
        self.assertEqual(self.left(0), {})

    def test_a_suspended_launcher_suspends_the_job_and_both_go_on(self):
        job = self.steps("--workers", "2")
        pids = job.tasks().values()

        def states():
            return [jobs.state_of(pid) for pid in [job.pid, *pids]]
        job.process.send_signal(signal.SIGTSTP)
        self.until(lambda: job.read(0) and states() == ["T"] * 3)
        job.process.send_signal(signal.SIGCONT)
        self.until(lambda: job.read(0) and "T" not in states())
        job.wait_for("[worker/1] step 60 ")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(10), 143)


class RestartTest(LaunchTest):
    def test_a_task_that_fails_is_restarted_at_its_address_with_a_pause(self):
        program = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
print("at", config["cluster"]["worker"])
count = len(os.listdir("."))
open("%d" % count, "w").close()
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
        keeper = SignalTest.keepers(self, job, "millrace-keeper")[0]
        os.kill(keeper, signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertIn("worker/0 was lost", job.stderr)


class OutputTest(LaunchTest):
    def test_stdout_and_stderr_stay_apart_and_lines_stay_whole(self):
        program = "import sys, time\nfor i in range(200):\n    sys.stdout.write('a' * 50); sys.stdout.flush(); sys.stdout.write('b' * 50 + '\\n')\nsys.stderr.write('bad\\n'); sys.stdout.write('end')"
        job = self.run_job("--workers", "4", "--", *self.program(program))
        lines = job.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 201)
        for line in lines:
            self.assertRegex(line, r"^\[worker/\d\] (a{50}b{50}|end)$")
        self.assertEqual(job.stderr.count("] bad\n"), 4)
        self.assertNotIn("\033", job.stdout + job.stderr)

    def test_a_long_line_comes_in_pieces_and_a_flood_arrives_whole(self):
        job = self.run_job("--workers", "1", "--quiet", "--", *self.program("print('x' * 100000)\nfor i in range(100000): print(i)"))
        text = job.stdout
        self.assertEqual(text.count("x"), 100000)
        self.assertEqual([line for line in text.splitlines() if "x" not in line], ["[worker/0] %d" % i for i in range(100000)])
        self.assertEqual(job.stderr, "")

    def test_logs_keep_what_each_task_said(self):
        logs = os.path.join(self.folder, "logs", "new")
        self.run_job("--workers", "2", "--log_dir", logs, "--", *self.program(TALK + "sys.stderr.write('and more')"))
        for index in (0, 1):
            with open(os.path.join(logs, "worker-%d.log" % index)) as f:
                self.assertEqual(f.read(), "I am worker/%d\nand more" % index)

    def test_colour_is_a_matter_of_taste(self):
        self.assertIn("\033[", self.run_job("--workers", "1", "--color", "always", "--", "echo", "x").stdout)
        self.assertNotIn("\033[", self.run_job("--workers", "1", "--", "echo", "x", env={"NO_COLOR": "1"}).stdout)

    def test_a_reader_that_goes_does_not_end_the_job(self):
        job = self.launch("--workers", "1", "--", "sh", "-c", "for i in $(seq 20000); do echo $i; done; touch done")
        job.wait_for("[worker/0] 1")
        job.streams = {}
        job.process.stdout.close()
        job.process.stderr.close()
        self.assertEqual(job.process.wait(30), 0)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "done")))
        job.process.stdout = job.process.stderr = None

    def test_a_terminal_shows_a_line_for_each_task_below_their_output(self):
        # As rude to a terminal as programs are.
        program = STEPS.replace("100000", "60").replace("\n    time.sleep", """
    sys.stderr.write("\\r%d%%\\r%d%% done\\033[2J\\033[5A\\n" % (step, step)); sys.stderr.flush()
    time.sleep""")
        job = self.run_job("--workers", "2", "--", *self.program(program), terminal=(24, 100))
        self.assertEqual(job.code, 0, job.stdout)
        self.assertRegex(re.sub(r"\033\[[0-9;]*m", "", job.stdout), r"worker/0  running +\d+ s  step +\d+  loss \S+  \d+ steps/s")
        screen = Screen(24, 100)
        screen.feed(job.stdout)
        lines = screen.text()
        self.assertRegex(lines[-3], r"^worker/0  succeeded .* step 59  loss 0.01")
        self.assertRegex(lines[-2], r"^worker/1  succeeded .* step 59")
        self.assertRegex(lines[-1], r"^millrace: the job succeeded")
        # Every line of theirs once and whole, and no remains of status lines between them.
        wanted = ["[worker/%d] %s" % (i, text) for i in (0, 1) for step in range(1, 60) for text in ("step %d loss %.3f" % (step, 1.0 / step), "%d%% done" % step)]
        self.assertEqual(sorted(lines[:-3]), sorted(wanted))

    def test_status_lines_follow_the_size_of_the_terminal(self):
        job = self.launch("--workers", "30", "--", *self.program(STEPS), terminal=(30, 100)).wait_for("11 more tasks")
        before = len(job.out)
        jobs.set_size(job.master, 12, 40)
        job.wait_for("23 more tasks")
        block = job.stdout[job.stdout.rindex("\033[J"):]
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143)
        self.assertGreater(len(job.out), before)
        for line in re.sub(r"\033\[[0-9;]*[mJA]", "", block).splitlines():
            if line.startswith("worker/"):
                self.assertLess(len(line), 40, line)

    def test_ctrl_c_at_the_terminal_reaches_the_tasks_once(self):
        job = self.launch("--workers", "2", "--", *self.program(STEPS), terminal=(24, 100)).wait_for("step 20 ")
        os.write(job.master, b"\x03")
        self.assertEqual(job.end(10), 130)
        self.assertEqual(self.left(0), {})

    def test_no_colours_on_a_terminal_where_they_are_not_wanted(self):
        job = self.run_job("--workers", "1", "--", "echo", "x", terminal=(24, 80), env={"NO_COLOR": "1"})
        self.assertNotRegex(job.stdout, r"\033\[[0-9;]*m")


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

    def blocked(self, *words):
        """A client that wants an element of a queue that stays empty, on two servers."""
        return self.launch("--ps", "1", "--workers", "1", "--side_job", "client=1", "--serve", "ps", "--serve", "worker", "--service_job", "ps",
                           "--service_job", "worker", "--restart", "client=on-failure:9", "--hang_after", "1", *words, "--", PROBE, "--target=grpc://{worker_hosts}", "block",
                           "/job:ps/task:0", "/job:worker/task:0")

    def test_what_millraces_tasks_wait_for_is_told_and_in_status_too(self):
        job = self.blocked()
        job.wait_for("no step for")
        line = [line for line in job.stderr.splitlines() if "no step for" in line][0]
        self.assertRegex(line, "FIFOQueue|queue")
        told = json.loads(self.status("--json", "--job", str(job.pid)).stdout)["jobs"][0]
        self.assertRegex(told["hang"], "FIFOQueue|queue")
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
    jobs.MILLRACE, PROBE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
