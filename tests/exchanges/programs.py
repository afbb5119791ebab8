"""Client programs for servers with and without a GPU, in TensorFlow 1's ways. Each takes a target and returns what it saw.

A program makes its calls one after another, and traces a step so that a player can tell where nodes ran. Nodes whose
names begin with "falls_back/" ask for a GPU and have no kernel there.
"""

import contextlib

import numpy as np

GPU = "/gpu:0"


def no_optimizer(tf, **kw):
    """Constants are not folded away, so that every node shows up in a trace."""
    config = tf.ConfigProto(**kw)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def digits(step, count=16):
    """A batch of made-up digits of 8 x 8 pixels: ten fixed shapes and noise."""
    shapes = np.random.RandomState(5).rand(10, 64).astype(np.float32)
    source = np.random.RandomState(100 + step)
    labels = source.randint(0, 10, count)
    return shapes[labels] + source.normal(0, 0.1, (count, 64)).astype(np.float32), labels.astype(np.int64)


def traced(tf, sess, fetch, feed):
    meta = tf.RunMetadata()
    return sess.run(fetch, feed, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=meta)


def train(tf, target, device, resource, optimizer, config, model):
    """Ten steps of a small network, evaluated in between, and its variables."""
    tf.set_random_seed(7)
    x = tf.placeholder(tf.float32, [None, 64], name="x")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    with tf.device(device) if device else contextlib.nullcontext():
        with tf.variable_scope("net", use_resource=resource):
            logits = model(tf, x)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False,
                               use_resource=resource)
        with tf.device("/cpu:0"):
            seen = tf.assign_add(step, 1)
        update = optimizer(tf).minimize(loss)
    out = []
    with tf.Session(target, config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(10):
            images, wanted = digits(i)
            out.append(sess.run([loss, seen, update], {x: images, labels: wanted})[:2])
        images, wanted = digits(99)
        out.append(traced(tf, sess, [loss, accuracy, update], {x: images, labels: wanted})[:2])
        out.append(sess.run(tf.trainable_variables()))
    return out


def mlp(tf, x):
    def dense(x, size, name):
        with tf.variable_scope(name):
            w = tf.get_variable("w", [int(x.shape[1]), size], initializer=tf.glorot_uniform_initializer(seed=3))
            b = tf.get_variable("b", [size], initializer=tf.zeros_initializer())
        return tf.matmul(x, w) + b
    return dense(tf.nn.relu(dense(x, 32, "hidden")), 10, "out")


def conv(tf, x):
    image = tf.reshape(x, [-1, 8, 8, 1])
    w = tf.get_variable("w", [3, 3, 1, 4], initializer=tf.random_normal_initializer(stddev=0.3, seed=4))
    b = tf.get_variable("b", [4], initializer=tf.zeros_initializer())
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, w, [1, 1, 1, 1], "SAME"), b))
    y = tf.nn.max_pool2d(y, 2, 2, "SAME")
    out = tf.get_variable("out", [64, 10], initializer=tf.glorot_uniform_initializer(seed=5))
    return tf.matmul(tf.reshape(y, [-1, 64]), out)


def sgd(tf):
    return tf.train.GradientDescentOptimizer(0.5)


def momentum(tf):
    return tf.train.MomentumOptimizer(0.1, 0.9)


def adam(tf):
    return tf.train.AdamOptimizer(0.01)


def ref_gpu_soft(tf, target):
    config = no_optimizer(tf, allow_soft_placement=True, log_device_placement=True)
    return train(tf, target, GPU, False, sgd, config, mlp)


def resource_gpu_soft(tf, target):
    config = no_optimizer(tf, allow_soft_placement=True, log_device_placement=True)
    return train(tf, target, GPU, True, adam, config, mlp)


def ref_gpu_hard(tf, target, soft=False):
    return train(tf, target, GPU, False, momentum, no_optimizer(tf, allow_soft_placement=soft), mlp)


def resource_gpu_hard(tf, target, soft=False):
    config = no_optimizer(tf, allow_soft_placement=soft, log_device_placement=True)
    return train(tf, target, "/device:GPU:0", True, sgd, config, mlp)


def ref_anywhere(tf, target):
    return train(tf, target, None, False, adam, no_optimizer(tf, allow_soft_placement=False), mlp)


def resource_anywhere(tf, target):
    return train(tf, target, None, True, momentum, no_optimizer(tf, allow_soft_placement=False), mlp)


def conv_anywhere(tf, target):
    return train(tf, target, None, True, sgd, tf.ConfigProto(allow_soft_placement=True), conv)


def embeddings(tf, target):
    """Updates by rows of both kinds of variables."""
    ids = tf.placeholder(tf.int32, [None], name="ids")
    out = []
    tables = [tf.get_variable("table%d" % i, [12, 4], initializer=tf.constant_initializer(
        np.arange(48, dtype=np.float32).reshape(12, 4) / 48), use_resource=bool(i)) for i in range(2)]
    rows = [tf.nn.embedding_lookup(table, ids) for table in tables]
    loss = tf.add_n([tf.reduce_sum(tf.square(r)) for r in rows])
    update = tf.train.AdagradOptimizer(0.1).minimize(loss)
    with tf.Session(target, config=no_optimizer(tf)) as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(4):
            out.append(sess.run([loss, update], {ids: [i, 3, 3, 11 - i]})[0])
        out.append(traced(tf, sess, [loss] + rows, {ids: [1, 3]}))
        out.append(sess.run(tables))
    return out


def falls_back(tf, target):
    """Strings have no kernel on a GPU: soft placement moves them to the CPU, and their neighbours stay."""
    x = tf.placeholder(tf.float32, [3], name="x")
    with tf.device(GPU):
        y = tf.multiply(x, 2.0, name="y")
        with tf.name_scope("falls_back"):
            text = tf.as_string(y, precision=2)
            joined = tf.strings.join([text, text], separator=",")
    with tf.Session(target, config=no_optimizer(tf, allow_soft_placement=True)) as sess:
        first = sess.run([y, joined], {x: [1, 2, 3]})
        return first + traced(tf, sess, [y, joined], {x: [0.5, -1, 4]})


def mistakes(tf, target):
    """Errors of placement, and of a step; the session works on."""
    def code(fetch, **kw):
        with tf.Session(target, config=no_optimizer(tf, **kw)) as sess:
            try:
                sess.run(fetch)
            except tf.errors.OpError as error:
                return error.error_code
        return 0

    out = []
    with tf.Graph().as_default():
        with tf.device("/gpu:7"):
            absent = tf.constant(1.0) + 1.0
        out += [code(absent, allow_soft_placement=False), code(absent, allow_soft_placement=True)]
    with tf.Graph().as_default():
        with tf.device(GPU):
            text = tf.as_string(tf.constant(1.0))
        out += [code(text, allow_soft_placement=False), code(text, allow_soft_placement=True)]
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, None], name="x")
        product = tf.matmul(x, x)
        with tf.Session(target, config=no_optimizer(tf)) as sess:
            try:
                sess.run(product, {x: np.ones([2, 3])})
            except tf.errors.InvalidArgumentError as error:
                out.append(error.error_code)
            out.append(sess.run(product, {x: np.eye(2)}))
    return out


def sessions(tf, target):
    """Variables outlive a session, a graph grows, a step runs in two parts, a callable, loops and branches."""
    config = no_optimizer(tf, allow_soft_placement=True)
    out = []
    with tf.device(GPU):
        v = tf.get_variable("v", [2, 2], initializer=tf.ones_initializer(), use_resource=False)
        grow = tf.assign_add(v, [[1.0, 2.0], [3.0, 4.0]], name="grow")
    with tf.Session(target, config=config) as sess:
        sess.run(v.initializer)
        out.append(sess.run(grow))
    with tf.Session(target, config=config) as sess:
        out.append(sess.run(v))
        with tf.device(GPU):
            a = tf.placeholder(tf.float32, [2, 2], name="a")
            b = tf.placeholder(tf.float32, [2, 2], name="b")
            c = tf.matmul(a, v, name="c")
            d = tf.add(c, b, name="d")
        part = sess.partial_run_setup([c, d], [a, b])
        first = sess.partial_run(part, c, {a: np.eye(2)})
        out += [first, sess.partial_run(part, d, {b: first * 2})]
        call = sess.make_callable([d], feed_list=[a, b])
        out += [call(np.eye(2), np.ones([2, 2])), call(np.ones([2, 2]), np.eye(2))]
        with tf.device(GPU):
            total = tf.while_loop(lambda i, s: tf.less(i, 5), lambda i, s: (i + 1, tf.matmul(s, s) * 0.3),
                                  [tf.constant(0), a], name="loop")[1]
            either = tf.cond(tf.reduce_sum(a) > 2, lambda: a * 2, lambda: a - 1, name="either")
        for value in (np.eye(2), np.ones([2, 2])):
            out += sess.run([total, either], {a: value})
        out.append(traced(tf, sess, d, {a: np.eye(2), b: np.eye(2)}))
    return out


def random_numbers(tf, target):
    """The same seeds give TensorFlow's numbers on both."""
    tf.set_random_seed(11)
    x = tf.random.uniform([5, 3], seed=1)
    y = tf.random.normal([5, 3], seed=2)
    z = tf.random.truncated_normal([8], seed=3)
    i = tf.random.uniform([6], maxval=1000, dtype=tf.int32, seed=4)
    s = tf.random.stateless_uniform([4], seed=[1, 2])
    out = []
    with tf.Session(target, config=no_optimizer(tf)) as sess:
        for _ in range(2):
            out += sess.run([x, y, z, i, s])
        out.append(traced(tf, sess, [x, y], {}))
    return out


# Those that cannot run without a GPU, and what they say with soft placement where there is none.
NEED_GPU = [ref_gpu_hard, resource_gpu_hard]
ANYWHERE = [ref_gpu_soft, resource_gpu_soft, ref_anywhere, resource_anywhere, conv_anywhere, embeddings, falls_back,
            mistakes, sessions, random_numbers]
