#!/usr/bin/env python3
"""The Python package beside TensorFlow, in one process: its servers in TensorFlow's place, and files that both read. tensorflow_test.py"""

import glob
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
# Both libraries compute in one process, whichever was loaded first.
BESIDE = """
import {first}
import {second}
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
server = tf.train.Server.create_local_server(config=tf.ConfigProto(intra_op_parallelism_threads=1))
with tf.device("/job:localhost/task:0"):
    a = tf.constant([[1., 2.], [3., 4.]])
    product = tf.matmul(a, a)
answers = []
for target in (server.target, ""):
    with tf.Session(target) as session:
        answers.append(session.run(product).tolist())
assert answers[0] == answers[1] == [[7, 10], [15, 22]], answers
print(type(server).__module__)
"""


class BesideTensorFlow(unittest.TestCase):
    def run_python(self, code):
        result = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout.split()[-1]

    def test_both_serve_in_one_process(self):
        for first, second in (("tensorflow", "millrace.tensorflow"), ("millrace", "millrace.tensorflow")):
            self.assertEqual(self.run_python(BESIDE.format(first=first, second=second)), "millrace._tensorflow_server")

    def test_tensorflows_own_server_comes_back(self):
        uninstalled = "import millrace.tensorflow as m; m.uninstall(); import tensorflow as tf; print(tf.distribute.Server.__module__)"
        self.assertIn("server_lib", self.run_python(uninstalled))

    def test_a_job_with_tls_is_refused(self):
        code = "import os; os.environ['MILLRACE_TLS_DIR'] = '/certificates'; import millrace.tensorflow as m; m.Server.create_local_server()"
        result = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120)
        self.assertIn("millrace launch --insecure", result.stderr)

    def test_a_program_trains_with_a_ps_and_two_workers(self):
        import millrace
        with tempfile.TemporaryDirectory() as folder:
            logs = os.path.join(folder, "logs")
            model = os.path.join(folder, "model")
            millrace.launch([os.path.join(HERE, "../../examples/python/train.py"), model], ps=1, workers=2, options=["--insecure", "--log_dir", logs])
            for worker in (0, 1):
                with open(*glob.glob(os.path.join(logs, "*worker*%d*" % worker))) as f:
                    self.assertIn("the last loss of worker %d is below 0.01: True" % worker, f.read())
            from millrace import checkpoint
            values = checkpoint.load(model)
            np.testing.assert_allclose(values["w"], [[3], [-2]], atol=0.2)
            self.assertGreaterEqual(values["global_step"], 300)
            import tensorflow as tf
            np.testing.assert_array_equal(tf.train.load_checkpoint(model).get_tensor("w"), values["w"])

    def test_tensorflow_reads_what_the_package_writes(self):
        import tensorflow as tf
        from millrace import checkpoint, events
        with tempfile.TemporaryDirectory() as folder:
            values = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "words": np.array([b"x", b"yz"], object), "n": np.int64(7),
                      "brain": np.arange(3).astype(tf.bfloat16.as_numpy_dtype)}
            prefix = os.path.join(folder, "model.ckpt")
            checkpoint.save(prefix, values)
            reader = tf.train.load_checkpoint(prefix)
            ours = checkpoint.load(prefix)
            for name, value in values.items():
                np.testing.assert_array_equal(reader.get_tensor(name), value)
                np.testing.assert_array_equal(ours[name], value)
            with events.Writer(folder) as writer:
                writer.scalar("loss", 0.5, step=3)
            found = [(event.step, event.summary.value[0].tag, event.summary.value[0].simple_value)
                     for event in tf.compat.v1.train.summary_iterator(writer.path) if event.summary.value]
            self.assertEqual(found, [(3, "loss", 0.5)])

    def test_the_package_reads_what_tensorflow_writes(self):
        import tensorflow as tf
        from millrace import events
        with tempfile.TemporaryDirectory() as folder:
            with tf.summary.create_file_writer(folder).as_default():
                tf.summary.scalar("loss", 0.25, step=5)
                tf.summary.histogram("weights", [1.0, 2.0], step=6)
                tf.summary.text("note", "hello", step=7)
            found = {event.tag: event for event in events.read(folder)}
            self.assertEqual((found["loss"].step, found["loss"].value), (5, 0.25))
            self.assertEqual(found["weights"].value.shape[1], 3)
            self.assertIsNone(found["note"].value)
            self.assertIn(b"hello", found["note"].raw)


if __name__ == "__main__":
    unittest.main(verbosity=2)
