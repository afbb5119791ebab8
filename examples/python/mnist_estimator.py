"""MNIST with an Estimator of TensorFlow (tensorflow 2.15 or older has them), as any task of TF_CONFIG:

    millrace launch --python --ps 1 --job chief=1 --workers 1 -- mnist_estimator.py --model_dir=DIR

With "environment": "google" in TF_CONFIG an Estimator starts no servers, but uses those that run at the addresses of the cluster, such as `millrace serve`
(docs/python.md).
"""

import argparse
import json
import os

import input_data
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--data_dir", default="examples/data/mnist")
parser.add_argument("--model_dir", required=True)
parser.add_argument("--train_steps", type=int, default=2000)
args = parser.parse_args()

mnist = input_data.read_data_sets(args.data_dir)


def input_of(data, **options):
    return tf.compat.v1.estimator.inputs.numpy_input_fn({"image": data.images}, data.labels.argmax(axis=1), batch_size=100, **options)


estimator = tf.compat.v1.estimator.DNNClassifier(
    hidden_units=[100], n_classes=10, feature_columns=[tf.feature_column.numeric_column("image", shape=[784])],
    optimizer=tf.compat.v1.train.AdagradOptimizer(0.1), config=tf.estimator.RunConfig(model_dir=args.model_dir, save_checkpoints_steps=500))
tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_of(mnist.train, num_epochs=None, shuffle=True), max_steps=args.train_steps),
                                tf.estimator.EvalSpec(input_of(mnist.test, num_epochs=1, shuffle=False), start_delay_secs=0, throttle_secs=0))
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief"})
if task["type"] == "chief":
    result = estimator.evaluate(input_of(mnist.test, num_epochs=1, shuffle=False))
    print("Test accuracy %.4f at step %d" % (result["accuracy"], result["global_step"]))
