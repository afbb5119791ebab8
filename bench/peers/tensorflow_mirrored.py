"""ResNet-20 under TensorFlow's MultiWorkerMirroredStrategy (one thread a process) or MirroredStrategy (one process); prints a JSON line.

    python tensorflow_mirrored.py multi_worker|mirrored RANKS BATCH_OF_ALL STEPS

BEGUN in the environment is the time at which the program was started, BIND=1 binds each process to a core.
"""
import json
import multiprocessing
import os
import socket
import sys
import time

import common

LOADED = time.time()


class Net:
    """The network, with variables that the strategy makes. Batch norm keeps its moving averages."""

    def __init__(self, tf):
        self.tf, self.trainable = tf, []
        self.first, self.blocks, channels = (self.conv(3, 3, 16), self.norm(16)), [], 16
        for filters in (16, 32, 64):
            for i in range(3):
                stride = 2 if i == 0 and filters > 16 else 1
                shortcut = (self.conv(1, channels, filters), self.norm(filters)) if stride == 2 else None
                self.blocks.append((stride, self.conv(3, channels, filters), self.norm(filters), self.conv(3, filters, filters), self.norm(filters), shortcut))
                channels = filters
        self.last = self.weight(tf.random.normal([64, 10], stddev=0.1)), self.weight(tf.zeros([10]))

    def weight(self, value):
        self.trainable.append(self.tf.Variable(value))
        return self.trainable[-1]

    def conv(self, window, channels, filters):
        return self.weight(self.tf.random.normal([window, window, channels, filters], stddev=(2 / (window * window * filters)) ** 0.5))

    def norm(self, channels):
        def average(value):
            return self.tf.Variable(value, trainable=False, synchronization=self.tf.VariableSynchronization.ON_READ, aggregation=self.tf.VariableAggregation.MEAN)

        return self.weight(self.tf.ones([channels])), self.weight(self.tf.zeros([channels])), average(self.tf.zeros([channels])), average(self.tf.ones([channels]))

    def normalised(self, x, parameters):
        scale, offset, mean, variance = parameters
        if not self.training:
            return self.tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-5)
        y, batch_mean, batch_variance, *_ = self.tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-5, is_training=True)
        mean.assign(mean * 0.9 + batch_mean * 0.1)
        variance.assign(variance * 0.9 + batch_variance * 0.1)
        return y

    def logits(self, x, training=True):
        tf, self.training = self.tf, training
        h = tf.nn.relu(self.normalised(tf.nn.conv2d(x, self.first[0], 1, "SAME"), self.first[1]))
        for stride, conv1, norm1, conv2, norm2, shortcut in self.blocks:
            y = tf.nn.relu(self.normalised(tf.nn.conv2d(h, conv1, stride, "SAME"), norm1))
            y = self.normalised(tf.nn.conv2d(y, conv2, 1, "SAME"), norm2)
            if shortcut:
                h = self.normalised(tf.nn.conv2d(h, shortcut[0], stride, "SAME"), shortcut[1])
            h = tf.nn.relu(y + h)
        return tf.reduce_mean(h, [1, 2]) @ self.last[0] + self.last[1]


def train(tf, strategy, replicas, batch, steps, reports, side):
    with strategy.scope():
        net = Net(tf)
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
        x = tf.random.normal([batch // replicas, 32, 32, 3])
        labels = tf.random.uniform([batch // replicas], 0, 10, tf.int32)

        def replica():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net.logits(x)))
            gradients = tape.gradient(loss, net.trainable)
            optimizer.apply_gradients(zip([g / replicas for g in gradients], net.trainable))
            return loss

        call = tf.function(lambda: strategy.run(replica))

    def step():
        losses = strategy.experimental_local_results(call())
        losses[0].numpy()

    step()
    first = time.time() - float(os.environ.get("BEGUN", LOADED))
    for _ in range(4):
        step()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    if reports:
        value = steps * batch / (time.perf_counter() - begun)
        print(json.dumps(dict(side=side, value=value, first_step_s=first, peak_mb=common.peak_mb())), flush=True)


def run_rank(rank, ports, batch, steps):
    if os.environ.get("BIND") == "1":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[rank * len(cores) // len(ports) : (rank + 1) * len(cores) // len(ports)] or cores)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # with one, the collectives stall
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    train(tf, strategy, len(ports), batch, steps, rank == 0, "TensorFlow MultiWorkerMirrored")
    time.sleep(1)  # the other is still in its last step
    os._exit(0)


def run_mirrored(devices, batch, steps):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * devices)
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(devices)])
    train(tf, strategy, devices, batch, steps, True, "TensorFlow Mirrored")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for free in sockets:
        free.bind(("127.0.0.1", 0))
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports


def run_workers(run, count, *args):
    """Calls run(rank, ports, *args) in `count` processes; returns the worst exit code."""
    ports, context = free_ports(count), multiprocessing.get_context("spawn")
    processes = [context.Process(target=run, args=(rank, ports, *args)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode) for process in processes)


def main():
    kind, count, batch, steps = sys.argv[1], *(int(word) for word in sys.argv[2:5])
    if kind == "mirrored":
        return run_mirrored(count, batch, steps)
    return run_workers(run_rank, count, batch, steps)


if __name__ == "__main__":
    sys.exit(main())
