"""TensorFlow's client against servers of several kinds, in turns; one JSON line for each measurement.

    cluster_client.py --targets=millrace=grpc://localhost:4000,tensorflow=grpc://localhost:4001 --cases=null,two

Every target is a worker 0 of a cluster of worker 0, worker 1 and ps 0; one whose name begins with "floor" gives canned answers.
"""
import argparse
import random
import time

import numpy as np

from common import median_seconds
from tensorflow_v1 import say, tf, tf1, unrewritten

WORKER, OTHER, PS = "/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"
MEGABYTES = 100
NODES, WIDTH = 10_000, 100


def plain_config():
    return unrewritten(tf1.ConfigProto())


class Null:
    """A step that does nothing, at a master in another process."""
    on_floor = True

    def __init__(self, target):
        with tf1.Graph().as_default():
            nothing = tf1.no_op()
            self.session = tf1.Session(target)
            self.step = self.session.make_callable(nothing)

    def measure(self, seconds):
        return {"null": ("us", 1e6 * median_seconds(self.step, seconds))}


class Two:
    """A step over two tasks: a scalar variable of the ps, read on the worker."""
    on_floor = False

    def __init__(self, target):
        with tf1.Graph().as_default():
            with tf1.device(PS):
                v = tf1.get_variable("v_two", initializer=3.0)
            with tf1.device(WORKER):
                y = v + 4.0
            self.session = tf1.Session(target, config=plain_config())
            self.session.run(v.initializer)
            self.step = self.session.make_callable(y)
            assert self.step() == 7.0

    def measure(self, seconds):
        return {"two": ("us", 1e6 * median_seconds(self.step, seconds))}


class Create:
    """A new session with a large graph over three tasks, until its first step has answered."""
    on_floor = False

    def __init__(self, target):
        self.target = target
        with tf1.Graph().as_default() as self.graph:
            tasks = (PS, WORKER, OTHER)
            layers = NODES // WIDTH
            with tf1.device(tasks[0]):
                row = [tf1.random_uniform([], seed=i) for i in range(WIDTH)]
            for layer in range(1, layers):
                with tf1.device(tasks[layer * len(tasks) // layers]):
                    row = [row[i] + row[(i + 1) % WIDTH] for i in range(WIDTH)]
            with tf1.device(WORKER):
                self.sum = tf1.add_n(row)

    def once(self, config):
        begin = time.perf_counter()
        with tf1.Session(self.target, graph=self.graph, config=config) as session:
            session.run(self.sum)
            return time.perf_counter() - begin

    def measure(self, seconds):
        return {"create": ("ms", 1e3 * self.once(None)), "create_plain": ("ms", 1e3 * self.once(unoptimized_config()))}


class Transfer:
    """Large tensors between the client and its master."""
    on_floor = False

    def __init__(self, target):
        n = MEGABYTES * 2**20 // 4
        with tf1.Graph().as_default(), tf1.device(WORKER):
            v = tf1.get_variable("v_transfer", shape=[n], initializer=tf1.zeros_initializer())
            p = tf1.placeholder(tf.float32, [n])
            first = tf1.slice(p, [0], [1])
            self.session = tf1.Session(target, config=plain_config())
            self.session.run(v.initializer)
            self.fetch = self.session.make_callable(v.read_value())
            feed = self.session.make_callable(first, [p])
        x = np.ones(n, np.float32)
        self.feed = lambda: feed(x)

    def measure(self, seconds):
        rate = lambda call: MEGABYTES * 2**20 / 1e9 / median_seconds(call, seconds, warm=1, least=3)
        return {"fetch": ("GB/s", rate(self.fetch)), "feed": ("GB/s", rate(self.feed))}


def unoptimized_config():
    config = plain_config()
    config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    return config


CASES = {"null": Null, "two": Two, "create": Create, "transfer": Transfer}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", required=True, help="name=grpc://host:port,...")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    targets = dict(entry.split("=", 1) for entry in args.targets.split(","))
    for case in args.cases.split(","):
        kind = CASES[case]
        sides = {name: kind(target) for name, target in targets.items() if kind.on_floor or not name.startswith("floor")}
        for repeat in range(args.repeats):
            # In an order of its own each time, so that no side has always the same one before it.
            order = list(sides)
            random.Random(repeat).shuffle(order)
            for name in order:
                for what, (unit, value) in sides[name].measure(args.seconds).items():
                    say(case=what, side=name, unit=unit, value=float(f"{value:.5g}"), repeat=repeat)
        del sides


if __name__ == "__main__":
    main()
