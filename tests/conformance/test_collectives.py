"""Collective ops of graphs, on devices of one task, of several, and of both kinds of server in one group.

`mixed` clusters have one worker of SERVER_CMD and one of stock TensorFlow; the leader is worker 0.
"""

import threading

import numpy as np
import pytest

import harness
from harness import in_threads

LEADER = "/job:worker/replica:0/task:0"
FLAGS = ["--collective_group_leader=" + LEADER]


@pytest.fixture(scope="module")
def ops(tf):
    from tensorflow.python.ops import collective_ops
    return collective_ops


def servers(kinds, devices=1):
    """A cluster of workers, of the given kinds."""
    flags = FLAGS + (["--cpu_devices=%d" % devices] if devices > 1 else [])
    commands = {"mine": harness.server_cmd() + flags, "stock": harness.stock_cmd() + flags}
    return harness.Cluster(worker=len(kinds), cmds={("worker", i): commands[k] for i, k in enumerate(kinds)})


@pytest.fixture(scope="module", params=["mine,mine", "mine,stock", "stock,mine"])
def ring(request, tf):
    with servers(request.param.split(",")) as cluster:
        yield cluster


def with_leader(tf, **extra):
    config = tf.ConfigProto(operation_timeout_in_ms=60000, **extra)
    config.experimental.collective_group_leader = LEADER
    return config


_keys = iter(range(100, 1 << 20))


def test_reduce_in_one_step_of_two_tasks(tf, ops, ring):
    """A ring whose members one master runs; the tensors are of one element, of some, and of many pieces."""
    for size in (1, 7, 1000, 3000001):
        key = next(_keys)
        tf.reset_default_graph()
        outs = []
        for i in range(2):
            with tf.device("/job:worker/task:%d" % i):
                x = tf.range(size, dtype=tf.int32) * (i + 1)
                outs.append(ops.all_reduce(tf.cast(x, tf.float32), 2, 1, key, "Add", "Div"))
        with tf.Session(ring.target("worker", 0), config=with_leader(tf)) as sess:
            for _ in range(2):
                for out in sess.run(outs):
                    np.testing.assert_array_equal(out, np.arange(size, dtype=np.float32) * 1.5)


@pytest.mark.parametrize("merge,expected", [("Add", [5., 7., 9.]), ("Mul", [4., 10., 18.]), ("Min", [1., 2., 3.]),
                                            ("Max", [4., 5., 6.])])
def test_merge_ops(tf, ops, ring, merge, expected):
    tf.reset_default_graph()
    key, outs = next(_keys), []
    for i, value in enumerate(([1., 2., 3.], [4., 5., 6.])):
        with tf.device("/job:worker/task:%d" % i):
            outs.append(ops.all_reduce(tf.constant(value), 2, 1, key, merge, "Id"))
    with tf.Session(ring.target("worker", 0), config=with_leader(tf)) as sess:
        for out in sess.run(outs):
            np.testing.assert_array_equal(out, expected)


def test_gather_and_broadcast(tf, ops, ring):
    tf.reset_default_graph()
    gather, source0, source1 = next(_keys), next(_keys), next(_keys)
    value = np.arange(100000, dtype=np.float32)
    outs, got = [], []
    for i in range(2):
        with tf.device("/job:worker/task:%d" % i):
            outs.append(ops.all_gather(tf.constant([[10 * i, 10 * i + 1]]), 2, 1, gather))
            for source, key in ((0, source0), (1, source1)):
                got.append(ops.broadcast_send(tf.constant(value), value.shape, tf.float32, 2, 1, key) if source == i
                           else ops.broadcast_recv(value.shape, tf.float32, 2, 1, key))
    with tf.Session(ring.target("worker", 0), config=with_leader(tf)) as sess:
        for out in sess.run(outs):
            np.testing.assert_array_equal(out, [[0, 1], [10, 11]])
        for out in sess.run(got):
            np.testing.assert_array_equal(out, value)


def test_reduce_v2(tf, ops, ring):
    """The group and the instance are tensors."""
    tf.reset_default_graph()
    key, outs = next(_keys), []
    for i in range(2):
        with tf.device("/job:worker/task:%d" % i):
            outs.append(ops.all_reduce_v2(tf.fill([1000], float(i + 1)), 2, 1, key, max_subdivs_per_device=0))
            outs.append(ops.all_gather_v2(tf.fill([2], i), 2, 1, key + (1 << 21)))
    with tf.Session(ring.target("worker", 0), config=with_leader(tf)) as sess:
        for _ in range(3):
            a0, g0, a1, g1 = sess.run(outs)
            np.testing.assert_array_equal(a0, np.full(1000, 3.0))
            np.testing.assert_array_equal(a1, a0)
            assert list(g0) == list(g1) == [0, 0, 1, 1]


@pytest.fixture(params=["frames", "functional"])
def loops(tf, request):
    """tf.while_loop as ops that enter and leave a frame, and as an op with functions."""
    if request.param == "functional":
        tf.enable_control_flow_v2()
    yield
    tf.disable_control_flow_v2()


def test_reduce_in_a_loop(tf, ops, ring, loops):
    """Members in the body of one loop meet in every iteration, with the same keys."""
    tf.reset_default_graph()
    keys = [next(_keys), next(_keys)]

    def body(step, x, y):
        with tf.device("/job:worker/task:0"):
            a = ops.all_reduce(x, 2, 1, keys[0], "Add", "Id"), ops.all_reduce_v2(x, 2, 1, keys[1])
        with tf.device("/job:worker/task:1"):
            b = ops.all_reduce(y, 2, 1, keys[0], "Add", "Id"), ops.all_reduce_v2(y, 2, 1, keys[1])
        return step + 1, a[0] + a[1], b[0] + b[1] + 1.0

    with tf.device("/job:worker/task:0"):
        out = tf.while_loop(lambda step, x, y: step < 3, body, [0, tf.fill([1000], 1.0), tf.fill([1000], 2.0)])
    with tf.Session(ring.target("worker", 0), config=with_leader(tf)) as sess:
        for _ in range(2):
            step, x, y = sess.run(out)
            assert step == 3
            np.testing.assert_array_equal(x, np.full(1000, 106.0))  # 1 and 2; then 6 and 7; 26 and 27; 106 and 107
            np.testing.assert_array_equal(y, np.full(1000, 107.0))


def test_reduce_in_the_loops_of_two_masters(tf, ops, ring, loops):
    """Loops of the same name, each in a graph of its own."""
    key = next(_keys)

    def worker(index):
        with tf.Graph().as_default():
            with tf.device("/job:worker/task:%d" % index):
                out = tf.while_loop(lambda step, x: step < 3,
                                    lambda step, x: (step + 1, ops.all_reduce(x, 2, 1, key, "Add", "Id") + index),
                                    [0, tf.fill([1000], index + 1.0)])
            config = with_leader(tf, device_filters=["/job:worker/task:%d" % index])
            options = tf.RunOptions()
            options.experimental.collective_graph_key = key
            with tf.Session(ring.target("worker", index), config=config) as sess:
                np.testing.assert_array_equal(sess.run(out, options=options)[1], np.full(1000, 15.0 + index))
    in_threads([lambda: worker(0), lambda: worker(1)])


def test_loops_of_other_names_do_not_meet(tf, ops, own):
    """Nor do TensorFlow's; here the error says why."""
    with servers(["mine", "mine"]) as cluster:
        tf.reset_default_graph()
        key, outs = next(_keys), []
        for i in range(2):
            with tf.device("/job:worker/task:%d" % i):
                outs.append(tf.while_loop(
                    lambda x: True, lambda x: ops.all_reduce(x, 2, 1, key, "Add", "Id", timeout=2), [tf.ones([10])]))
        with tf.Session(cluster.target("worker", 0), config=with_leader(tf)) as sess:
            with pytest.raises(tf.errors.DeadlineExceededError, match="loops of its members have the same name"):
                sess.run(outs)


def test_two_masters_run_the_steps_of_a_ring(tf, ops, ring):
    """Between-graph: each worker has a client and a session of its own; steps get their ids from the leader."""
    key = next(_keys)

    def worker(index):
        with tf.Graph().as_default():
            with tf.device("/job:worker/task:%d" % index):
                x = tf.placeholder(tf.float32, [1000])
                out = ops.all_reduce(x, 2, 1, key, "Add", "Id")
            config = with_leader(tf, device_filters=["/job:worker/task:%d" % index])
            options = tf.RunOptions()
            options.experimental.collective_graph_key = key
            with tf.Session(ring.target("worker", index), config=config) as sess:
                for step in range(20):
                    got = sess.run(out, {x: np.full(1000, step * 10.0 + index)}, options=options)
                    np.testing.assert_array_equal(got, np.full(1000, step * 20.0 + 1))
    in_threads([lambda: worker(0), lambda: worker(1)])


def test_shapes_that_differ_are_an_error(tf, ops, own):
    cluster = own(worker=1, cmds={"worker": harness.server_cmd() + FLAGS + ["--cpu_devices=2"]})
    outs = []
    for i in range(2):
        with tf.device("/job:worker/task:0/device:CPU:%d" % i):
            outs.append(ops.all_reduce(tf.zeros([4 + i]), 2, 1, 1, "Add", "Id"))
    with tf.Session(cluster.target("worker"), config=tf.ConfigProto(operation_timeout_in_ms=30000)) as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Shape mismatch"):
            sess.run(outs)


def test_devices_of_one_task(tf, ops, own):
    """Without a leader: all members are devices of one task."""
    cluster = own(worker=1, cmds={"worker": harness.server_cmd() + ["--cpu_devices=4"]})
    sums, rows = [], []
    for i in range(4):
        with tf.device("/job:worker/task:0/device:CPU:%d" % i):
            sums.append(ops.all_reduce(tf.range(1000) * (i + 1), 4, 1, 1, "Add", "Id"))
            rows.append(ops.all_to_all_v2(tf.range(4) + 10 * i, 4, 2, 2))
    with tf.Session(cluster.target("worker"), config=tf.ConfigProto(operation_timeout_in_ms=30000)) as sess:
        for _ in range(3):
            for out in sess.run(sums):
                np.testing.assert_array_equal(out, np.arange(1000) * 10)
            for i, out in enumerate(sess.run(rows)):
                assert list(out) == [i, 10 + i, 20 + i, 30 + i]


def test_death_of_a_member_names_it(tf, ops):
    """Each worker has its own master: the survivor learns of the death from its ring."""
    with servers(["mine", "mine"]) as cluster:
        def step(index):
            with tf.Graph().as_default():
                with tf.device("/job:worker/task:%d" % index):
                    out = ops.all_reduce(tf.constant([1.0]), 2, 1, 1, "Add", "Id")
                config = with_leader(tf, device_filters=["/job:worker/task:%d" % index])
                sess = tf.Session(cluster.target("worker", index), config=config)
                return sess, lambda: sess.run(out)
        (first, survivors), (second, others) = step(0), step(1)
        assert in_threads([survivors, others]) == [[2.0], [2.0]]
        second.close()  # while its server answers: the client waits for it
        error = []

        def survivor():
            try:
                survivors()
            except tf.errors.OpError as e:
                error.append(e)
        waiting = threading.Thread(target=survivor)
        waiting.start()
        cluster.task("worker", 1).kill()
        waiting.join(30)
        first.close()
        assert error and isinstance(error[0], tf.errors.UnavailableError), error
        assert "/job:worker/replica:0/task:1" in str(error[0])


def resolver(tf, cluster, job, index):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster.cluster_def(), task_type=job, task_id=index, rpc_layer="grpc")


def fit(tf, strategy, x):
    """w * x = 3 * x by gradient descent; each replica has its own x, and the gradients are added."""
    with strategy.scope():
        w = tf.get_variable("w", initializer=0.0, use_resource=True)
        optimizer = tf.train.GradientDescentOptimizer(0.1)

        def replica():
            here = x()
            return optimizer.minimize(tf.square(w * here - 3.0 * here))
        train = strategy.group(strategy.extended.call_for_each_replica(replica))
    return w, train


def expected_fit(xs, steps):
    w = 0.0
    for _ in range(steps):
        w -= 0.1 * np.sum([2 * x * (w * x - 3.0 * x) for x in xs])
    return w


@pytest.mark.parametrize("kinds", ["mine,mine", "mine,stock"])
def test_multi_worker_mirrored_strategy(tf, kinds):
    """Each worker runs the same program in graph mode, with a session on its own server."""
    with servers(kinds.split(",")) as cluster:
        def worker(index):
            with tf.Graph().as_default():
                strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(
                    cluster_resolver=resolver(tf, cluster, "worker", index))
                assert strategy.num_replicas_in_sync == 2
                w, train = fit(tf, strategy, lambda: tf.constant(0.5 + index))
                init = tf.global_variables_initializer()
                config = strategy.update_config_proto(tf.ConfigProto(operation_timeout_in_ms=60000))
                with tf.Session(cluster.target("worker", index), config=config) as sess:
                    sess.run(init)
                    for _ in range(10):
                        sess.run(train)
                    return sess.run(strategy.experimental_local_results(w)[0])
        first, second = in_threads([lambda: worker(0), lambda: worker(1)])
        assert first == second
        np.testing.assert_allclose(first, expected_fit([0.5, 1.5], 10), rtol=1e-5)


def test_mirrored_strategy(tf, own):
    """Two devices of one server."""
    cluster = own(worker=1, cmds={"worker": harness.server_cmd() + ["--cpu_devices=2"]})
    devices = ["/job:worker/task:0/device:CPU:%d" % i for i in range(2)]
    strategy = tf.distribute.MirroredStrategy(devices)

    def x():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.constant([0.5, 1.5])[replica]
    w, train = fit(tf, strategy, x)
    init = tf.global_variables_initializer()
    with tf.Session(cluster.target("worker"), config=tf.ConfigProto(operation_timeout_in_ms=60000)) as sess:
        sess.run(init)
        for _ in range(10):
            sess.run(train)
        for copy in sess.run(strategy.experimental_local_results(w)):
            np.testing.assert_allclose(copy, expected_fit([0.5, 1.5], 10), rtol=1e-5)


def test_parameter_server_strategy(tf, own):
    """Between-graph: two workers train one variable on a parameter server, asynchronously."""
    cluster = own(ps=1, worker=2)

    def worker(index):
        with tf.Graph().as_default():
            strategy = tf.distribute.experimental.ParameterServerStrategy(resolver(tf, cluster, "worker", index))
            w, train = fit(tf, strategy, lambda: tf.constant(0.5 + index))
            assert w.device.startswith("/job:ps"), w.device
            init = tf.global_variables_initializer()
            config = strategy.update_config_proto(tf.ConfigProto(operation_timeout_in_ms=60000))
            with tf.Session(cluster.target("worker", index), config=config) as sess:
                if index == 0:
                    sess.run(init)
                    ready.set()
                assert ready.wait(60)
                for _ in range(200):  # enough for one worker alone: the other may not have begun yet, or be done
                    sess.run(train)
                return sess.run(w)
    ready = threading.Event()
    for value in in_threads([lambda: worker(0), lambda: worker(1)]):
        assert abs(value - 3.0) < 0.01
