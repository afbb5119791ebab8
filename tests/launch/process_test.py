"""process_test.py MILLRACE CLUSTER_PROBE: how jobs end, and what real kills leave behind: nothing."""

import os
import signal
import struct
import subprocess
import time

import jobs
from jobs import LaunchTest, processes_with
from programs import ROLES, STEPS


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
        self.assertRegex(job.stderr.splitlines()[-1], r"worker/\d could not be started: \./no_such_program: No such file or directory")
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

    def test_a_killed_keeper_takes_its_program_with_it_and_the_task_is_lost(self):
        for name in ("millrace-keeper", "millrace-guard"):
            with self.subTest(name=name):
                program = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint('up'); time.sleep(1000)"
                job = self.launch("--workers", "2", "--", *self.program(program))
                for task in ("worker/0", "worker/1"):
                    job.wait_for("[%s] up" % task)
                os.kill(job.keepers(name)[0], signal.SIGKILL)
                self.assertEqual(job.end(10), 1)
                self.assertRegex(job.stderr.splitlines()[-1], r"worker/\d was lost.*; the others stopped because of it$")
                self.assertEqual(self.left(0), {})

    def test_what_a_keeper_and_its_guard_leave_behind_is_ended_by_the_launcher(self):
        program = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint('up'); time.sleep(1000)"
        job = self.launch("--workers", "1", "--", *self.program(program)).wait_for("up")
        for pid in job.keepers("millrace-guard") + job.keepers("millrace-keeper"):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.end(10), 1)
        self.assertEqual(self.left(0), {})

    def test_nothing_is_left_when_all_keepers_and_the_launcher_are_killed(self):
        job = self.launch("--workers", "2", "--", "sleep", "1000")
        self.until(lambda: job.read() and len(job.tasks()) == 2)
        for pid in job.keepers("millrace-keeper"):
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


class KeeperTest(LaunchTest):
    """The keeper by itself, as a launcher that fails it would leave it."""

    def keeper(self, *words):
        process = subprocess.Popen([jobs.MILLRACE, "task-keeper", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=dict(os.environ, **{jobs.MARK: self.mark}))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        return process

    @staticmethod
    def start(*arguments):
        """A frame that starts a program (millrace/launch/keeper_frame.h)."""
        words = [a.encode() for a in arguments]
        body = struct.pack("<q", len(words)) + b"".join(struct.pack("<q", len(w)) + w for w in words) + struct.pack("<q", 0)
        return b"\x01" + struct.pack("<I", len(body)) + body

    def running(self, *words):
        keeper = self.keeper(*words)
        keeper.stdin.write(self.start("sh", "-c", "setsid sleep 1000 & sleep 1000"))
        keeper.stdin.flush()
        self.until(lambda: list(processes_with(self.mark).values()).count("sleep 1000") == 2)
        return keeper

    def test_it_ends_everything_when_the_launcher_is_silent_for_too_long(self):
        keeper = self.running("3")
        self.assertEqual(keeper.wait(10), 0)
        self.assertEqual(self.left(0), {})

    def test_it_ends_everything_when_the_launcher_hangs_up(self):
        keeper = self.running()
        keeper.stdin.close()
        self.assertEqual(keeper.wait(10), 0)
        self.assertEqual(self.left(0), {})

    def test_it_ends_everything_when_nobody_listens_any_more(self):
        keeper = self.keeper()
        keeper.stdin.write(self.start("sh", "-c", "sleep 1000 & while :; do echo x; done"))
        keeper.stdin.flush()
        keeper.stdout.read(100)
        keeper.stdout.close()
        self.assertEqual(keeper.wait(10), 0)
        self.assertEqual(self.left(0), {})

    def test_it_ends_everything_when_it_is_told_nonsense(self):
        for nonsense in (b"\xff" * 64, b"\x01\xff\xff\xff\xff", b"\x01" + struct.pack("<I", 8) + b"\xff" * 8, self.start("true") * 2,
                         b"\x02" + struct.pack("<I", 8) + struct.pack("<q", 12345)):
            with self.subTest(nonsense=nonsense):
                keeper = self.running()
                keeper.stdin.write(nonsense)
                keeper.stdin.flush()
                self.assertEqual(keeper.wait(10), 0)
                self.assertEqual(self.left(0), {})


if __name__ == "__main__":
    jobs.main()
