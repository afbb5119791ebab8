#!/usr/bin/env python3
"""The pods of `millrace manifest --for kubernetes` as real containers: pods_test.py BUILD MNIST_FOLDER [unittest's arguments].

They run the image of deploy/image/build under podman and runc, find each other by the names that the headless Service gives them, and are killed, evicted,
late and out of memory. What takes minutes (SoakTest) runs if MILLRACE_SOAK is set, as tests/pods/soak does.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import node
import pod_cluster

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = DATA = ""
NODE = None
IMAGE = "localhost/millrace:test"
SOAK = bool(os.environ.get("MILLRACE_SOAK"))
SKIPPED = 77  # tests/CMakeLists.txt
FOREVER = "--train_steps=100000000"
ACCURACY = r"Test accuracy 9\d\."
# A task that has been silent for 5 s is lost; then gRPC and the sessions try again.
BACK = 60


# A program of a user's that finds no data.
FAILS = """#include <stdio.h>
int main() { puts("no data"); return 42; }
"""
# A library for LD_PRELOAD: on SIGUSR2 the program takes memory without end, as one with a leak does. Millrace's own memory has a limit.
EATS = """#include <signal.h>
#include <stdlib.h>
#include <string.h>
static void eat(int signal) { for (;;) memset(malloc(1 << 20), signal, 1 << 20); }
__attribute__((constructor)) static void prepare() { signal(SIGUSR2, eat); }
"""


def compiled(folder, name, source, *flags):
    path = os.path.join(folder, name)
    subprocess.run(["cc", *flags, "-x", "c", "-o", path, "-"], input=source.encode(), check=True)
    return path


def setUpModule():
    global NODE
    NODE = node.Node()
    unittest.addModuleCleanup(NODE.close)
    with tempfile.TemporaryDirectory(dir=NODE.folder) as folder:
        programs = [os.path.join(BUILD, "examples/mnist_replica")]
        if SOAK:
            programs += [compiled(folder, "fails", FAILS, "-static"), compiled(folder, "eats.so", EATS, "-shared", "-fPIC")]
        image = os.path.join(folder, "image.tar")
        build = [sys.executable, "-B", os.path.join(HERE, "../../deploy/image/build"), "--build", BUILD, "--name", IMAGE, "--output", image]
        subprocess.run([*build, *["--add=" + program for program in programs]], check=True, capture_output=True)
        NODE.load(image)


class PodsTest(unittest.TestCase):
    @contextlib.contextmanager
    def cluster(self, *program, flags=()):
        """The pods of a manifest for this program, which has the volume /data; none runs yet. If the body fails, all that they said is printed."""
        self.volume = tempfile.mkdtemp(prefix="volume.", dir=NODE.folder)
        manifest = subprocess.run([os.path.join(BUILD, "bin/millrace"), "manifest", "--for", "kubernetes", "--workers", "2", "--ps", "1", "--image", IMAGE,
                                   "--volume", "data:/data", *flags, "--", *program], capture_output=True, text=True, check=True, timeout=60)
        cluster = pod_cluster.Cluster(NODE, manifest.stdout, {"data": self.volume})
        try:
            yield cluster
        except BaseException:
            for pod in cluster.all_pods:
                for name, container in pod.containers.items():
                    print("%s at %s, container %s, code %s:\n%s" % (pod.name, pod.address, name, container.process.poll(), container.text()), file=sys.stderr)
            raise
        finally:
            cluster.close()
            shutil.rmtree(self.volume)

    def mnist(self, *words, flags=()):
        return self.cluster("mnist_replica", "--data_dir=/data/mnist", "--log_dir=/data/train", "--save_checkpoint_secs=1", *words, flags=flags)

    def put_data(self):
        shutil.copytree(DATA, os.path.join(self.volume, "mnist"))

    def start_all(self, cluster):
        self.put_data()
        return cluster.start_all()

    def assert_ends(self, pod, code, seconds=60):
        self.assertEqual(pod.task.end(seconds), code, pod.task.text())

    def goes_on(self, pod, seconds=BACK):
        """Until it has made further steps."""
        pod.task.wait_for("(global step", seconds, after=len(pod.task.text()))


class TrainingTest(PodsTest):
    def test_the_job_trains_and_its_ps_end_with_it(self):
        with self.mnist("--train_steps=2000") as cluster:
            ps, *workers = self.start_all(cluster)
            for worker in workers:
                self.assert_ends(worker, 0)
                self.assertRegex(worker.task.text(), ACCURACY)
            self.assertIsNone(ps.task.process.poll())
            cluster.api.ended = "Complete"
            self.assertTrue(cluster.api.deleted.wait(30), cluster.api.requests)
            self.assertLess(ps.delete(), 10)
            self.assertEqual((ps.task.end(1), ps.containers["end"].end(1)), (0, 0))

    def test_killed_pods_that_return_with_another_address_are_found_again(self):
        with self.mnist(FOREVER) as cluster:
            ps, chief, worker = self.start_all(cluster)
            for pod in (chief, worker):
                self.goes_on(pod)
            for pod, probes in ((ps, ("startupProbe", "livenessProbe", "readinessProbe")), (worker, ("readinessProbe",))):
                for probe in probes:
                    self.assertTrue(pod.probe(probe), "%s of %s" % (probe, pod.name))
            for name in (worker.name, ps.name):
                killed = cluster.pods[name]
                killed.kill()
                self.assertEqual(killed.task.end(1), 137)
                self.assertEqual(cluster.verdict(137), "Count")
                back = cluster.start(name)
                self.assertNotEqual(back.address, killed.address)
                if name == ps.name:
                    chief.task.wait_for("training resumes at step", BACK)
                for pod in (cluster.pods[worker.name], chief):
                    self.goes_on(pod)


@unittest.skipUnless(SOAK, "takes minutes: tests/pods/soak")
class SoakTest(PodsTest):
    def test_a_name_that_is_20_seconds_late_is_waited_for_and_named(self):
        with self.mnist("--train_steps=200") as cluster:
            self.put_data()
            workers = [cluster.start("train-worker-%d" % index) for index in (0, 1)]
            for worker in workers:
                worker.task.wait_for("serves at", 30)
                self.assertTrue(worker.probe("readinessProbe"))
            time.sleep(20)  # how late it is, which is what is tested
            for worker in workers:
                self.assertRegex(worker.task.text(), r"do not answer: /job:ps/replica:0/task:0 at train-ps-0\.train\.default\.svc\.cluster\.local:2222 \(.*its name does not resolve \(Domain name not found\)")
            cluster.start("train-ps-0")
            for worker in workers:
                self.assert_ends(worker, 0, BACK)

    def test_all_pods_end_within_their_grace_and_the_checkpoint_is_whole(self):
        with self.mnist(FOREVER, flags=("--grace", "30")) as cluster:
            pods = self.start_all(cluster)
            for worker in pods[1:]:
                self.goes_on(worker)
            took = {}

            def delete(pod):
                took[pod.name] = pod.delete()
            deletions = [threading.Thread(target=delete, args=(pod,)) for pod in pods]
            for deletion in deletions:
                deletion.start()
            for deletion in deletions:
                deletion.join()
            self.assertEqual(set(took), {pod.name for pod in pods})
            self.assertLess(max(took.values()), 10, took)
            ps, chief, worker = pods
            self.assertEqual([pod.task.end(1) for pod in pods], [0, 143, 143])
            whole = self.whole_checkpoint(chief)
            last = max(int(step) for step in re.findall(r"global step (\d+)\)", chief.task.text()))
            self.assertGreaterEqual(whole, last)

    def whole_checkpoint(self, chief):
        """The step of the checkpoint that the chief says is whole."""
        found = re.search(r"stopped by SIGTERM at step (\d+)", chief.task.text())
        self.assertTrue(found, chief.task.text())
        for end in ("index", "data-00000-of-00001"):
            self.assertTrue(os.path.exists(os.path.join(self.volume, "train/model.ckpt-%s.%s" % (found[1], end))), os.listdir(self.volume + "/train"))
        return int(found[1])

    def test_an_evicted_worker_is_replaced_and_not_counted(self):
        with self.mnist(FOREVER) as cluster:
            ps, *workers = self.start_all(cluster)
            for worker in workers:
                self.goes_on(worker)
            for index in (1, 0):  # the chief last
                evicted = cluster.pods["train-worker-%d" % index]
                self.assertLess(evicted.delete(), 20)
                self.assertEqual(evicted.task.end(1), 143, evicted.task.text())
                self.assertEqual(cluster.verdict(143), "Ignore")
                back = cluster.start(evicted.name)
                for name in ("train-worker-0", "train-worker-1"):
                    self.goes_on(cluster.pods[name])
            self.assertRegex(back.task.text(), "training (continues|resumes) at step")

    def test_out_of_memory_is_137_and_the_others_wait_for_the_successor(self):
        with self.mnist(FOREVER, flags=("--memory", "300Mi", "--env", "LD_PRELOAD=/app/eats.so")) as cluster:
            ps, chief, worker = self.start_all(cluster)
            for pod in (chief, worker):
                self.goes_on(pod)
            for victim in (worker, ps):
                victim.signal("USR2")
                self.assert_ends(victim, 137)
                self.assertEqual(cluster.verdict(137), "Count")
                if victim is worker:
                    victim.remove()
                    worker = cluster.start(victim.name)
                else:
                    cluster.restart_task(victim)  # a StatefulSet's containers restart where they are
                    chief.task.wait_for("training resumes at step", BACK)
                for pod in (chief, worker):
                    self.goes_on(pod)

    def test_exit_codes_of_the_program_are_those_of_the_pod(self):
        for program, code, verdict, said in (("fails", 42, "Count", "no data"), ("no_such_program", 127, "FailJob", "no_such_program: No such file"),
                                             ("/data", 126, "FailJob", "/data: Permission denied")):
            with self.subTest(program), self.cluster(program) as cluster:
                worker = cluster.start("train-worker-0")
                self.assert_ends(worker, code)
                self.assertIn(said, worker.task.text())
                self.assertEqual(cluster.verdict(code), verdict)


if __name__ == "__main__":
    BUILD, DATA = map(os.path.abspath, sys.argv[1:3])
    reason = node.why_not()
    if reason:
        print("left out, all of it: no containers here: %s" % reason)
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
