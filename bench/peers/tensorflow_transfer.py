"""TensorFlow's side of bench/transfer: one task with the flags of transfer_task.cc, and what that does."""
import statistics
import sys
import time

import numpy as np

from tensorflow_v1 import cluster_of, config_of, say, task_parser, tf, tf1, unrewritten

MB = 1 << 20
ROWS, WIDTH, BATCH = 10_000_000, 64, 4096
PS = "/job:ps/task:0"


def measure(run, seconds):
    for _ in range(3):
        run()
    times, begin = [], time.perf_counter()
    now = begin
    while now < begin + seconds or len(times) < 3:
        run()
        end = time.perf_counter()
        times.append(end - now)
        now = end
    say(median=statistics.median(times), mean=(time.perf_counter() - begin) / len(times), steps=len(times))


def worker_cases(session_of, me, args):
    """{case: callable}. Without graph optimizers: they would remove work on one side only."""
    what, shared, own = {}, [], []
    if args.embedding:
        with tf1.device(PS):
            table = tf1.get_variable("table", shape=[ROWS, WIDTH], initializer=tf1.zeros_initializer())
        with tf1.device(me):
            ids = tf1.random_uniform([BATCH], 0, ROWS, dtype=tf.int64)
            rows = tf1.nn.embedding_lookup(table, ids)
            update = tf1.identity(rows) * 0.01 + 1.0
        what["embedding"] = table.scatter_add(tf.IndexedSlices(update, ids)).op
        shared.append(table.initializer)
    else:
        with tf1.device(PS):
            scalar = tf1.get_variable("scalar", shape=[1], initializer=tf1.zeros_initializer())
        with tf1.device(me):
            what["scalar"] = tf1.group(tf1.slice(scalar, [0], [1]))
        shared.append(scalar.initializer)
        for mb in () if args.scalar_only else (1, 100):
            with tf1.device(PS):
                there = tf1.get_variable(f"there{mb}", shape=[mb * MB // 4], initializer=tf1.zeros_initializer())
            with tf1.device(me):
                here = tf1.get_variable(f"here{mb}_{args.task_index}", shape=[mb * MB // 4], initializer=tf1.ones_initializer())
                what[f"read{mb}"] = tf1.group(tf1.slice(there, [0], [1]))
                value = tf1.identity(here)
                what[f"sum{mb}"], what[f"own_sum{mb}"] = tf1.reduce_sum(there), tf1.reduce_sum(here)
            with tf1.device(PS):
                what[f"push{mb}"] = tf1.assign_add(there, value, use_locking=False).op
            shared.append(there.initializer)
            own.append(here.initializer)
    session = session_of()
    if args.task_index == 0:
        session.run(shared)
    session.run(own)
    return {name: session.make_callable(fetch) for name, fetch in what.items()}


def client_cases(target, threads):
    """A client of the ps's own server, which is another process."""
    with tf1.Graph().as_default(), tf1.device(PS):
        value = tf1.get_variable("fetched", shape=[100 * MB // 4], initializer=tf1.zeros_initializer())
        read = value.read_value()
        given = tf1.placeholder(tf.float32, [100 * MB // 4])
        first = tf1.slice(given, [0], [1])
        session = tf1.Session(target, config=unrewritten(config_of(threads, ["/job:ps"])))
        session.run(value.initializer)
        fed = np.ones(100 * MB // 4, np.float32)
        feed = session.make_callable(first, [given])
        return {"fetch100": session.make_callable(read), "feed100": lambda: feed(fed)}


def main():
    parser = task_parser(__doc__)
    parser.add_argument("--embedding", action="store_true")
    parser.add_argument("--scalar_only", action="store_true")
    args = parser.parse_args()
    cluster = cluster_of(args)
    server = tf1.train.Server(cluster, args.job_name, args.task_index, config=unrewritten(config_of(args.threads)))
    if args.job_name == "ps":
        server.join()
    me = f"/job:worker/task:{args.task_index}"
    cases = worker_cases(lambda: tf1.Session(server.target, config=unrewritten(config_of(args.threads, ["/job:ps", me]))), me, args)
    if not args.embedding and not args.scalar_only and args.task_index == 0:
        cases.update(client_cases("grpc://" + cluster["ps"][0], args.threads))
    say(ready=True)
    for line in sys.stdin:
        name, seconds = line.split()
        measure(cases[name], float(seconds))


if __name__ == "__main__":
    sys.exit(main())
