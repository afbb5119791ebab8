#!/usr/bin/env python3
"""The Python package without TensorFlow: servers, the command's functions, checkpoints and events."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import millrace
from millrace import checkpoint, events


class ClusterSpecTest(unittest.TestCase):
    def test_jobs_and_tasks(self):
        spec = millrace.ClusterSpec({"worker": ["b:1", "c:1"], "ps": {1: "a:1"}})
        self.assertEqual(spec.jobs, ["ps", "worker"])
        self.assertEqual((spec.num_tasks("ps"), spec.task_indices("ps"), spec.task_address("ps", 1)), (1, [1], "a:1"))
        self.assertEqual(spec.as_dict(), {"worker": ["b:1", "c:1"], "ps": {1: "a:1"}})
        self.assertEqual(spec.to_flag(), "ps|;a:1,worker|b:1;c:1")
        self.assertEqual(millrace.ClusterSpec(spec), spec)

    def test_what_is_no_cluster_is_named(self):
        for cluster, said in (("a:1", "'a:1'"), ({"ps": "a:1"}, "'ps'"), ({"ps": [1]}, "1"), ({"ps": {-1: "a:1"}}, "-1")):
            with self.assertRaisesRegex(TypeError, said):
                millrace.ClusterSpec(cluster)
        spec = millrace.ClusterSpec({"ps": ["a:1"]})
        with self.assertRaisesRegex(ValueError, "no job 'worker', but 'ps'"):
            spec.num_tasks("worker")
        with self.assertRaisesRegex(ValueError, r"no task 1, but \[0\]"):
            spec.task_address("ps", 1)


class ServerTest(unittest.TestCase):
    def test_it_serves_until_it_is_stopped(self):
        with millrace.Server.create_local_server() as server:
            tasks = millrace.status(server.target)["tasks"]
            self.assertEqual([task["task"] for task in tasks], ["/job:localhost/replica:0/task:0"])
            joined = threading.Thread(target=server.join)
            joined.start()
        joined.join(30)
        self.assertFalse(joined.is_alive())
        server.stop()  # once more
        self.assertFalse(millrace.status(server.target)["tasks"][0]["answered"])

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(ValueError, "the jobs ps, worker"):
            millrace.Server({"ps": ["localhost:0"], "worker": ["localhost:0"]})
        with self.assertRaisesRegex(ValueError, "job 'ps' has 2 tasks"):
            millrace.Server({"ps": ["localhost:1", "localhost:2"]}, "ps")
        with self.assertRaisesRegex(millrace.Error, "ConfigProto"):
            millrace.Server({"ps": ["localhost:0"]}, config=b"\xff\xff")
        with self.assertRaisesRegex(millrace.Error, "worker"):
            millrace.Server({"ps": ["localhost:0"]}, "worker", 0)
        with self.assertRaises(millrace.Error) as raised:
            millrace.Server({"ps": ["other.machine:0"]})
        self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
        with millrace.Server.create_local_server() as server:
            with self.assertRaises(millrace.Error) as raised:
                millrace.Server({"ps": [server.target[len("grpc://"):]]})
            self.assertEqual(raised.exception.code, "ALREADY_EXISTS")

    def test_ctrl_c_ends_a_join(self):
        code = "import millrace; s = millrace.Server.create_local_server(); print('here', flush=True); s.join()"
        process = subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"here\n")
        process.send_signal(signal.SIGINT)
        self.assertIn(b"KeyboardInterrupt", process.communicate(timeout=60)[1])


class CommandsTest(unittest.TestCase):
    def test_launch_runs_a_program_as_each_task(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "task.py")
            with open(program, "w") as f:
                f.write("import json, os, sys\ntask = json.loads(os.environ['TF_CONFIG'])['task']\n"
                        "open(os.path.join(sys.argv[1], task['type'] + str(task['index'])), 'w').close()\n"
                        "sys.exit(int(os.environ.get('FAILS', 0)))\n")
            self.assertEqual(millrace.launch([program, folder], workers=2), 0)
            self.assertEqual(sorted(os.listdir(folder)), ["task.py", "worker0", "worker1"])
            self.assertNotEqual(millrace.launch([program, folder], env={"FAILS": "3"}, check=False), 0)
            with self.assertRaises(subprocess.CalledProcessError):
                millrace.launch([program, folder], env={"FAILS": "3"})
        with self.assertRaisesRegex(TypeError, "list of words"):
            millrace.launch("train.py")


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.prefix = os.path.join(folder.name, "model.ckpt-7")
        self.folder = folder.name

    def test_what_is_saved_is_loaded(self):
        values = {"scalar": np.float32(1.5), "w": np.arange(6, dtype=np.float64).reshape(2, 3).T, "empty": np.zeros((0, 3), np.int64),
                  "big_endian": np.array([1, 2], ">i4"), "flags": np.array([True, False]), "half": np.array([1, 2], np.float16),
                  "complex": np.array([1 + 2j]), "words": np.array([["a", "b\0c"], ["", "d"]], object), "text": np.array(b"x")}
        checkpoint.save(self.prefix, values)
        with open(os.path.join(self.folder, "checkpoint"), "w") as f:
            f.write('model_checkpoint_path: "model.ckpt-7"\n')
        self.assertEqual(checkpoint.latest(self.folder), self.prefix)
        reader = checkpoint.Reader(self.folder)
        self.assertEqual(sorted(reader), sorted(values))
        self.assertEqual((reader.shape("w"), reader.dtype("w")), ((3, 2), np.float64))
        for name, value in values.items():
            if name in ("words", "text"):
                continue
            np.testing.assert_array_equal(reader[name], value)
            self.assertEqual(reader[name].shape, np.shape(value))
        self.assertEqual(reader["words"].tolist(), [[b"a", b"b\0c"], [b"", b"d"]])
        self.assertEqual(reader["text"].item(), b"x")

    def test_errors_name_what_is_wrong(self):
        with self.assertRaises(millrace.Error) as raised:
            checkpoint.load(self.prefix)
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        self.assertIn(self.prefix, str(raised.exception))
        with self.assertRaisesRegex(millrace.Error, "no file `checkpoint`"):
            checkpoint.load(self.folder)
        with self.assertRaisesRegex(TypeError, "dates.*datetime64"):
            checkpoint.save(self.prefix, {"dates": np.array(["2020-01-01"], "datetime64[D]")})
        with self.assertRaisesRegex(TypeError, "mixed has a int"):
            checkpoint.save(self.prefix, {"mixed": np.array(["a", 1], object)})
        self.assertEqual(os.listdir(self.folder), [])  # nothing is left of them
        checkpoint.save(self.prefix, {"w": np.arange(100.0)})
        with self.assertRaisesRegex(KeyError, "no tensor 'v'"):
            checkpoint.Reader(self.prefix)["v"]
        with open(self.prefix + ".data-00000-of-00001", "r+b") as f:
            f.seek(17)
            f.write(b"\xff")
        with self.assertRaises(millrace.Error) as raised:
            checkpoint.load(self.prefix)
        self.assertEqual(raised.exception.code, "DATA_LOSS")


class EventsTest(unittest.TestCase):
    def test_what_is_written_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            with events.Writer(folder, ".mine") as writer:
                for step in range(3):
                    writer.scalar("loss/ä", 1 / (step + 1), step)
                self.assertTrue(writer.path.endswith(".mine"))
            read = list(events.read(folder))
            self.assertEqual([(event.step, event.tag, event.value) for event in read], [(step, "loss/ä", np.float32(1 / (step + 1))) for step in range(3)])
            with open(writer.path, "r+b") as f:
                f.seek(-2, os.SEEK_END)
                f.write(b"\xff")
            with self.assertRaises(millrace.Error) as raised:
                list(events.read(writer.path))
            self.assertEqual(raised.exception.code, "DATA_LOSS")
        with self.assertRaises(millrace.Error):
            list(events.read(folder + "/none"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
