"""The rnn case for TensorFlow: a while_loop of 100 iterations with its gradient and SGD.

Both forms of control flow are measured; compare takes the better one.
"""
import numpy as np

import common

STEPS, HIDDEN, BATCH = 100, 128, 16


def step(tf, tf1, session_config, version):
    (tf1.enable_control_flow_v2 if version == 2 else tf1.disable_control_flow_v2)()
    rng = np.random.RandomState(1)
    x = tf1.get_variable("x", initializer=rng.randn(STEPS, BATCH, HIDDEN).astype("f"), trainable=False)
    w = tf1.get_variable("w", initializer=(0.05 * rng.randn(2 * HIDDEN, HIDDEN)).astype("f"))
    b = tf1.get_variable("b", initializer=np.zeros(HIDDEN, "f"))
    inputs, weights, bias = x.read_value(), w.read_value(), b.read_value()

    def body(i, h):
        both = tf.concat([tf.gather(inputs, i), h], 1)
        return i + 1, tf.tanh(tf.nn.bias_add(tf.matmul(both, weights), bias))

    _, h = tf1.while_loop(lambda i, h: i < STEPS, body, [0, tf.zeros([BATCH, HIDDEN])], parallel_iterations=32)
    loss = tf.reduce_mean(tf.square(h))
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf1.control_dependencies([train]):
        loss = tf.identity(loss)
    session = tf1.Session(config=session_config)
    session.run(tf1.global_variables_initializer())
    return session.make_callable(loss)


def rnn(tf, tf1, args, session_config):
    for version in (1, 2):
        with tf1.Graph().as_default():
            call = step(tf, tf1, session_config, version)
            common.emit(args, "rnn", "steps/s", common.rate(call, args.seconds), note=f"control flow v{version}")
    tf1.disable_control_flow_v2()
