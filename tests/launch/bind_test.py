"""bind_test.py MILLRACE CLUSTER_PROBE: `millrace launch --bind_workers`, here and over ssh: who runs on which cores."""

import json
import os
import re
import signal

import jobs
from jobs import LaunchTest
from ssh_server import OverSsh

SAY = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"]
# On any machine with two cores a job of two workers is one of some; the rest would say no more.
MOST_CORES = 4


def read_list(text):
    """The cores of "0-3,8"."""
    cores = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


class BindTest(LaunchTest):
    """The job, and the ssh server where there is one, may use a few cores of this machine: those that the test confines itself to."""

    def setUp(self):
        super().setUp()
        before = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, before)
        os.sched_setaffinity(0, sorted(before)[-MOST_CORES:])
        self.allowed = os.sched_getaffinity(0)

    def said(self, job):
        """What each task may run on by its own word, in the order in which it was said."""
        cores = {}
        for task, text in re.findall(r"\[(\S+)\] Cpus_allowed_list:\s*(\S+)\n", job.stdout):
            cores.setdefault(task, []).append(read_list(text))
        return cores

    def check_shares(self, cores, tasks):
        """Each of the tasks has its own, all together have all, and none has two more than another."""
        shares = [cores[task][0] for task in tasks]
        self.assertEqual(sum(len(share) for share in shares), len(self.allowed), cores)
        self.assertEqual(set.union(*shares), self.allowed, cores)
        sizes = [len(share) for share in shares]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertLessEqual(sizes[0] - sizes[-1], 1)

    def check_refused(self, job, workers, host):
        self.assertEqual(job.code, 2, job.stderr)
        self.assertEqual(job.stdout, "")
        self.assertNotIn("is running", job.stderr)
        self.assertRegex(job.stderr.splitlines()[-1], r"--bind_workers: %s has %d cores? to use, and %d workers" % (host, len(self.allowed), workers))


class LocalTest(BindTest):
    def pair(self, *words, program=SAY):
        """A job of two workers that has ended; none where the machine has one core, and that was said."""
        job = self.run_job("--workers", "2", "--bind_workers", *words, "--", *program)
        if len(self.allowed) < 2:
            self.check_refused(job, 2, "localhost")
            return None
        return job

    def test_workers_and_chief_have_cores_of_their_own_and_others_run_anywhere(self):
        # Not --ps: the job waits for all of them.
        job = self.pair("--job", "ps=1", "--job", "evaluator=1")
        if job is None:
            return
        self.assertEqual(job.code, 0, job.stderr)
        cores = self.said(job)
        self.check_shares(cores, ["worker/0", "worker/1"])
        self.assertEqual(cores["ps/0"], [self.allowed])
        self.assertEqual(cores["evaluator/0"], [self.allowed])
        job = self.run_job("--job", "chief=1", "--workers", "1", "--bind_workers", "--", *SAY)
        self.assertEqual(job.code, 0, job.stderr)
        self.check_shares(self.said(job), ["chief/0", "worker/0"])

    def test_without_the_flag_all_run_anywhere(self):
        job = self.run_job("--workers", "2", "--", *SAY)
        self.assertEqual(self.said(job), {"worker/0": [self.allowed], "worker/1": [self.allowed]})
        self.assertNotIn("cores", job.stderr)

    def test_a_single_worker_has_all_that_the_launcher_may_use(self):
        os.sched_setaffinity(0, {max(self.allowed)})
        job = self.run_job("--workers", "1", "--bind_workers", "--", *SAY)
        self.assertEqual(job.code, 0, job.stderr)
        self.assertEqual(self.said(job), {"worker/0": [{max(self.allowed)}]})

    def test_too_few_cores_are_told_before_anything_starts(self):
        for words in (["--workers", str(len(self.allowed) + 1)], ["--job", "chief=1", "--workers", str(len(self.allowed))]):
            with self.subTest(words=words):
                job = self.run_job("--ps", "1", *words, "--bind_workers", "--log_dir", "logs", "--", *SAY)
                self.check_refused(job, len(self.allowed) + 1, "localhost")
                self.assertEqual(os.listdir(self.folder), [])

    def test_a_restarted_worker_has_the_cores_it_had(self):
        # Again after its program failed, and again after its keeper was killed.
        program = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; [ {task_index} = 0 ] && exit 0; echo x >> runs; n=$(wc -l < runs); "
                               "[ $n = 1 ] && exit 1; [ $n = 2 ] && { echo again; exec sleep 1000; }; exit 0"]
        if len(self.allowed) < 2:
            return self.check_refused(self.run_job("--workers", "2", "--bind_workers", "--", *program), 2, "localhost")
        job = self.launch("--workers", "2", "--bind_workers", "--restart", "on-failure:2", "--", *program)
        job.wait_for("[worker/1] again")
        with open("/proc/%d/stat" % job.tasks()["worker/1"]) as f:
            os.kill(int(f.read().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.stderr)
        cores = self.said(job)
        self.check_shares(cores, ["worker/0", "worker/1"])
        self.assertEqual(cores["worker/1"], [cores["worker/1"][0]] * 3, job.stderr)

    def test_news_status_and_terminal_tell_the_cores(self):
        # The test's word for it is what the program says of itself.
        job = self.launch("--job", "ps=1", "--workers", "1", "--bind_workers", "--", "sh", "-c", SAY[2] + "; exec sleep 1000")
        for task in ("ps/0", "worker/0"):
            job.wait_for("[%s] Cpus_allowed_list" % task)
        self.until(lambda: job.read() and len(job.tasks()) == 2)
        listed = re.search(r"\[worker/0\] Cpus_allowed_list:\s*(\S+)\n", job.stdout).group(1)
        self.assertRegex(job.stderr, r"worker/0 is running: pid \d+, localhost:\d+, cores %s\n" % listed)
        self.assertRegex(job.stderr, r"ps/0 is running: pid \d+, localhost:\d+\n")
        told = json.loads(self.status("--json", "--job", str(job.pid)).stdout)["jobs"][0]
        self.assertEqual({t["task"]: t["cores"] for t in told["tasks"]}, {"ps/0": "", "worker/0": listed})
        table = self.status("--job", str(job.pid)).stdout
        self.assertRegex(table, r"ADDRESS +CORES")
        self.assertRegex(table, r"worker/0 .*localhost:\d+ +%s " % listed)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(), 143)
        job = self.run_job("--workers", "1", "--bind_workers", "--", "true", terminal=(24, 100))
        self.assertRegex(re.sub(r"\033\[[0-9;]*m", "", job.stdout), r"worker/0  succeeded .*cores %s" % listed)


class SshTest(OverSsh, BindTest):
    def over_ssh(self, *words, hosts):
        return self.run_job(*self.host_words(hosts), "--bind_workers", *words, "--", *SAY)

    def test_the_cores_there_are_shared_out_by_whatever_name_it_is_called(self):
        # The launcher itself may use fewer: what counts is the machine of the tasks.
        os.sched_setaffinity(0, {min(self.allowed)})
        job = self.over_ssh("--job", "ps=1", "--workers", "2", hosts="localhost slots=2\n127.0.0.1 slots=1\n")
        if len(self.allowed) < 2:
            return self.check_refused(job, 2, "localhost")
        self.assertEqual(job.code, 0, job.stderr)
        cores = self.said(job)
        self.check_shares(cores, ["worker/0", "worker/1"])
        self.assertEqual(cores["ps/0"], [self.allowed])
        self.assertRegex(job.stderr, r"worker/1 is running: pid \d+ on 127.0.0.1, 127.0.0.1:\d+, cores \S+\n")

    def test_too_few_cores_there_are_told_before_anything_starts(self):
        job = self.over_ssh("--ps", "1", "--workers", str(len(self.allowed) + 1), hosts="127.0.0.1 slots=10\n")
        self.check_refused(job, len(self.allowed) + 1, "127.0.0.1")


if __name__ == "__main__":
    jobs.main()
