#!/usr/bin/env python3
"""examples/resnet_cifar as people run it, on a few images of CIFAR's format: it trains, evaluates, resumes and tells mistakes.

    resnet_cifar_test.py build/release/examples/resnet_cifar --get_data examples/resnet_cifar/get_data --millrace build/release/bin/millrace [test names]
"""

import argparse
import hashlib
import glob
import json
import math
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import unittest

ARGS = None
TRAIN_FILES = ["data_batch_%d.bin" % i for i in range(1, 6)]


def record(label, rng):
    """An image of one colour for each class, with noise, that a network can learn to tell from the others."""
    planes = []
    for plane in range(3):
        level = 30 + 20 * ((label * (plane + 3)) % 10)
        planes.append(bytes(min(255, level + rng.randrange(40)) for _ in range(1024)))
    return bytes([label]) + b"".join(planes)


def write_cifar(folder, per_file=16):
    os.makedirs(folder)
    rng = random.Random(1)
    for name in TRAIN_FILES + ["test_batch.bin"]:
        with open(os.path.join(folder, name), "wb") as out:
            out.write(b"".join(record(rng.randrange(10), rng) for _ in range(per_file)))
    with open(os.path.join(folder, "batches.meta.txt"), "w") as out:
        out.write("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n")


class ResNetCifar(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.data = os.path.join(self.folder, "cifar-10-batches-bin")
        write_cifar(self.data)

    def program(self, *flags, **env):
        environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
        command = [ARGS.program, "--resnet_size=20", "--data_dir=" + self.data, *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(environment, **env))

    def train(self, *flags):
        """What a training that succeeds printed."""
        result = self.program("--batch_size=16", "--log_steps=1", *flags)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def error(self, *flags, **env):
        result = self.program(*flags, **env)
        self.assertNotEqual(result.returncode, 0, flags)
        return result.stderr + result.stdout

    @staticmethod
    def losses(output):
        return {int(step): loss for step, loss in re.findall(r"^step (\d+)/.* loss ([0-9.]+) ", output, re.M)}

    def test_it_learns_and_evaluates_after_each_epoch(self):
        log = os.path.join(self.folder, "log")
        output = self.train("--train_epochs=4", "--learning_rate=0.4", "--benchmark_log_dir=" + log)
        self.assertIn("Training ResNet-20, version 1, on the CPU", output)
        self.assertIn("has no readme.html, which is not needed", output)
        losses = [float(loss) for loss in self.losses(output).values()]
        self.assertEqual(len(losses), 20)
        self.assertLess(min(losses[-3:]), losses[0])
        self.assertEqual(re.findall(r"Evaluation at step (\d+): accuracy [0-9.]+ %, loss [0-9.]+ on 16 images", output), ["5", "10", "15", "20"])
        self.assertRegex(output, r"Trained to step 20, [0-9.]+ images/s on average")
        with open(os.path.join(log, "metric.log")) as lines:
            metrics = [json.loads(line) for line in lines]
        self.assertEqual([m["global_step"] for m in metrics if m["name"] == "accuracy"], [5, 10, 15, 20])
        self.assertEqual(len([m for m in metrics if m["name"] == "current_examples_per_sec"]), 20)
        self.assertTrue(all(m["value"] > 0 for m in metrics if m["name"] == "average_examples_per_sec"))

    def test_a_resumed_training_is_the_one_that_was_not_stopped(self):
        once = self.losses(self.train("--train_steps=8", "--skip_eval"))
        model = os.path.join(self.folder, "model")
        self.train("--train_steps=3", "--skip_eval", "--model_dir=" + model)
        self.assertIn("checkpoint", os.listdir(model))
        again = self.train("--train_steps=8", "--model_dir=" + model, "--data_threads=1")
        self.assertIn("step 3 to 8", again)
        self.assertEqual(list(self.losses(again)), [4, 5, 6, 7, 8])
        for step, loss in self.losses(again).items():
            self.assertEqual(loss, once[step], "step %d" % step)
        evaluation = re.search(r"Evaluation at step 8: .*", again).group(0)
        files = os.listdir(model)
        self.assertTrue(any(name.startswith("events.out.tfevents.") for name in files), files)
        self.assertTrue(os.listdir(os.path.join(model, "eval")))
        # The moving averages are in the checkpoint too.
        self.assertIn(evaluation, self.train("--eval_only", "--model_dir=" + model))
        done = self.train("--train_steps=8", "--model_dir=" + model)
        self.assertIn("is at step 8 already", done)
        self.assertIn(evaluation, done)

    def test_every_kind_of_network_trains(self):
        for flags in (
            ["--version=2", "--resnet_size=32"],
            ["--distribution_strategy=one_device"],
            ["--label_smoothing=0.1", "--warmup_epochs=1", "--weight_decay=0"],
            ["--use_synthetic_data", "--data_dir=/nonexistent"],
        ):
            with self.subTest(flags=flags):
                output = self.train("--train_steps=2", "--skip_eval", *flags)
                self.assertEqual(len(self.losses(output)), 2, output)

    def test_warm_up_and_batch_size_scale_the_learning_rate(self):
        rates = re.findall(r"learning rate ([0-9.e-]+)", self.train("--train_steps=6", "--skip_eval", "--warmup_epochs=1"))
        # Five steps per epoch, and 16 of 128 images: 0.0125 at the end.
        self.assertEqual([float(rate) for rate in rates], [0, 0.0025, 0.005, 0.0075, 0.01, 0.0125])

    def test_the_default_is_resnet_56(self):
        command = [ARGS.program, "--use_synthetic_data", "--batch_size=2", "--train_steps=1", "--skip_eval"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertIn("Training ResNet-56, version 1", result.stdout, result.stderr)

    def test_a_missing_or_incomplete_folder_is_named(self):
        message = self.error("--data_dir=/nonexistent/cifar")
        self.assertIn("/nonexistent/cifar", message)
        self.assertIn("get_data", message)
        os.remove(os.path.join(self.data, "data_batch_2.bin"))
        self.assertIn("it lacks data_batch_2.bin", self.error())
        shutil.copy(os.path.join(self.data, "data_batch_1.bin"), os.path.join(self.data, "data_batch_2.bin"))
        with open(os.path.join(self.data, "test_batch.bin"), "ab") as out:
            out.truncate(5000)
        message = self.error()
        self.assertIn("test_batch.bin is incomplete", message)

    def test_misuse_is_told(self):
        available = "available are off, one_device, mirrored, multi_worker_mirrored, parameter_server, default"
        self.assertIn("horovod is not known; " + available, self.error("--distribution_strategy=horovod"))
        self.assertIn("--cpu_devices=2 needs --distribution_strategy=mirrored", self.error("--cpu_devices=2"))
        self.assertIn("'nccl', only auto, ring", self.error("--distribution_strategy=one_device", "--batch_size=16", "--all_reduce_alg=nccl"))
        self.assertIn("12 examples cannot be divided equally into 8", self.error("--distribution_strategy=one_device", "--batch_size=12"))
        self.assertRegex(self.error("--num_gpus=99"), r"--num_gpus=99, but Millrace finds \w+ GPUs? here")
        self.assertIn("resnet_size", self.error("--resnet_size=50"))
        self.assertIn("version", self.error("--version=3"))
        self.assertIn("batch_size", self.error("--batch_size=0"))
        self.assertIn("--batch_size=81 is more than the 80 training images", self.error("--batch_size=81"))
        self.assertIn("--eval_only needs --model_dir", self.error("--eval_only"))
        self.assertIn("there is no checkpoint in", self.error("--eval_only", "--model_dir=" + os.path.join(self.folder, "none")))
        tf_config = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})
        self.assertIn("TF_CONFIG has 2 workers", self.error(TF_CONFIG=tf_config))

    def test_a_model_dir_of_another_network_is_told(self):
        model = os.path.join(self.folder, "model")
        self.train("--train_steps=1", "--skip_eval", "--model_dir=" + model)
        message = self.error("--resnet_size=32", "--batch_size=16", "--train_steps=2", "--model_dir=" + model)
        self.assertIn("resnet_model/", message)


class Strategies(unittest.TestCase):
    """Networks of equal bytes, however many processes and devices trained them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    FLAGS = ["--resnet_size=20", "--use_synthetic_data", "--batch_size=8", "--learning_rate=1.6", "--skip_eval", "--log_steps=1"]

    def train(self, model, *flags, workers=0, steps=20):
        """The bytes of the checkpoint, and the losses by step."""
        model = os.path.join(self.folder, model)
        command = [ARGS.program, *self.FLAGS, "--train_steps=%d" % steps, "--model_dir=" + model, *flags]
        if workers > 0:
            command = [ARGS.millrace, "launch", "--ps", "0", "--workers", str(workers), "--", *command, "--distribution_strategy=multi_worker_mirrored"]
        environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        output = result.stdout + result.stderr
        self.assertEqual(result.returncode, 0, output)
        losses = dict(re.findall(r"step (\d+)/.* loss ([0-9.]+) ", output))
        with open(os.path.join(model, "model.ckpt-%d.data-00000-of-00001" % steps), "rb") as data:
            return data.read(), losses

    def test_checkpoints_have_the_same_bytes_on_any_number_of_workers_and_devices(self):
        alone, losses = self.train("alone", "--distribution_strategy=one_device")
        self.assertEqual(len(losses), 20)
        self.assertLess(float(losses["20"]), float(losses["1"]))
        for workers in (2, 3, 4, 5, 8):
            self.assertEqual(self.train("on%d" % workers, workers=workers), (alone, losses), "%d workers" % workers)
        for devices in (2, 4):
            mirrored = self.train("mirrored%d" % devices, "--distribution_strategy=mirrored", "--cpu_devices=%d" % devices)
            self.assertEqual(mirrored, (alone, losses), "%d devices" % devices)
        self.assertEqual(self.train("both", "--cpu_devices=2", workers=2), (alone, losses), "2 workers with 2 devices")
        self.train("restarted", workers=3, steps=9)
        self.assertEqual(self.train("restarted", workers=2)[0], alone, "3 workers, then 2")
        order_free, _ = self.train("order_free", "--shards=0", workers=2)
        self.assertNotEqual(order_free, alone)

    def test_all_test_images_are_evaluated_by_any_number_of_workers(self):
        data = os.path.join(self.folder, "data")
        write_cifar(data, 43)
        model = os.path.join(self.folder, "model")
        flags = ["--resnet_size=20", "--data_dir=" + data, "--model_dir=" + model, "--batch_size=8", "--train_steps=3"]

        def evaluation(*more, workers=0):
            command = [ARGS.program, *flags, *more]
            if workers > 0:
                command = [ARGS.millrace, "launch", "--ps", "0", "--workers", str(workers), "--", *command]
            result = subprocess.run(command, capture_output=True, text=True, timeout=300, env={k: v for k, v in os.environ.items() if k != "TF_CONFIG"})
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            (line,) = re.findall(r"Evaluation at step 3: .*", result.stdout)
            return line, result.stdout + result.stderr

        alone, _ = evaluation("--distribution_strategy=off")
        self.assertIn("on 43 images", alone)
        for more, workers in (["--distribution_strategy=one_device"], 0), (["--distribution_strategy=default", "--eval_batch_size=7"], 3):
            line, output = evaluation("--eval_only", *more, workers=workers)
            self.assertEqual(line, alone, "%s on %d workers" % (more, workers))
        # Workers other than the chief get the values that it restored.
        self.assertEqual(len(re.findall(r"got the values of another worker: training begins at step 3", output)), 2)
        self.assertNotIn("training begins at step 0", output)

    def test_workers_learn_at_their_own_pace_with_a_ps(self):
        model = os.path.join(self.folder, "model")
        # A rate at which gradients of old weights do no harm: beside other work, one worker may lag by many steps.
        flags = ["--learning_rate=0.4" if flag.startswith("--learning_rate") else flag for flag in self.FLAGS]
        command = [ARGS.millrace, "launch", "--ps", "1", "--workers", "2", "--", ARGS.program, *flags, "--train_steps=40", "--model_dir=" + model,
                   "--distribution_strategy=parameter_server"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        losses = [float(loss) for loss in re.findall(r" loss ([0-9.]+) ", result.stdout)]
        # The chief's first line may come when the other worker has trained for long: compared with a network that knows nothing.
        self.assertLess(losses[-1], math.log(10))
        self.assertTrue(glob.glob(os.path.join(model, "model.ckpt-4*.index")), os.listdir(model))

    def test_a_worker_that_is_killed_is_named_by_the_others(self):
        sockets = [socket.socket() for _ in range(3)]
        for s in sockets:
            s.bind(("localhost", 0))
        addresses = ["localhost:%d" % s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        workers = []
        for index in range(3):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            command = [ARGS.program, *self.FLAGS, "--train_steps=1000000", "--distribution_strategy=default"]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, TF_CONFIG=json.dumps(config))))
        try:
            for line in workers[0].stdout:
                if line.startswith("step 3/"):
                    break
            workers[1].kill()
            for index in (0, 2):
                output, _ = workers[index].communicate(timeout=60)
                self.assertNotEqual(workers[index].returncode, 0)
                self.assertIn("/job:worker/replica:0/task:1", output)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
                worker.stdout.close()


class GetData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write_cifar(os.path.join(self.folder, "made", "cifar-10-batches-bin"), 1)
        self.archive = os.path.join(self.folder, "cifar.tar.gz")
        with tarfile.open(self.archive, "w:gz") as tar:
            tar.add(os.path.join(self.folder, "made", "cifar-10-batches-bin"), "cifar-10-batches-bin")
        with open(self.archive, "rb") as content:
            self.md5 = hashlib.md5(content.read()).hexdigest()

    def run_script(self, *args):
        return subprocess.run([ARGS.get_data, *args], capture_output=True, text=True, timeout=60)

    @unittest.skipUnless(shutil.which("curl"), "needs curl, for a file as an URL")
    def test_unpacks_what_it_downloads_once(self):
        out = os.path.join(self.folder, "out")
        get = lambda: self.run_script("--url", "file://" + self.archive, "--md5", self.md5, out)
        result = get()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.listdir(out), ["cifar-10-batches-bin"])
        self.assertIn("is complete", get().stdout)

    @unittest.skipUnless(shutil.which("curl"), "needs curl, for a file as an URL")
    def test_a_damaged_or_missing_archive_is_told_and_leaves_nothing(self):
        out = os.path.join(self.folder, "out")
        result = self.run_script("--url", "file://" + self.archive, out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is damaged", result.stderr)
        result = self.run_script("--url", "file://" + self.archive + ".none", out)
        self.assertIn("cannot download", result.stderr)
        self.assertEqual(os.listdir(out), [])


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--get_data", required=True)
    parser.add_argument("--millrace", required=True)
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
