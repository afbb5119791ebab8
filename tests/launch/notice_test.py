"""notice_test.py MILLRACE CLUSTER_PROBE: a notice of preemption ends a job in order, whoever gets it."""

import os
import signal
import stat

import jobs
from jobs import LaunchTest

# A program that knows of notices, as one in any language can: it writes lines to the launcher. `%s` is what the chief says in the end.
AWARE = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
name = "%%s/%%d" %% (task["type"], task["index"])
launcher = int(os.environ["MILLRACE_PROGRESS_FD"])
orders = []
def say(line):
    os.write(launcher, (line + "\\n").encode())
def on_signal(number, frame):
    orders.append(number)
    print("asked", flush=True)
def on_stranger(number, frame):
    say("notice=given signal=%%d" %% number)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGUSR2, on_stranger)
say("step=812")
print("up, grace", os.environ["MILLRACE_GRACE"], os.environ.get("MILLRACE_NOTICE_SIGNAL"), flush=True)
while not orders:
    time.sleep(0.01)
if name == "worker/1":
    say("notice=ready")
if name == "worker/0":
    say("notice=stopping")
    %s
print("ends", flush=True)
"""
SAVED = "say('step=813 notice=saved checkpoint=model.ckpt-813')"


class Started(LaunchTest):
    def start(self, *words, chief=SAVED, env=None):
        job = self.launch("--ps", "1", "--workers", "2", *words, "--", *self.program(AWARE % chief), env=env)
        for task in ("ps/0", "worker/0", "worker/1"):
            job.wait_for("[%s] up" % task)
        return job


class NoticeTest(Started):
    def assert_order(self, job, number="SIGTERM"):
        self.assertEqual(job.end(20), 143, job.stderr)
        self.assertEqual(job.stderr.splitlines()[-1], "millrace: stopped by %s at step 813; model.ckpt-813 is whole" % number)
        lines = job.stdout.splitlines()
        asked = [lines.index("[%s] asked" % task) for task in ("worker/1", "worker/0", "ps/0")]
        self.assertEqual(asked, sorted(asked), job.stdout)
        self.assertLess(lines.index("[worker/0] ends"), asked[2], job.stdout)
        self.assertEqual(self.left(0), {})

    def test_the_workers_stop_then_the_chief_saves_and_the_ps_end_last(self):
        job = self.start("--grace", "60")
        self.assertIn("[ps/0] up, grace 60 None", job.stdout)
        job.process.send_signal(signal.SIGTERM)
        self.assert_order(job)

    def test_the_signal_of_the_flag_is_a_notice_too(self):
        job = self.start("--grace", "60", "--notice_signal", "USR1")
        self.assertIn("grace 60 SIGUSR1", job.stdout)
        job.process.send_signal(signal.SIGUSR1)
        self.assert_order(job, "SIGUSR1")

    def test_a_notice_to_one_task_is_one_to_all(self):
        for task in ("ps/0", "worker/0"):
            with self.subTest(task=task):
                job = self.start("--grace", "60")
                os.kill(job.tasks()[task], signal.SIGUSR2)
                self.assert_order(job, "SIGUSR2")

    def test_an_order_that_was_lost_among_other_signals_is_repeated(self):
        # Two signals that are pending together are one: this program has seen only that of somebody else.
        program = self.program("""
import os, signal, time
launcher = int(os.environ["MILLRACE_PROGRESS_FD"])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("up", flush=True)
first = signal.sigwaitinfo([signal.SIGTERM])
os.write(launcher, b"notice=given signal=15\\n")
again = signal.sigwaitinfo([signal.SIGTERM])
print("again", first.si_pid == again.si_pid, again.si_code, flush=True)
""")
        job = self.launch("--workers", "1", "--grace", "60", "--", *program)
        job.wait_for("up")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143, job.stderr)
        self.assertIn("again True -1", job.stdout)

    def test_a_scheduler_that_signals_every_process_gives_one_notice(self):
        job = self.start("--grace", "60")
        for pid in (*job.keepers("millrace-keeper"), *job.keepers("millrace-guard"), job.pid):
            os.kill(pid, signal.SIGTERM)
        self.assert_order(job)

    def test_a_second_notice_kills_at_once(self):
        job = self.start("--grace", "600", chief="time.sleep(1000)")
        job.process.send_signal(signal.SIGTERM)
        job.wait_for("[worker/0] asked")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 1)
        self.assertIn("the checkpoint is not whole: a second signal ended the job", job.stderr.splitlines()[-1])

    def test_a_chief_that_does_not_save_in_time_is_an_error(self):
        job = self.start("--grace", "0.5", chief="time.sleep(1000)")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 1)
        self.assertEqual(job.stderr.splitlines()[-1],
                         "millrace: stopped by SIGTERM at step 812; the checkpoint is not whole: it was not saved within 0.5 s (--grace)")

    def test_programs_that_know_of_no_notice_end_as_ever(self):
        job = self.launch("--ps", "1", "--workers", "2", "--", "sh", "-c", "echo up; sleep 1000")
        for task in ("ps/0", "worker/0", "worker/1"):
            job.wait_for("[%s] up" % task)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143)
        self.assertEqual(job.stderr.splitlines()[-1], "millrace: interrupted by SIGTERM; all tasks were stopped")

    def test_an_unknown_signal_is_refused(self):
        job = self.run_job("--notice_signal", "KILL", "--workers", "1", "--", "true")
        self.assertEqual(job.code, 2)
        self.assertIn("--notice_signal is 'KILL'; use TERM, USR1, USR2 or HUP", job.stderr)


class RequeueTest(Started):
    def scontrol(self, text):
        """A folder for PATH with a pretend scontrol."""
        path = os.path.join(self.folder, "bin")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "scontrol"), "w") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(os.path.join(path, "scontrol"), stat.S_IRWXU)
        return {"PATH": path + ":" + os.environ["PATH"], "SLURM_JOB_ID": "4711"}

    def test_a_job_that_a_notice_ended_is_started_again(self):
        job = self.start("--requeue", "--grace", "60", env=self.scontrol("echo \"$@\" > %s/asked\n" % self.folder))
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143)
        with open(os.path.join(self.folder, "asked")) as f:
            self.assertEqual(f.read(), "requeue 4711\n")
        self.assertIn("model.ckpt-813 is whole", job.stderr.splitlines()[-2])
        self.assertEqual(job.stderr.splitlines()[-1], "millrace: the scheduler starts the job again (--requeue)")

    def test_a_job_that_succeeds_is_not(self):
        job = self.run_job("--requeue", "--workers", "1", "--", "true", env=self.scontrol("echo > %s/asked\n" % self.folder))
        self.assertEqual(job.code, 0)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "asked")))

    def test_what_slurm_refuses_is_told(self):
        job = self.start("--requeue", "--grace", "60", env=self.scontrol("echo 'Job is not requeueable' >&2; exit 1\n"))
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143)
        self.assertEqual(job.stderr.splitlines()[-1],
                         "millrace: --requeue: scontrol requeue 4711 exited with code 1: Job is not requeueable")

    def test_outside_of_slurm_it_is_a_mistake(self):
        job = self.run_job("--requeue", "--workers", "1", "--", "true", env={"SLURM_JOB_ID": ""})
        self.assertEqual(job.code, 2)
        self.assertIn("SLURM_JOB_ID is not set", job.stderr)


if __name__ == "__main__":
    jobs.main()
