#!/usr/bin/env python3
"""JAX with the whole training step under jit, its parameters donated."""
import os

import chains
import common

CASES = ("mlp_sgd", "mlp_adam", "mlp_large", "conv_mnist", "resnet20", *chains.SIZES)


def loss_of(params, x, labels):
    h = x
    for i, (w, b) in enumerate(params):
        h = h @ w + b
        if i + 1 < len(params):
            h = jax.nn.relu(h)
    logp = jax.nn.log_softmax(h)
    return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], axis=1))


def sgd(params, state, grads):
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), state


def adam(params, state, grads):
    count, m, v = state
    count = count + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    rate = 0.001 * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count)
    params = jax.tree.map(lambda p, a, b: p - rate * a / (jnp.sqrt(b) + 1e-8), params, m, v)
    return params, (count, m, v)


def mlp(args, case, sizes, rows, update):
    before = common.rss_mb()
    params = [(jnp.asarray(w), jnp.asarray(b)) for w, b in common.initial_weights(sizes)]
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    held = {"params": params, "state": (jnp.float32(0), zeros(), zeros()) if update is adam else ()}

    def train(params, state, x, labels):
        loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
        params, state = update(params, state, grads)
        return loss, params, state

    jitted = jax.jit(train, donate_argnums=(0, 1))
    features, classes = common.batch(sizes, rows)

    def step():
        loss, held["params"], held["state"] = jitted(held["params"], held["state"], features, classes)
        return float(loss)

    value = common.rate(step, args.seconds)
    more = dict(peak_mb=round(common.peak_mb() - before, 1)) if case == "mlp_large" else {}
    common.emit(args, case, "steps/s", value, **more)


if __name__ == "__main__":
    arguments = common.parse("jax", CASES)
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    RUN = {
        "mlp_sgd": lambda a: mlp(a, "mlp_sgd", common.MLP_SMALL, common.BATCH_SMALL, sgd),
        "mlp_adam": lambda a: mlp(a, "mlp_adam", common.MLP_SMALL, common.BATCH_SMALL, adam),
        "mlp_large": lambda a: mlp(a, "mlp_large", common.MLP_LARGE, common.BATCH_LARGE, sgd),
    }
    import jax_conv_nets as conv_nets
    RUN.update(conv_mnist=conv_nets.run_conv_mnist, resnet20=conv_nets.run_resnet20)
    for size in chains.SIZES:
        RUN[size] = lambda a, size=size: chains.jax(a, size)
    for name in arguments.cases:
        RUN[name](arguments)
