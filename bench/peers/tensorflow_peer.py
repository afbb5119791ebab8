#!/usr/bin/env python3
"""TensorFlow as a TF1-style client drives it at its fastest: graph mode, make_callable.

Settings: `pool` runs ops in the inter-op pool (the default), `caller` on the caller's thread, which is
faster for tiny steps.
"""
import time

import chains
import cifar_input
import common
import embedding
import sequence_nets
import tensorflow_rnn

CASES = ("null", "scalar", "chain", "mlp_sgd", "mlp_adam", "mlp_large", "import", "conv_mnist", "resnet20", "rnn", "lstm", "transformer", "embedding", "cifar_input",
         *chains.SIZES)


def config(args, rewrite=True):
    inter = -1 if args.setting == "caller" else args.threads
    c = tf1.ConfigProto(intra_op_parallelism_threads=args.threads, inter_op_parallelism_threads=inter)
    if not rewrite:
        c.graph_options.rewrite_options.disable_meta_optimizer = True
    return c


def null(args):
    with tf1.Graph().as_default(), tf1.Session(config=config(args)) as session:
        call = session.make_callable(tf1.no_op())
        common.emit(args, "null", "us", common.median_seconds(call, args.seconds) * 1e6)


def scalar(args):
    with tf1.Graph().as_default(), tf1.Session(config=config(args)) as session:
        v = tf1.get_variable("v", initializer=3.0)
        y = v + 4.0
        session.run(v.initializer)
        common.emit(args, "scalar", "us", common.median_seconds(session.make_callable(y), args.seconds) * 1e6)


def chain(args):
    """1,000 scalar adds, each of the last result and one variable's value. Rewrites are off on both
    sides: they would replace the chain by something else."""
    with tf1.Graph().as_default(), tf1.Session(config=config(args, rewrite=False)) as session:
        v = tf1.get_variable("v", initializer=0.001)
        x = y = v.read_value()
        for _ in range(1000):
            y = y + x
        session.run(v.initializer)
        call = session.make_callable(y)
        assert abs(call() - 1.001) < 1e-3
        common.emit(args, "chain", "us", common.median_seconds(call, args.seconds) * 1e6)


def mlp_step(args, sizes, rows, optimizer):
    """A call of one training step, feeds included."""
    x = tf1.placeholder(tf.float32, [rows, sizes[0]])
    labels = tf1.placeholder(tf.int32, [rows])
    h = x
    layers = common.initial_weights(sizes)
    for i, (w, b) in enumerate(layers):
        h = tf1.nn.xw_plus_b(h, tf1.get_variable(f"w{i}", initializer=w), tf1.get_variable(f"b{i}", initializer=b))
        if i + 1 < len(layers):
            h = tf.nn.relu(h)
    loss = tf.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))
    train = optimizer.minimize(loss)
    with tf1.control_dependencies([train]):
        loss = tf.identity(loss)
    session = tf1.Session(config=config(args))
    session.run(tf1.global_variables_initializer())
    call = session.make_callable(loss, [x, labels])
    features, classes = common.batch(sizes, rows)
    return lambda: call(features, classes)


def mlp(args, case, sizes, rows, optimizer):
    with tf1.Graph().as_default():
        before = common.rss_mb()
        step = mlp_step(args, sizes, rows, optimizer)
        value = common.rate(step, args.seconds)
        more = dict(peak_mb=round(common.peak_mb() - before, 1)) if case == "mlp_large" else {}
        common.emit(args, case, "steps/s", value, **more)


def import_graph(args):
    """From the bytes of a GraphDef to the result of its first run."""
    data = open(args.graph, "rb").read()
    for rewrite in (True, False):
        begin = time.perf_counter()
        graph_def = tf1.GraphDef.FromString(data)
        with tf1.Graph().as_default():
            tf1.import_graph_def(graph_def, name="")
            imported = time.perf_counter() - begin
            with tf1.Session(config=config(args, rewrite)) as session:
                session.run("result:0", {"x:0": 0.5})
        common.emit(args, "import", "s", time.perf_counter() - begin, import_s=round(imported, 3),
                    note="" if rewrite else "no rewrites")


if __name__ == "__main__":
    arguments = common.parse("tensorflow", CASES, ("pool", "caller"))
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_v2_behavior()
    tf1.enable_resource_variables()
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    RUN = {
        "null": null, "scalar": scalar, "chain": chain, "import": import_graph,
        "rnn": lambda a: tensorflow_rnn.rnn(tf, tf1, a, config(a)),
        "mlp_sgd": lambda a: mlp(a, "mlp_sgd", common.MLP_SMALL, common.BATCH_SMALL, tf1.train.GradientDescentOptimizer(0.01)),
        "mlp_adam": lambda a: mlp(a, "mlp_adam", common.MLP_SMALL, common.BATCH_SMALL, tf1.train.AdamOptimizer(0.001)),
        "mlp_large": lambda a: mlp(a, "mlp_large", common.MLP_LARGE, common.BATCH_LARGE, tf1.train.GradientDescentOptimizer(0.01)),
    }
    import tensorflow_conv_nets as conv_nets
    RUN["conv_mnist"] = lambda a: conv_nets.run_conv_mnist(a, config(a))
    RUN["resnet20"] = lambda a: conv_nets.run_resnet20(a, config(a))
    RUN["embedding"] = lambda a: embedding.run(a, tf1, config(a, rewrite=False))
    RUN["cifar_input"] = lambda a: cifar_input.tensorflow(a, tf, tf1, config(a))
    for net in ("lstm", "transformer"):
        RUN[net] = lambda a, net=net: sequence_nets.tensorflow(a, net, tf, tf1, config(a))
    for size in chains.SIZES:
        RUN[size] = lambda a, size=size: chains.tensorflow(a, size, tf1, config(a))
    for name in arguments.cases:
        RUN[name](arguments)
