#!/usr/bin/env python3
"""Kills and stops processes of a real training job, breaks their connections and their disk, and looks at what happens.

The job is counting_main.cc on 1 ps and 2 workers under `millrace launch`. After each fault the training must go on from where it was, or the job must end
with a line that names what happened; either within ten seconds, with no process left, and with a checkpoint that can be read. At the end the books of the workers
tell whether a run was lost or counted twice.

  kill_test.py --millrace=M --program=P --shim=S [TESTS...]
"""

import argparse
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import job as jobs

FLAGS = None
WITHIN = 10  # seconds from a fault to its consequence
GROWTH = 200  # steps that show that a training goes on; a busy machine makes few
SLACK = 1000  # steps by which two lines of the same moment may differ
SWITCHES = ["stalled", "full", "no_descriptors", "cut", "silence", "clock", "twice", "unanswered"]  # as in fault_shim.cc
DETECTOR = 5  # after so long a silent process is given up (--peer_timeout and --lost_after)


class Faults(unittest.TestCase):
    def start(self, *launch_flags, program_flags=(), shim=False):
        folder = tempfile.TemporaryDirectory(prefix="millrace_kill_")
        self.addCleanup(folder.cleanup)
        self.log_dir = folder.name
        self.in_step = "--sync_replicas" in program_flags
        job = jobs.Job([FLAGS.millrace, "launch", "--ps", "1", "--workers", "2", *launch_flags, "--", FLAGS.program, "--log_dir=" + self.log_dir,
                        "--save_checkpoint_secs=1", *program_flags], marker=self.log_dir, env=self.faults() if shim else None)
        self.addCleanup(job.clean_up)
        return job

    def faults(self):
        """The environment of a job whose operating system can fail; `switch` makes it."""
        path = os.path.join(self.log_dir, "faults")
        with open(path, "wb") as f:
            f.write(bytes(4 * len(SWITCHES)))
        self.switches = open(path, "r+b", buffering=0)
        self.addCleanup(self.switches.close)
        return {"LD_PRELOAD": FLAGS.shim, "MILLRACE_TEST_FAULTS": path}

    def switch(self, fault, value):
        os.pwrite(self.switches.fileno(), struct.pack("i", value), 4 * SWITCHES.index(fault))

    def assert_switched(self, fault):
        """The task has noticed a fault that happens once."""
        end = time.monotonic() + WITHIN
        while os.pread(self.switches.fileno(), 4, 4 * SWITCHES.index(fault)) != bytes(4):
            self.assertLess(time.monotonic(), end, "the task did not notice the fault")
            time.sleep(0.02)

    def train_a_while(self, job):
        """Until there is a checkpoint, and then a little longer, so that the fault comes anywhere."""
        job.wait_for(r"\[worker/1\].*step \d+", 60)
        end = time.monotonic() + 30
        while not os.path.exists(os.path.join(self.log_dir, "checkpoint")):
            self.assertLess(time.monotonic(), end, "no checkpoint was written; the job said:\n" + job.text())
            time.sleep(0.05)
        time.sleep(random.uniform(0, 1.5))

    def assert_restorable(self):
        result = subprocess.run([FLAGS.millrace, "checkpoint", "--verify", self.log_dir], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("global_step", result.stdout)

    def saved_step(self):
        """The step of the newest checkpoint that the job knows of."""
        with open(os.path.join(self.log_dir, "checkpoint")) as f:
            return int(re.search(r'model_checkpoint_path: ".*-(\d+)"', f.read()).group(1))

    def kept(self):
        """The steps of the checkpoints, oldest first."""
        return sorted(int(name.split("-")[1].split(".")[0]) for name in os.listdir(self.log_dir) if re.match(r"model.ckpt-\d+\.index$", name))

    def assert_trains_on(self, job, said, at_least):
        """From line `said` on both workers make steps, which begin where they were and grow. A line may tell a step that is a little older than another's."""
        for worker in ("worker/0", "worker/1"):
            job.wait_for(r"\[%s\].*\(global step \d+\)" % worker, DETECTOR + 2 * WITHIN, after=said)
        steps = job.global_steps(said)
        self.assertGreaterEqual(min(steps), at_least - SLACK, job.text())
        job.wait_for_step(max(steps) + GROWTH, 2 * WITHIN)

    def books(self):
        """How many runs the workers have begun, and how many were acknowledged, in all their lives."""
        begun = acknowledged = 0
        for worker in (0, 1):
            with open(os.path.join(self.log_dir, "ledger-%d" % worker), "rb") as f:
                numbers = struct.unpack("qqq", f.read(24))
            begun += numbers[0]
            acknowledged += numbers[1]
        return begun, acknowledged

    def stop(self, job, lost="", saved=0):
        """Lets the training end by itself, and compares what the ps has with the books. `lost` is the task that had died; where it was the ps, `saved` is the step
        of the checkpoint that was there."""
        self.assert_restorable()
        self.write("stop", max(job.global_steps()) + 100)
        self.assertEqual(job.end(6 * WITHIN), 0, job.text())
        self.assert_gone(job)
        begun, acknowledged = self.books()
        told = re.search(r"at the end w is (-?\d+) and the global step (\d+)", job.text())
        self.assertIsNotNone(told, job.text())
        w, step = int(told.group(1)), int(told.group(2))
        said = "w is %d, the global step %d, %d runs were begun and %d acknowledged; the job said:\n%s" % (w, step, begun, acknowledged, job.text())
        # A run whose answer was lost with the ps may be in the checkpoint and be repeated.
        forgotten = 2 if lost.startswith("ps") else 0
        if self.in_step:
            # Two gradients of 1 for each step. A chief that is killed may leave half an update behind, a ps a checkpoint between two variables.
            self.assertLessEqual(abs(w + step), 1 if lost in ("worker/0", "ps/0") else 0, said)
            self.assertLessEqual(2 * step, begun + forgotten, said)
            self.assertGreaterEqual(step, saved, said)
            return
        for value in (w, step):
            self.assertLessEqual(value, begun + forgotten, said)
            self.assertGreaterEqual(value, saved if lost.startswith("ps") else acknowledged, said)

    def assert_gone(self, job):
        left = job.left_after(WITHIN)
        self.assertEqual(left, [], "processes left; the job said:\n" + job.text())

    def steps_of(self, job, name):
        return [line for _, line in job.lines if line.startswith("[%s]" % name) and " step " in line]

    def ends_with(self, fault, name, what, code):
        """Without restarts the job ends at once and says why in one line."""
        job = self.start("--restart", "ps=never", "--restart", "worker=never")
        self.train_a_while(job)
        saved, reached = self.saved_step(), max(job.global_steps())
        os.kill(job.task(name), fault)
        limit = WITHIN if fault == signal.SIGKILL else WITHIN + DETECTOR
        self.assertEqual(job.end(limit), code, job.text())
        named = re.search(r"millrace: %s %s.*at step (\d+).*; the others stopped because of it" % (name, what), job.text())
        self.assertIsNotNone(named, job.text())
        self.assertGreaterEqual(int(named.group(1)), reached - SLACK, job.text())
        self.assert_gone(job)
        self.assert_restorable()
        begun, _ = self.books()
        for step in (int(named.group(1)), self.saved_step()):
            self.assertLessEqual(step, begun, job.text())
        self.assertGreaterEqual(self.saved_step(), saved)

    def goes_on(self, fault, name, *program_flags):
        """With restarts the task comes back and the training makes steps again."""
        job = self.start("--restart", "ps=on-failure:3", "--restart", "worker=on-failure:3", program_flags=program_flags)
        self.train_a_while(job)
        said = len(job.lines)
        # What a ps held since the newest checkpoint is lost with it; nothing is lost with a worker.
        reached = self.saved_step() if name.startswith("ps") else max(job.global_steps())
        os.kill(job.task(name), fault)
        limit = WITHIN if fault == signal.SIGKILL else WITHIN + DETECTOR
        job.wait_for(r"millrace: %s .*restart" % name, limit, after=said)
        # Both workers make steps again, the one that came back too.
        self.assert_trains_on(job, len(job.lines), reached)
        self.stop(job, lost=name, saved=reached if name.startswith("ps") else 0)

    def test_killed_worker_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "worker/1", "was killed by SIGKILL", 137)

    def test_killed_chief_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "worker/0", "was killed by SIGKILL", 137)

    def test_killed_ps_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "ps/0", "was killed by SIGKILL", 137)

    def test_killed_worker_comes_back(self):
        self.goes_on(signal.SIGKILL, "worker/1")

    def test_killed_chief_comes_back(self):
        self.goes_on(signal.SIGKILL, "worker/0")

    def test_killed_ps_comes_back(self):
        self.goes_on(signal.SIGKILL, "ps/0")

    def test_stopped_worker_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "worker/1", "was suspended by SIGSTOP", 137)

    def test_stopped_chief_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "worker/0", "was suspended by SIGSTOP", 137)

    def test_stopped_ps_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "ps/0", "was suspended by SIGSTOP", 137)

    def test_stopped_worker_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "worker/1")

    def test_stopped_chief_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "worker/0")

    def test_stopped_ps_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "ps/0")

    def test_killed_worker_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "worker/1", "--sync_replicas")

    def test_killed_chief_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "worker/0", "--sync_replicas")

    def test_killed_ps_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "ps/0", "--sync_replicas")

    def cut(self, name, fault="cut"):
        """All connections of a task break at once: the steps in flight fail, sessions recover, and nothing is lost or counted twice."""
        job = self.start(shim=True)
        self.train_a_while(job)
        said, reached = len(job.lines), max(job.global_steps())
        self.switch(fault, job.task(name))
        # Nobody need notice a silent connection that nothing is sent over: steps may have another.
        if fault == "cut":
            job.wait_for("the session was lost|no step lane", DETECTOR + 2 * WITHIN, after=said)
        self.assert_trains_on(job, len(job.lines), reached)
        self.assert_switched(fault)
        self.assertIsNone(job.process.poll(), job.text())
        self.stop(job)

    def test_cut_off_worker_trains_on(self):
        self.cut("worker/1")

    def test_cut_off_chief_trains_on(self):
        self.cut("worker/0")

    def test_cut_off_ps_trains_on(self):
        self.cut("ps/0")

    def test_silent_worker_trains_on(self):
        self.cut("worker/1", "silence")

    def test_silent_ps_trains_on(self):
        self.cut("ps/0", "silence")

    def again(self, name, fault):
        """A call arrives twice, or its answer is lost and it is made again, some times over: each run counts once."""
        job = self.start(shim=True)
        self.train_a_while(job)
        for _ in range(2):
            said, reached = len(job.lines), max(job.global_steps())
            self.switch(fault, job.task(name))
            self.assert_switched(fault)
            self.assert_trains_on(job, said, reached)
        self.assertIsNone(job.process.poll(), job.text())
        self.stop(job)

    def test_calls_of_a_worker_that_arrive_twice_count_once(self):
        self.again("worker/1", "twice")

    def test_answers_of_the_ps_that_arrive_twice_change_nothing(self):
        self.again("ps/0", "twice")

    def test_runs_whose_answers_are_lost_count_once(self):
        self.again("ps/0", "unanswered")

    def limit_memory(self, pid, spare):
        """Lets a process have only so many bytes more than it has. Returns the limit that it had."""
        with open("/proc/%d/statm" % pid) as f:
            size = int(f.read().split()[0]) * resource.getpagesize()
        had = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (size + spare, had[1]))
        return had

    def write(self, name, number):
        path = os.path.join(self.log_dir, name)
        with open(path + ".new", "w") as f:
            f.write(str(number))
        os.rename(path + ".new", path)

    def no_memory(self, name, device):
        """A process gets no large memory for a while: the step that needs it fails and names its node, and nothing else happens."""
        job = self.start(program_flags=["--large_device=" + device])
        self.train_a_while(job)
        job.wait_for("The step of 16 MB: OK", 3 * WITHIN)
        pid, said, reached = job.task(name), len(job.lines), max(job.global_steps())
        had = self.limit_memory(pid, 64 << 20)
        self.write("large", 256)
        job.wait_for(r"The step of 256 MB: RESOURCE_EXHAUSTED: no memory for a tensor of .* \(268435456 bytes\)", 3 * WITHIN, after=said)
        job.wait_for(r"{{node large}}.*%s/replica:0/%s" % tuple(device.rsplit("/", 1)), WITHIN, after=said)
        self.assert_trains_on(job, len(job.lines), reached)
        resource.prlimit(pid, resource.RLIMIT_AS, had)
        job.wait_for("The step of 256 MB: OK", 3 * WITHIN, after=len(job.lines))
        self.wait_for_checkpoint_after(job, self.saved_step())
        self.stop(job)

    def test_no_memory_at_the_ps_fails_the_step_that_needs_it(self):
        self.no_memory("ps/0", "/job:ps/task:0")

    def test_no_memory_at_a_worker_fails_the_step_that_needs_it(self):
        self.no_memory("worker/1", "/job:worker/task:1")

    def test_not_a_byte_of_memory_ends_a_worker_that_comes_back(self):
        job = self.start("--restart", "worker=on-failure:3", program_flags=["--large_device=/job:worker/task:1"])
        self.train_a_while(job)
        pid, said, reached = job.task("worker/1"), len(job.lines), max(job.global_steps())
        had = self.limit_memory(pid, 0)
        self.write("large", 256)
        # It may have enough of its own to notice that a step needs more.
        job.wait_for(r"millrace: worker/1 .*restart|The step of 256 MB: RESOURCE_EXHAUSTED", 3 * WITHIN, after=said)
        try:
            resource.prlimit(pid, resource.RLIMIT_AS, had)
        except ProcessLookupError:
            pass
        self.write("large", 16)
        self.assert_trains_on(job, len(job.lines), reached)
        self.stop(job, lost="worker/1")

    def clock(self, seconds):
        """The time of day jumps: nobody notices, and checkpoints go on."""
        job = self.start(shim=True)
        self.train_a_while(job)
        said, reached = len(job.lines), max(job.global_steps())
        self.switch("clock", seconds)
        self.assert_trains_on(job, said, reached)
        self.wait_for_checkpoint_after(job, self.saved_step())
        self.assertNotIn("session was lost", job.text())
        self.stop(job)

    def wait_for_checkpoint_after(self, job, step):
        end = time.monotonic() + WITHIN
        while self.saved_step() <= step:
            self.assertLess(time.monotonic(), end, "no checkpoint after step %d; the job said:\n%s" % (step, job.text()))
            time.sleep(0.05)

    def test_clock_ahead_changes_nothing(self):
        self.clock(3600)

    def test_clock_back_changes_nothing(self):
        self.clock(-3600)

    def test_stalled_disk_is_named_and_training_goes_on(self):
        job = self.start(shim=True)
        self.train_a_while(job)
        said, reached = len(job.lines), max(job.global_steps())
        self.switch("stalled", 1)
        job.wait_for(r"no checkpoint has been saved for .*, one is due every 1s", 2 * WITHIN, after=said)
        self.assert_trains_on(job, len(job.lines), reached)
        self.switch("stalled", 0)
        self.wait_for_checkpoint_after(job, self.saved_step())
        self.stop(job)

    def test_full_disk_ends_the_job_and_keeps_the_checkpoints(self):
        job = self.start(shim=True)
        self.train_a_while(job)
        saved = self.saved_step()
        self.switch("full", 1)
        self.assertNotEqual(job.end(2 * WITHIN), 0, job.text())
        self.assertRegex(job.text(), r"(?i)no space left on device")
        self.assert_gone(job)
        self.assert_restorable()
        self.assertGreaterEqual(self.saved_step(), saved)

    def value_in(self, checkpoint, tensor):
        text = subprocess.run([FLAGS.millrace, "checkpoint", os.path.join(self.log_dir, checkpoint), "--tensor", tensor], capture_output=True, text=True, timeout=60)
        self.assertEqual(text.returncode, 0, text.stderr)
        return int(float(re.findall(r"-?[0-9.]+", text.stdout)[-1]))

    def assert_stopped(self, job, number=signal.SIGTERM, seconds=WITHIN):
        """The job ended by a notice, and its last line is true: every run that was acknowledged is in the checkpoint that it names."""
        self.assertEqual(job.end(seconds), 143, job.text())
        last = job.text().splitlines()[-1]
        told = re.fullmatch(r"millrace: stopped by %s at step (\d+); (model\.ckpt-\1) is whole" % number.name, last)
        self.assertIsNotNone(told, job.text())
        self.assert_gone(job)
        self.assert_restorable()
        step, w = int(told.group(1)), self.value_in(told.group(2), "w")
        self.assertEqual(self.saved_step(), step)
        begun, acknowledged = self.books()
        said = "w is %d, the step %d, %d runs were begun and %d acknowledged; the job said:\n%s" % (w, step, begun, acknowledged, job.text())
        if self.in_step:
            self.assertEqual(w, -step, said)
            self.assertLessEqual(2 * step, begun, said)
        else:
            self.assertEqual(w, step, said)
            self.assertGreaterEqual(step, acknowledged, said)
            self.assertLessEqual(step, begun, said)
        return step

    def notice(self, name, *program_flags, number=signal.SIGTERM, flags=()):
        job = self.start("--restart", "on-failure", *flags, program_flags=program_flags)
        self.train_a_while(job)
        os.kill(job.process.pid if name == "launcher" else job.task(name), number)
        return self.assert_stopped(job, number)

    def test_notice_to_the_launcher_loses_no_run(self):
        self.notice("launcher")

    def test_notice_to_a_worker_loses_no_run(self):
        self.notice("worker/1")

    def test_notice_to_the_ps_loses_no_run(self):
        self.notice("ps/0")

    def test_notice_to_the_chief_in_step_loses_no_run(self):
        self.notice("worker/0", "--sync_replicas", number=signal.SIGUSR1, flags=("--notice_signal", "USR1"))

    def test_notice_in_step_and_a_new_start_go_on_where_it_was(self):
        step = self.notice("launcher", "--sync_replicas")
        job = self.restart("--sync_replicas")
        job.wait_for_step(step + GROWTH, 6 * WITHIN)
        self.assertGreater(min(job.global_steps()), step, job.text())
        self.stop(job)

    def restart(self, *program_flags):
        """The same training again, in the folder of the one before."""
        job = jobs.Job([FLAGS.millrace, "launch", "--ps", "1", "--workers", "2", "--", FLAGS.program, "--log_dir=" + self.log_dir,
                        "--save_checkpoint_secs=1", *program_flags], marker=self.log_dir)
        self.addCleanup(job.clean_up)
        return job

    def test_notice_while_a_worker_is_being_restarted_loses_no_run(self):
        job = self.start("--restart", "worker=on-failure:3")
        self.train_a_while(job)
        os.kill(job.task("worker/1"), signal.SIGKILL)
        job.wait_for(r"millrace: worker/1 .*restart", WITHIN)
        os.kill(job.process.pid, signal.SIGTERM)
        self.assert_stopped(job)

    def test_notice_at_the_start_ends_the_job_with_nothing_left(self):
        job = self.start()
        time.sleep(random.uniform(0, 1.0))
        os.kill(job.process.pid, signal.SIGTERM)
        code = job.end(WITHIN)
        self.assert_gone(job)
        if code != -signal.SIGTERM:  # the launcher itself had only begun
            self.assertEqual(code, 143, job.text())
            self.assertRegex(job.text().splitlines()[-1], r"(stopped|interrupted) by SIGTERM")
        if os.path.exists(os.path.join(self.log_dir, "checkpoint")):
            self.assert_restorable()

    def test_notice_with_a_full_disk_says_that_the_checkpoint_is_not_whole(self):
        job = self.start(program_flags=("--save_checkpoint_secs=600",), shim=True)
        self.train_a_while(job)
        saved = self.saved_step()
        self.switch("full", 1)
        os.kill(job.process.pid, signal.SIGTERM)
        self.assertEqual(job.end(WITHIN), 1, job.text())
        self.switch("full", 0)
        self.assertRegex(job.text().splitlines()[-1], r"(?i)^millrace: stopped by SIGTERM at step \d+; the checkpoint is not whole: .*no space left on device")
        self.assert_gone(job)
        self.assert_restorable()
        self.assertEqual(self.saved_step(), saved)

    def test_no_descriptors_for_a_while_costs_nothing(self):
        job = self.start("--restart", "worker=on-failure:3", shim=True)
        self.train_a_while(job)
        reached = max(job.global_steps())
        self.switch("no_descriptors", 1)
        time.sleep(2)  # the time that the fault lasts
        self.assert_trains_on(job, len(job.lines), reached)
        self.switch("no_descriptors", 0)
        # New connections work again: a worker that comes back gets its own.
        said = len(job.lines)
        os.kill(job.task("worker/1"), signal.SIGKILL)
        job.wait_for(r"millrace: worker/1 .*restart", WITHIN, after=said)
        self.assert_trains_on(job, len(job.lines), reached)
        self.stop(job, lost="worker/1")

    def test_damaged_checkpoint_costs_the_steps_since_the_one_before(self):
        job = self.start("--restart", "ps=on-failure:3", "--restart", "worker=on-failure:3", shim=True)
        self.train_a_while(job)
        end = time.monotonic() + WITHIN
        while len(self.kept()) < 2:
            self.assertLess(time.monotonic(), end, "no second checkpoint; the job said:\n" + job.text())
            time.sleep(0.05)
        self.switch("stalled", 1)  # no newer checkpoint than the one that is damaged
        time.sleep(0.5)  # a save that is nearly done
        kept = self.kept()
        data = os.path.join(self.log_dir, "model.ckpt-%d.data-00000-of-00001" % kept[-1])
        with open(data, "r+b") as f:
            f.seek(os.path.getsize(data) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 4]))
        said = len(job.lines)
        os.kill(job.task("ps/0"), signal.SIGKILL)
        self.switch("stalled", 0)
        job.wait_for(r"millrace: ps/0 .*restart", WITHIN, after=said)
        self.assert_trains_on(job, len(job.lines), kept[-2])
        self.assertIn("model.ckpt-%d" % kept[-1], job.text())
        self.stop(job, lost="ps/0", saved=kept[-2])

    def test_strangers_at_the_ports_cost_nothing(self):
        job = self.start()
        self.train_a_while(job)
        said, reached = len(job.lines), max(job.global_steps())
        ports = set()
        for name in ("ps/0", "worker/0", "worker/1"):
            ports.update(jobs.ports_of(job.task(name)))
        strangers = []
        for port in ports:
            for i in range(200):
                stranger = socket.socket()
                strangers.append(stranger)
                stranger.settimeout(1)
                try:
                    stranger.connect(("127.0.0.1", port))
                    stranger.sendall([b"", os.urandom(100), b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(50)][i % 4])
                except OSError:
                    pass
        self.assertTrue(ports)
        self.assert_trains_on(job, said, reached)
        for stranger in strangers:
            stranger.close()
        self.stop(job)

    def test_killed_launcher_leaves_nothing(self):
        job = self.start()
        self.train_a_while(job)
        saved = self.saved_step()
        os.kill(job.process.pid, signal.SIGKILL)
        self.assert_gone(job)
        self.assert_restorable()
        self.assertGreaterEqual(self.saved_step(), saved)
        self.assertLessEqual(self.saved_step(), self.books()[0])

    def test_stopped_launcher_goes_on_where_it_was(self):
        job = self.start()
        self.train_a_while(job)
        reached = max(job.global_steps())
        os.kill(job.process.pid, signal.SIGSTOP)
        time.sleep(DETECTOR + 2)
        said = len(job.lines)
        os.kill(job.process.pid, signal.SIGCONT)
        self.assert_trains_on(job, said, reached)
        self.assertIsNone(job.process.poll(), job.text())
        self.stop(job)

    def test_suspended_job_goes_on_where_it_was(self):
        job = self.start()
        self.train_a_while(job)
        reached = max(job.global_steps())
        processes = [job.process.pid, *job.processes()]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(DETECTOR + 2)
        said = len(job.lines)
        for process in reversed(processes):
            os.kill(process, signal.SIGCONT)
        self.assert_trains_on(job, said, reached)
        self.stop(job)
        self.assertNotIn("has not answered", job.text())


class AtOnce(unittest.TextTestResult):
    """Shows a failure when it happens: a soak takes long."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])


def main():
    global FLAGS
    parser = argparse.ArgumentParser()
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True, help="the library that makes the faults of the operating system")
    parser.add_argument("--times", type=int, default=int(os.environ.get("MILLRACE_KILL_TIMES", 1)), help="run every test so often")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("tests", nargs="*")
    FLAGS = parser.parse_args()
    random.seed(FLAGS.seed)
    print("seed %d" % FLAGS.seed, flush=True)
    names = FLAGS.tests or unittest.defaultTestLoader.getTestCaseNames(Faults)
    suite = unittest.TestSuite(Faults(name) for name in names for _ in range(FLAGS.times))
    return not unittest.TextTestRunner(verbosity=2, resultclass=AtOnce).run(suite).wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
