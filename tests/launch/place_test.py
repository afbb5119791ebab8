"""place_test.py MILLRACE CLUSTER_PROBE: `millrace place` under Open MPI's mpirun, by flags, by TF_CONFIG and in what looks like a pod."""

import json
import os
import shutil
import signal
import unittest

import jobs
from jobs import Job, LaunchTest
from notice_test import AWARE, SAVED

TALK = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
print("I am %s/%d of %s" % (task["type"], task["index"], {job: len(tasks) for job, tasks in sorted(cluster.items())}), *sys.argv[1:], flush=True)
"""
# Workers end when the ps has said its line: the job, and with it the ps, ends when they do.
TALK_IN_TURN = TALK + """
import time
said = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "said")
if task["type"] == "ps":
    open(said, "w").close()
while not os.path.exists(said):
    time.sleep(0.01)
"""
FAILS = 'case $MILLRACE_TASK in worker/1) echo step 7; echo no data >&2; exit 42;; *) exec sleep 1000;; esac'
SECRET = {"MILLRACE_JOB_SECRET": "a secret that only these have"}
OUTSIDE = {"TF_CONFIG": "", "KUBERNETES_SERVICE_HOST": None}


class PlaceTest(LaunchTest):
    def start(self, *words, env=None):
        # What a killed mpirun kills cannot remove its credentials: they go to the test's folder.
        environment = {key: value for key, value in {**OUTSIDE, "XDG_RUNTIME_DIR": self.folder, **(env or {})}.items() if value is not None}
        job = Job([*words], self.mark, self.folder, env=environment)

        def end():
            if job.process.poll() is None:
                job.process.kill()
            job.process.wait()
            job.process.stdout.close()
            job.process.stderr.close()
        self.addCleanup(end)
        return job

    def place(self, *words, **kwargs):
        return self.start(jobs.MILLRACE, "place", *words, **kwargs)


@unittest.skipIf(shutil.which("mpirun") is None, "Open MPI's mpirun is not installed")
class OpenMpiTest(PlaceTest):
    def mpirun(self, *words, **kwargs):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # A killed mpirun leaves its folder.
        return self.start("mpirun", *root, "--mca", "orte_tmpdir_base", self.folder, "--oversubscribe", "-np", "3", *words, **kwargs)

    def test_ranks_are_tasks(self):
        job = self.mpirun(jobs.MILLRACE, "place", "--ps", "1", "--quiet", "--", *self.program(TALK_IN_TURN), "{task_index}")
        self.assertEqual(job.end(), 0, job.stderr)
        cluster = "{'ps': 1, 'worker': 2}"
        self.assertEqual(sorted(job.stdout.splitlines()), ["I am %s of %s %s" % (task, cluster, task[-1]) for task in ("ps/0", "worker/0", "worker/1")])

    def test_a_task_that_exits_42_is_named_and_the_code_is_42(self):
        job = self.mpirun(jobs.MILLRACE, "place", "--ps", "1", "--", "sh", "-c", FAILS)
        self.assertEqual(job.end(), 42, job.stderr)
        self.assertIn("millrace: worker/1 exited with code 42 at step 7 (no data); the others stopped because of it\n", job.stderr)

    def test_programs_of_mpi_are_undisturbed(self):
        program = self.program("import ctypes\nmpi = ctypes.CDLL('libmpi.so.40', ctypes.RTLD_GLOBAL)\n"
                               "assert mpi.MPI_Init(None, None) == 0\nprint('in MPI', flush=True)\nmpi.MPI_Finalize()\n")
        job = self.mpirun(jobs.MILLRACE, "place", "--quiet", "--", *program)
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertEqual(job.stdout.splitlines(), ["in MPI"] * 3)

    def test_a_killed_mpirun_leaves_no_process(self):
        job = self.mpirun(jobs.MILLRACE, "place", "--ps", "1", "--", "sh", "-c", "echo up; setsid sleep 1000 & exec sleep 1000")
        self.until(lambda: job.read() and job.stdout.count("up") == 3)
        job.process.kill()
        job.end()
        self.assertEqual(self.left(20), {})  # rank 0 looks every five seconds


class ByFlagsTest(PlaceTest):
    def rank(self, rank, *words, size=2, env=None, timeout="20"):
        return self.place("--rank", str(rank), "--size", str(size), "--address", "localhost", "--start_timeout", timeout, *words, env={**SECRET, **(env or {})})

    def meet(self):
        with jobs.free_port() as port:
            return "localhost:%d" % port

    def test_processes_meet_at_rank_0(self):
        meet = ("--meet", self.meet(), "--ps", "1", "--quiet", "--")
        tasks = [self.rank(rank, *meet, *self.program(TALK_IN_TURN)) for rank in (0, 1)]
        for task, name in zip(tasks, ("ps/0", "worker/0")):
            self.assertEqual(task.end(), 0, task.stderr)
            self.assertEqual(task.stdout, "I am %s of {'ps': 1, 'worker': 1}\n" % name)

    def test_servers_of_the_job_have_its_certificates_and_programs_not_its_secret(self):
        meet = ("--meet", self.meet(), "--quiet", "--", "sh", "-c", 'echo "[$MILLRACE_JOB_SECRET]" $(ls $MILLRACE_TLS_DIR)')
        for task in [self.rank(rank, *meet) for rank in (0, 1)]:
            self.assertEqual(task.end(), 0, task.stderr)
            self.assertEqual(task.stdout, "[] ca.pem cert.pem key.pem\n")

    def test_one_without_the_secret_is_refused_and_named(self):
        meet = ("--meet", self.meet(), "--quiet", "--", "true")
        first = self.rank(0, *meet, timeout="3")
        stranger = self.rank(1, *meet, env={"MILLRACE_JOB_SECRET": "somebody else's secret"}, timeout="1")
        self.assertEqual(stranger.end(), 2)
        self.assertIn("worker/1: rank 1 did not find rank 0 of flags within 1s: localhost:", stranger.stderr)
        self.assertEqual(first.end(), 2)
        self.assertRegex(first.stderr, r"millrace: refused at the meeting place localhost:\d+: ipv[46]:\S+: it does not have the job secret")
        self.assertIn("millrace: worker/1 (rank 1) did not come to the meeting place", first.stderr)

    def test_two_with_one_place_are_named(self):
        meet = ("--meet", self.meet(), "--quiet", "--", "sleep", "1000")
        first, second = self.rank(0, *meet, size=3), self.rank(1, *meet, size=3)
        self.until(lambda: len(jobs.processes_with(self.mark)) >= 5)  # with keepers and guards
        third = self.rank(1, *meet, size=3)
        ends = [job for job in (second, third) if job is not None]
        self.until(lambda: any(job.process.poll() is not None for job in ends))
        refused = second if second.process.poll() is not None else third
        self.assertEqual(refused.end(), 2)
        self.assertIn("rank 1 (worker/1) is there already: two processes have the same place", refused.stderr)
        first.process.terminate()
        self.assertEqual(first.end(), 143, first.stderr)
        self.assertEqual((third if refused is second else second).end(), 143)

    def test_a_notice_to_one_of_them_is_one_to_the_job(self):
        for whom, number in ((2, signal.SIGTERM), (0, signal.SIGUSR1)):
            with self.subTest(whom=whom):
                words = ("--meet", self.meet(), "--ps", "1", "--grace", "60", "--notice_signal", "USR1", "--", *self.program(AWARE % SAVED))
                tasks = [self.rank(rank, *words, size=3) for rank in range(3)]
                for task in tasks:
                    task.wait_for("up, grace 60 SIGUSR1")
                tasks[whom].process.send_signal(number)
                for task in tasks:
                    self.assertEqual(task.end(), 143, task.stderr)
                self.assertIn("millrace: stopped by %s at step 813; model.ckpt-813 is whole" % number.name, tasks[0].stderr)

    def test_without_a_secret_it_says_what_to_do(self):
        job = self.rank(1, "--meet", "node1", "--", "true", env={"MILLRACE_JOB_SECRET": "", "MUNGE_SOCKET": "/nowhere"})
        self.assertEqual(job.end(), 2)
        self.assertIn("export MILLRACE_JOB_SECRET=$(openssl rand -hex 16)", job.stderr)

    def test_no_scheduler_is_said(self):
        job = self.place("--ps", "1", "--", "true")
        self.assertEqual(job.end(), 2)
        self.assertIn("no scheduler has started this process", job.stderr)


class KnownAddressesTest(PlaceTest):
    CONFIG = {"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}, "model_dir": "kept"}

    def test_the_process_becomes_the_program_of_tf_config(self):
        job = self.place("--host_flags", "--", "sh", "-c", 'echo $$ "$@"', "sh", "{worker_hosts}", env={"TF_CONFIG": json.dumps(self.CONFIG)})
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertEqual(job.stdout, "%d b:1 --ps_hosts=a:1 --worker_hosts=b:1 --job_name=worker --task_index=0\n" % job.pid)

    def test_tf_config_is_kept_as_it_is(self):
        text = json.dumps(self.CONFIG)
        job = self.place("--", "sh", "-c", 'echo "$TF_CONFIG"; exit 42', env={"TF_CONFIG": text})
        self.assertEqual((job.end(), job.stdout), (42, text + "\n"))

    def test_a_wrong_tf_config_is_an_error(self):
        for config in ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}', "{", '{"task": {"type": "ps", "index": 0}}'):
            job = self.place("--", "true", env={"TF_CONFIG": config})
            self.assertEqual(job.end(), 2)
            self.assertIn("millrace place: TF_CONFIG", job.stderr)

    def test_a_missing_program_is_127(self):
        job = self.place("--", "/no/such/program", env={"TF_CONFIG": json.dumps(self.CONFIG)})
        self.assertEqual(job.end(), 127)

    @unittest.skipUnless(os.geteuid() == 0, "a host name of its own needs root")
    def test_a_pod_becomes_its_task(self):
        words = 'hostname train-worker-1.train.ns.svc && exec %s place --ps 1 --workers 2 --insecure -- sh -c \'echo "$TF_CONFIG"\'' % jobs.MILLRACE
        job = self.start("unshare", "--uts", "sh", "-c", words, env={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
        self.assertEqual(job.end(), 0, job.stderr)
        self.assertEqual(json.loads(job.stdout), {
            "cluster": {"ps": ["train-ps-0.train.ns.svc:2222"], "worker": ["train-worker-%d.train.ns.svc:2222" % i for i in (0, 1)]},
            "task": {"type": "worker", "index": 1}})


if __name__ == "__main__":
    jobs.main()
