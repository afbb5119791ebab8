#!/usr/bin/env python3
"""Jobs of a real Slurm, two nodes in namespaces of their own: slurm_test.py MILLRACE MNIST_REPLICA MNIST_FOLDER [unittest's arguments].

`srun millrace place` and `millrace launch` within an allocation: they train, say which task failed and with which code, go on where a requeue stopped
them, and leave no process. What takes minutes (SoakTest) runs if MILLRACE_SOAK is set, as tests/slurm/soak does.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import slurm_cluster

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
import jobs  # noqa: E402

MILLRACE = PROGRAM = DATA = ""
CLUSTER = None

# Rank 0 is the ps, which runs until it is stopped.
FAILS = """case $MILLRACE_TASK in
worker/1) echo step 7; echo no data >&2; exit 42;;
*) exec sleep 1000;;
esac"""
WHOLE = r"millrace: stopped by SIGTERM at step (\d+); model\.ckpt-\1 is whole\n"
STAYS = "echo up $MILLRACE_TASK; setsid sleep 1000 & exec sleep 1000"


def setUpModule():
    global CLUSTER
    CLUSTER = slurm_cluster.Cluster(nodes=2, slots=8, gpus=2)
    unittest.addModuleCleanup(CLUSTER.close)


class SlurmTest(unittest.TestCase):
    def setUp(self):
        self.mark = uuid.uuid4().hex
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        left = self.left(15)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, {}, "processes are left")

    def left(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            found = jobs.processes_with(self.mark)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def run_in_slurm(self, *words):
        return CLUSTER.run(*words, environment={jobs.MARK: self.mark})

    def start(self, *words):
        job = CLUSTER.start(*words, environment={jobs.MARK: self.mark})
        self.addCleanup(job.close)
        return job

    def job_number(self):
        found = CLUSTER.run("squeue", "-h", "-o", "%i").stdout.split()
        self.assertEqual(len(found), 1)
        return found[0]

    def start_three(self, *words):
        """A job of three tasks that stay, all of which run."""
        job = self.start(*words, "--", "sh", "-c", STAYS)
        for task in ("ps/0", "worker/0", "worker/1"):
            job.wait_for("up " + task, 20)
        return job

    def training(self, folder):
        """A program that trains for ever and saves only when it is told to end."""
        return [PROGRAM, "--data_dir=" + DATA, "--train_steps=100000000", "--save_checkpoint_secs=600", "--log_dir=" + folder]

    def folder(self):
        folder = tempfile.mkdtemp(dir=CLUSTER.folder)
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def batch(self, words, *flags):
        """Submits a batch script that becomes `words`. Returns the file with what it prints."""
        folder = self.folder()
        script, out = os.path.join(folder, "job.sh"), os.path.join(folder, "job.out")
        with open(script, "w") as f:
            f.write("#!/bin/sh\nexec %s\n" % shlex.join(words))
        done = self.run_in_slurm("sbatch", "-N2", "-n3", "--open-mode=append", "-o", out, *flags, script)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def until_said(self, out, pattern, seconds=120, after=0):
        """The match, once what a batch script printed behind the first `after` characters has it."""
        deadline = time.monotonic() + seconds
        while True:
            text = ""
            if os.path.exists(out):
                with open(out) as f:
                    text = f.read()
            if found := re.search(pattern, text[after:]):
                return found
            if time.monotonic() > deadline:
                self.fail("%r was not printed within %d s, but:\n%s\n%s" % (pattern, seconds, text[-5000:], CLUSTER.run("squeue").stdout))
            time.sleep(0.05)

    def marked(self, comm):
        """Its processes that call themselves so."""
        found = []
        for pid in jobs.processes_with(self.mark):
            try:
                with open("/proc/%d/comm" % pid) as f:
                    if f.read().strip() == comm:
                        found.append(pid)
            except OSError:
                pass
        return found


class PlaceTest(SlurmTest):
    def place(self, *words, tasks=3):
        return ["srun", "-N2", "-n%d" % tasks, MILLRACE, "place", *words]

    def test_it_trains(self):
        done = self.run_in_slurm(*self.place("--ps", "1", "--", PROGRAM, "--data_dir=" + DATA, "--sync_replicas", "--train_steps=300"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"Test accuracy [89]\d\.", done.stdout)), 2, done.stdout)
        self.assertRegex(done.stderr, r"millrace: worker/1 is running: pid \d+ on node2, node2:\d+\n")
        self.assertRegex(done.stderr, r"millrace: the job succeeded in ")

    def test_a_task_that_exits_42_is_named_and_the_code_is_42(self):
        done = self.run_in_slurm(*self.place("--ps", "1", "--quiet", "--", "sh", "-c", FAILS))
        self.assertEqual(done.returncode, 42, done.stderr)
        self.assertIn("millrace: worker/1 exited with code 42 at step 7 (no data); the others stopped because of it\n", done.stderr)

    def test_explain_runs_nothing(self):
        done = self.run_in_slurm("srun", "-N2", "-n3", "-l", MILLRACE, "place", "--ps", "1", "--explain", "--", "false")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("0: this is: ps/0, rank 0 of 3", "2: this is: worker/1, rank 2 of 3", "2:   SLURM_PROCID=2"):
            self.assertIn(words + "\n", done.stdout)

    def test_eight_tasks_unevenly_on_two_nodes(self):
        done = self.run_in_slurm("srun", "-N2", "-n8", "-w", ",".join(["node2"] * 3 + ["node1"] * 5), "-m", "arbitrary", MILLRACE, "place", "--job", "first=2",
                                 "--job", "chief=1", "--quiet", "--", "sh", "-c", "echo $MILLRACE_TASK on $(hostname)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["chief/0 on node2", "first/0 on node2", "first/1 on node2"] + ["worker/%d on node1" % i for i in range(5)])

    def test_a_heterogeneous_step_is_one_cluster(self):
        done = self.run_in_slurm("salloc", "-Q", "-N1", "-n1", ":", "-N1", "-n2", "srun", "-l", "--het-group=0,1", MILLRACE, "place", "--job", "first=1",
                                 "--quiet", "--", "sh", "-c", "echo $MILLRACE_TASK on $(hostname)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(line.split(": ")[1] for line in done.stdout.splitlines()), ["first/0 on node1", "worker/0 on node2", "worker/1 on node2"])

    def test_fewer_tasks_than_asked_for_are_an_error(self):
        done = self.run_in_slurm(*self.place("--ps", "1", "--workers", "2", "--", "true", tasks=2))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"1 ps \+ 2 worker are 3 tasks, but Slurm step \d+\.0 has 2: start more, or ask for fewer\n")

    def test_a_task_that_does_not_come_is_named(self):
        script = '[ $SLURM_PROCID = 2 ] && exec sleep 3; exec %s place --ps 1 --start_timeout 1 --quiet -- true' % MILLRACE
        done = self.run_in_slurm("srun", "-N2", "-n3", "sh", "-c", script)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"millrace: worker/1 \(rank 2\) did not come to the meeting place node1:\d+ within 1s, of 3 tasks\n")

    def test_scancel_leaves_no_process(self):
        job = self.start_three(*self.place("--ps", "1"))
        CLUSTER.run("scancel", self.job_number())
        job.end(20)
        self.assertIn("interrupted by SIGTERM; all tasks were stopped", job.text())

    def test_scancel_of_a_training_saves(self):
        job = self.start(*self.place("--ps", "1", "--grace", "4", "--", *self.training(self.folder())))
        job.wait_for("(global step", 60)
        CLUSTER.run("scancel", self.job_number())
        job.end(20)
        self.assertRegex(job.text(), WHOLE)

    def test_a_killed_keeper_is_the_cause(self):
        job = self.start_three(*self.place("--ps", "1"))
        os.kill(self.marked("millrace-keeper")[-1], signal.SIGKILL)
        self.assertIn(job.end(20), (1, 137), job.text())  # srun returns the highest of its tasks' codes: the killed one has 137
        causes = re.findall(r"millrace: (\S+) was lost.*", job.text())
        self.assertEqual(len(causes), 1, job.text())

    def test_a_killed_supervisor_ends_the_job_everywhere(self):
        job = self.start_three(*self.place("--ps", "1"))
        supervisor, = [pid for pid in self.marked("millrace") if "place" in jobs.processes_with(self.mark)[pid]]
        os.kill(supervisor, signal.SIGKILL)
        self.assertNotEqual(job.end(20), 0)
        self.assertIn("the task that supervises the job (rank 0) is gone", job.text())

    def test_servers_take_their_place_from_the_step(self):
        job = self.start("srun", "-N2", "-n3", MILLRACE, "serve", "--from_scheduler", "--ps", "1", "--intra_op_threads=1")
        for task in ("job:ps/replica:0/task:0", "job:worker/replica:0/task:0", "job:worker/replica:0/task:1"):
            job.wait_for("/%s serves at grpc://" % task, 20)
        CLUSTER.run("scancel", self.job_number())
        job.end(20)
        self.assertIn("on all interfaces, TLS", job.text())

    def gpus(self, *flags):
        done = self.run_in_slurm("srun", "-N2", *flags, MILLRACE, "place", "--quiet", "--", "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES")
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.splitlines())

    def test_gpus_that_slurm_gave_to_a_task_are_kept(self):
        self.assertEqual(self.gpus("-n4", "--ntasks-per-node=2", "--gpus-per-task=1"), ["node1 0", "node1 1", "node2 0", "node2 1"])

    def test_gpus_that_tasks_see_together_are_shared_out(self):
        self.assertEqual(self.gpus("-n4", "--ntasks-per-node=2", "--gpus-per-node=2"), ["node1 0", "node1 1", "node2 0", "node2 1"])


class LaunchTest(SlurmTest):
    def salloc(self, *words, tasks=3):
        """`millrace launch` in the shell of an allocation, which is on the controller's machine."""
        return ["salloc", "-Q", "-N2", "-n%d" % tasks, MILLRACE, "launch", *words]

    def test_it_trains_within_sbatch(self):
        script, out = os.path.join(CLUSTER.folder, "job.sh"), os.path.join(CLUSTER.folder, "job.out")
        with open(script, "w") as f:
            f.write("#!/bin/sh\n%s launch --ps 1 --workers 2 -- %s --data_dir=%s --sync_replicas --train_steps=300\necho the code is $?\n"
                    % (MILLRACE, PROGRAM, DATA))
        done = self.run_in_slurm("sbatch", "-N2", "-n3", "-o", out, script)
        self.assertEqual(done.returncode, 0, done.stderr)
        deadline = time.monotonic() + 60
        text = ""
        while "the code is" not in text and time.monotonic() < deadline:
            time.sleep(0.05)
            if os.path.exists(out):
                with open(out) as f:
                    text = f.read()
        self.assertIn("the code is 0\n", text)
        self.assertEqual(len(re.findall(r"\[worker/[01]\] .*Test accuracy [89]\d\.", text)), 2, text)
        self.assertRegex(text, r"millrace: worker/1 is running: pid \d+ on node2, node2:\d+\n")

    def test_a_task_that_exits_42_is_named_and_the_code_is_42(self):
        done = self.run_in_slurm(*self.salloc("--ps", "1", "--workers", "2", "--quiet", "--", "sh", "-c", FAILS))
        self.assertEqual(done.returncode, 42, done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1],
                         "millrace: worker/1 exited with code 42 at step 7 (no data); the others stopped because of it")

    def test_a_task_is_started_again_on_its_node(self):
        script = 'echo $MILLRACE_TASK on $(hostname) after $MILLRACE_RESTARTS; [ $MILLRACE_TASK.$MILLRACE_RESTARTS != worker/1.0 ]'
        done = self.run_in_slurm(*self.salloc("--ps", "0", "--workers", "3", "--restart", "on-failure:1", "--quiet", "--", "sh", "-c", script))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[worker/1] worker/1 on node1 after 1\n", done.stdout)
        self.assertIn("[worker/2] worker/2 on node2 after 0\n", done.stdout)

    def test_a_killed_keeper_is_replaced_by_a_step_of_its_own(self):
        job = self.start(*self.salloc("--workers", "2", "--restart", "on-failure:1", "--", "sh", "-c", STAYS, tasks=2))
        for task in ("worker/0", "worker/1"):
            job.wait_for("up " + task, 20)
        os.kill(self.marked("millrace-keeper")[0], signal.SIGKILL)
        job.wait_for("] up worker/", 20, after=job.text().rfind("] up worker/") + 5)
        CLUSTER.run("scancel", self.job_number())
        job.end(20)

    def test_more_tasks_than_slots_are_an_error(self):
        done = self.run_in_slurm(*self.salloc("--ps", "1", "--workers", "9", "--", "true"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"Slurm job \d+: the hosts have 3 slots for 10 tasks")

    def test_without_the_scheduler_all_tasks_are_here(self):
        done = self.run_in_slurm(*self.salloc("--scheduler", "none", "--workers", "2", "--quiet", "--", "hostname"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[worker/0] control", "[worker/1] control"])

    def test_gpus_of_the_allocation_are_shared_out(self):
        done = self.run_in_slurm("salloc", "-Q", "-N2", "-n4", "--ntasks-per-node=2", "--gpus-per-node=2", MILLRACE, "launch", "--workers", "4", "--quiet", "--",
                                 "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[worker/0] node1 0", "[worker/1] node1 1", "[worker/2] node2 0", "[worker/3] node2 1"])

    def test_scancel_leaves_no_process(self):
        job = self.start_three(*self.salloc("--ps", "1", "--workers", "2"))
        CLUSTER.run("scancel", self.job_number())
        job.end(20)

    def test_scancel_of_a_training_saves(self):
        # Slurm signals every process that the batch script and the step have started, and srun signals them again.
        out = self.batch([MILLRACE, "launch", "--grace", "4", "--ps", "1", "--workers", "2", "--", *self.training(self.folder())])
        self.until_said(out, r"\(global step \d+\)")
        CLUSTER.run("scancel", self.job_number())
        self.until_said(out, WHOLE)

    def test_a_killed_launcher_leaves_no_process(self):
        job = self.start_three(*self.salloc("--ps", "1", "--workers", "2"))
        launcher, = [pid for pid in self.marked("millrace") if "launch" in jobs.processes_with(self.mark)[pid]]
        os.kill(launcher, signal.SIGKILL)
        job.end(20)  # salloc's own exit code is 0 then

    def test_a_node_whose_link_is_cut_is_the_cause_and_ends_by_itself(self):
        self.addCleanup(CLUSTER.until_idle)
        job = self.start_three(*self.salloc("--ps", "1", "--workers", "2"))
        node = CLUSTER.nodes[1]
        self.addCleanup(node.mend)
        node.cut()
        self.assertEqual(job.end(40), 1, job.text())
        self.assertRegex(job.text().splitlines()[-1], r"millrace: worker/1 was lost.*node2")
        self.assertEqual(self.left(20), {})


class RequeueTest(SlurmTest):
    STEPS = 2000

    def words(self, folder, workers, *flags):
        return [MILLRACE, "launch", "--grace", "60", "--ps", "1", "--workers", str(workers), *flags, "--", PROGRAM, "--data_dir=" + DATA, "--sync_replicas",
                "--shards=4", "--batch_size=20", "--train_steps=%d" % self.STEPS, "--save_checkpoint_secs=600", "--log_dir=" + folder]

    def test_a_requeued_training_ends_with_the_weights_of_one_that_was_not(self):
        checksum = r"Weights have checksum (\w+)"
        whole = subprocess.run(self.words(self.folder(), 1), capture_output=True, text=True, timeout=120)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        out = self.batch(self.words(self.folder(), 2, "--requeue"), "--requeue")
        self.until_said(out, r"\(global step \d+\)")
        CLUSTER.run("scancel", "--batch", "--signal=TERM", self.job_number())
        stopped = self.until_said(out, WHOLE + "millrace: the scheduler starts the job again")
        self.assertLess(int(stopped.group(1)), self.STEPS, "it was not stopped in the middle")
        again = self.until_said(out, checksum, after=stopped.end())
        self.until_said(out, "the job succeeded in", after=stopped.end())
        self.assertEqual(again.group(1), re.search(checksum, whole.stdout).group(1))


@unittest.skipUnless(os.environ.get("MILLRACE_SOAK"), "takes minutes: tests/slurm/soak")
class SoakTest(SlurmTest):
    def test_eight_tasks_unevenly_on_two_nodes_train(self):
        done = self.run_in_slurm("srun", "-N2", "-n8", "-w", ",".join(["node2"] * 3 + ["node1"] * 5), "-m", "arbitrary", MILLRACE, "place", "--ps", "2", "--",
                                 PROGRAM, "--data_dir=" + DATA, "--sync_replicas", "--train_steps=300")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"Test accuracy [89]\d\.", done.stdout)), 6, done.stdout)

    def test_the_time_limit_is_a_notice(self):
        out = self.batch([MILLRACE, "launch", "--grace", "4", "--ps", "1", "--workers", "2", "--", *self.training(self.folder())], "--time=1")
        self.until_said(out, WHOLE, seconds=180)

    def test_a_killed_slurmd_ends_nothing_and_what_follows_leaves_no_process(self):
        job = self.start_three("salloc", "-Q", "-N2", "-n3", MILLRACE, "launch", "--ps", "1", "--workers", "2")
        self.addCleanup(CLUSTER.until_idle)
        self.addCleanup(CLUSTER.start_slurmd, 1)
        CLUSTER.kill_slurmd(1)
        self.assertIn("2", {line.split()[1] for line in CLUSTER.run("squeue", "-h", "-o", "%i %D").stdout.splitlines()})
        self.assertEqual(sorted(re.findall(r"(\S+) stopped", job.text())), [])
        launcher, = [pid for pid in self.marked("millrace") if "launch" in jobs.processes_with(self.mark)[pid]]
        os.kill(launcher, signal.SIGTERM)
        self.assertEqual(job.end(40), 143, job.text())
        self.assertEqual(self.left(20), {})


if __name__ == "__main__":
    MILLRACE, PROGRAM, DATA = map(os.path.abspath, sys.argv[1:4])
    reason = slurm_cluster.why_not()
    if reason:
        print("left out, all of it: no Slurm here: %s" % reason)
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
