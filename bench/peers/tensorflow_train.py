"""TensorFlow's side of bench/train: one task with the flags of train_task.cc, and what that does."""
import sys
import time

import numpy as np

from tensorflow_v1 import cluster_of, config_of, say, task_parser, tf, tf1


def build(args, workers):
    step = tf1.train.create_global_step()
    w1 = tf1.get_variable("w1", initializer=tf1.truncated_normal([784, 100], stddev=1 / 28))
    b1 = tf1.get_variable("b1", initializer=tf.zeros([100]))
    w2 = tf1.get_variable("w2", initializer=tf1.truncated_normal([100, 10], stddev=0.1))
    b2 = tf1.get_variable("b2", initializer=tf.zeros([10]))
    x, y = tf1.placeholder(tf.float32, [None, 784]), tf1.placeholder(tf.float32, [None, 10])
    hidden = tf.nn.relu(tf1.nn.xw_plus_b(x, w1, b1))
    p = tf.nn.softmax(tf1.nn.xw_plus_b(hidden, w2, b2))
    loss = -tf.reduce_sum(y * tf1.log(tf.clip_by_value(p, 1e-10, 1.0)))
    optimizer = tf1.train.GradientDescentOptimizer(0.001)
    if args.sync:
        aggregate = args.replicas_to_aggregate or workers
        optimizer = tf1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=aggregate, total_num_replicas=workers)
    return x, y, step, optimizer.minimize(loss, global_step=step), optimizer


def main():
    parser = task_parser(__doc__)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--slow_worker", type=int, default=-1)
    parser.add_argument("--slow_ms", type=float, default=0)
    parser.add_argument("--replicas_to_aggregate", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=-1)
    args = parser.parse_args()
    cluster = cluster_of(args)
    me = f"/job:worker/task:{args.task_index}"
    config = config_of(args.threads)
    server = tf1.train.Server(cluster, args.job_name, args.task_index, config=config)
    if args.job_name == "ps":
        server.join()
    setter = tf1.train.replica_device_setter(worker_device=me, cluster=cluster)
    with tf1.device(setter):
        x, y, step, train, optimizer = build(args, len(cluster["worker"]))
        init_tokens = optimizer.get_init_tokens_op(args.tokens) if args.sync else None
        init, missing = tf1.global_variables_initializer(), tf1.report_uninitialized_variables(tf1.global_variables())
    config.device_filters.extend(["/job:ps", me])
    session = tf1.Session(server.target, config=config)
    chief = args.task_index == 0
    if chief:
        session.run(init)
    while len(session.run(missing)):
        time.sleep(0.002)
    if args.sync:
        session.run(optimizer.chief_init_op if chief else optimizer.local_step_init_op)
        if chief:
            optimizer.get_chief_queue_runner().create_threads(session, daemon=True, start=True)
            session.run(init_tokens)
    random = np.random.RandomState(args.task_index)
    images, labels = random.rand(100, 784).astype(np.float32), np.eye(10, dtype=np.float32)[random.randint(0, 10, 100)]
    run = session.make_callable([train.op if hasattr(train, "op") else train], [x, y])
    read = session.make_callable(step)

    def one():
        run(images, labels)
        if args.slow_worker == args.task_index:
            time.sleep(args.slow_ms / 1e3)

    def train_for(seconds):
        end = time.time() + seconds
        while time.time() < end:
            one()

    one()
    say(first_step=time.time())
    if chief:
        train_for(args.seconds / 2)
        for _ in range(args.repeats):
            before, begin = int(read()), time.time()
            train_for(args.seconds)
            took = time.time() - begin
            say(global_steps_per_second=(int(read()) - before) / took)
    train_for(3600)


if __name__ == "__main__":
    sys.exit(main())
