"""The convolutional cases for JAX: the whole step under jit, everything it changes donated."""
import jax
import jax.numpy as jnp
from jax import lax

import common


class Net:
    """Walks over the parameters in the order the layers use them; without any, makes them."""

    def __init__(self, params=None, averages=None):
        self.making = params is None
        self.params, self.averages = [] if self.making else params, [] if self.making else averages
        self.used, self.new_averages = 0, []

    def parameter(self, make):
        if self.making:
            self.params.append(make())
        self.used += 1
        return self.params[self.used - 1]

    def conv(self, x, filters, window, stride=1):
        w = self.parameter(lambda: jnp.asarray(common.conv_weights(window, x.shape[-1], filters)))
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def bias(self, x):
        return x + self.parameter(lambda: jnp.zeros(x.shape[-1]))

    def norm(self, x):
        c = x.shape[-1]
        scale, offset = self.parameter(lambda: jnp.ones(c)), self.parameter(lambda: jnp.zeros(c))
        if self.making:
            self.averages.append((jnp.zeros(c), jnp.ones(c)))
        old = self.averages[len(self.new_averages)]
        batch = x.mean((0, 1, 2)), x.var((0, 1, 2))
        self.new_averages.append(tuple(lax.stop_gradient(0.9 * a + 0.1 * b) for a, b in zip(old, batch)))
        return (x - batch[0]) * (lax.rsqrt(batch[1] + 1e-5) * scale) + offset

    def dense(self, x, units):
        w = self.parameter(lambda: jnp.asarray(common.dense_weights(x.shape[-1], units)))
        return x @ w + self.parameter(lambda: jnp.zeros(units))


def resnet20(net, x):
    def block(x, filters, stride):
        y = jax.nn.relu(net.norm(net.conv(x, filters, 3, stride)))
        y = net.norm(net.conv(y, filters, 3))
        return jax.nn.relu(y + (x if stride == 1 else net.norm(net.conv(x, filters, 1, stride))))

    h = jax.nn.relu(net.norm(net.conv(x, 16, 3)))
    for filters in (16, 32, 64):
        for i in range(3):
            h = block(h, filters, 2 if i == 0 and filters > 16 else 1)
    return net.dense(h.mean((1, 2)), 10)


def conv_mnist(net, x):
    for filters in (32, 64):
        x = jax.nn.relu(net.bias(net.conv(x, filters, 5)))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return net.dense(jax.nn.relu(net.dense(x.reshape(x.shape[0], -1), 512)), 10)


def steps_per_second(args, shape, logits_of, rate, momentum):
    images, classes = common.images(shape)
    start = Net()
    logits_of(start, jnp.asarray(images))
    slots = jax.tree.map(jnp.zeros_like, start.params) if momentum else ()
    held = [start.params, slots, start.averages]

    def loss_of(params, averages, x, labels):
        net = Net(params, averages)
        logp = jax.nn.log_softmax(logits_of(net, x))
        return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], axis=1)), net.new_averages

    def train(params, slots, averages, x, labels):
        (loss, averages), grads = jax.value_and_grad(loss_of, has_aux=True)(params, averages, x, labels)
        if momentum:
            slots = grads = jax.tree.map(lambda m, g: momentum * m + g, slots, grads)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), slots, averages, loss

    jitted = jax.jit(train, donate_argnums=(0, 1, 2))

    def step():
        *held[:], loss = jitted(*held, images, classes)
        return float(loss)

    return common.rate(step, args.seconds, warm=4, chunk=1)


def run_resnet20(args):
    common.emit(args, "resnet20", "images/s",
                common.CIFAR[0] * steps_per_second(args, common.CIFAR, resnet20, 0.1, 0.9))


def run_conv_mnist(args):
    common.emit(args, "conv_mnist", "steps/s", steps_per_second(args, common.MNIST, conv_mnist, 0.01, 0))
