"""The peers' side of the cases `chains_1m` and `chains_64m`: element-wise ops and reductions over rows of 1,024."""
import common

COLUMNS = 1024
SIZES = {"chains_1m": ("1m", 1 << 20), "chains_64m": ("64m", 64 << 20)}
NAMES = ("softmax", "layer_norm", "gelu_tanh", "gelu_erf")


def emit(args, case, name, seconds):
    common.emit(args, f"{name}_{SIZES[case][0]}", "us", seconds * 1e6)


def tensorflow(args, case, tf1, config):
    n = SIZES[case][1]

    def layer_norm(x):
        mean = tf1.reduce_mean(x, -1, keepdims=True)
        centered = x - mean
        variance = tf1.reduce_mean(tf1.square(centered), -1, keepdims=True)
        one = tf1.ones([COLUMNS])
        return centered * tf1.rsqrt(variance + 1e-5) * one + one

    functions = {
        "softmax": tf1.nn.softmax,
        "layer_norm": layer_norm,
        "gelu_tanh": lambda x: 0.5 * x * (1.0 + tf1.tanh(0.7978845608028654 * (x + 0.044715 * tf1.pow(x, 3)))),
        "gelu_erf": lambda x: 0.5 * x * (1.0 + tf1.erf(x / 1.4142135623730951)),
    }
    for name in NAMES:
        with tf1.Graph().as_default(), tf1.Session(config=config) as session:
            v = tf1.get_variable("x", initializer=tf1.random_normal([n // COLUMNS, COLUMNS]))
            y = functions[name](v.read_value())
            session.run(v.initializer)
            emit(args, case, name, common.median_seconds(session.make_callable(y.op), args.seconds, warm=3, least=5))


def torch(args, case):
    import math
    import torch as t
    n = SIZES[case][1]
    one = t.ones(COLUMNS)
    functions = {
        "softmax": lambda x: t.softmax(x, -1),
        "layer_norm": lambda x: t.nn.functional.layer_norm(x, (COLUMNS,), one, one, 1e-5),
        "gelu_tanh": lambda x: t.nn.functional.gelu(x, approximate="tanh"),
        "gelu_erf": lambda x: t.nn.functional.gelu(x),
    }
    x = t.randn(n // COLUMNS, COLUMNS)
    with t.no_grad():
        for name in NAMES:
            f = t.compile(functions[name]) if args.setting == "compiled" else functions[name]
            emit(args, case, name, common.median_seconds(lambda: f(x), args.seconds, warm=3, least=5))


def jax(args, case):
    import jax as j
    import jax.numpy as jnp
    n = SIZES[case][1]

    def layer_norm(x):
        centered = x - x.mean(-1, keepdims=True)
        return centered * j.lax.rsqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5) * 1.0 + 1.0

    functions = {
        "softmax": lambda x: j.nn.softmax(x, -1),
        "layer_norm": layer_norm,
        "gelu_tanh": lambda x: j.nn.gelu(x, approximate=True),
        "gelu_erf": lambda x: j.nn.gelu(x, approximate=False),
    }
    x = j.random.normal(j.random.PRNGKey(1), (n // COLUMNS, COLUMNS))
    for name in NAMES:
        f = j.jit(functions[name])
        emit(args, case, name, common.median_seconds(lambda: f(x).block_until_ready(), args.seconds, warm=3, least=5))
