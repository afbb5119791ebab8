"""The convolutional cases for TensorFlow: graph mode, NHWC, make_callable, as in tensorflow_peer.py."""
import tensorflow as tf

import common

tf1 = tf.compat.v1


class Net:
    """Layers whose variables are numbered in the order they are made."""

    def __init__(self):
        self.count = 0
        self.updates = []  # of the moving averages

    def variable(self, value, trainable=True):
        self.count += 1
        return tf1.get_variable(f"v{self.count}", initializer=value, trainable=trainable)

    def conv(self, x, filters, window, stride=1):
        w = common.conv_weights(window, int(x.shape[-1]), filters)
        return tf.nn.conv2d(x, self.variable(w), stride, "SAME")

    def bias(self, x):
        return tf.nn.bias_add(x, self.variable(tf.zeros([x.shape[-1]])))

    def norm(self, x):
        c = x.shape[-1]
        scale, offset = self.variable(tf.ones([c])), self.variable(tf.zeros([c]))
        y, mean, variance, *_ = tf1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-5, is_training=True)
        for start, batch in ((tf.zeros([c]), mean), (tf.ones([c]), variance)):
            average = self.variable(start, trainable=False)
            self.updates.append(average.assign_sub((average - batch) * 0.1))
        return y

    def dense(self, x, units):
        w = common.dense_weights(int(x.shape[-1]), units)
        return tf1.nn.xw_plus_b(x, self.variable(w), self.variable(tf.zeros([units])))


def resnet20(net, x):
    def block(x, filters, stride):
        y = tf.nn.relu(net.norm(net.conv(x, filters, 3, stride)))
        y = net.norm(net.conv(y, filters, 3))
        return tf.nn.relu(y + (x if stride == 1 else net.norm(net.conv(x, filters, 1, stride))))

    h = tf.nn.relu(net.norm(net.conv(x, 16, 3)))
    for filters in (16, 32, 64):
        for i in range(3):
            h = block(h, filters, 2 if i == 0 and filters > 16 else 1)
    return net.dense(tf.reduce_mean(h, [1, 2]), 10)


def conv_mnist(net, x):
    for filters in (32, 64):
        x = tf.nn.relu(net.bias(net.conv(x, filters, 5)))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.reshape(x, [x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]])
    return net.dense(tf.nn.relu(net.dense(x, 512)), 10)


def steps_per_second(args, shape, logits_of, optimizer, config):
    with tf1.Graph().as_default():
        net = Net()
        x = tf1.placeholder(tf.float32, shape)
        labels = tf1.placeholder(tf.int32, shape[:1])
        loss = tf.reduce_mean(
            tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits_of(net, x)))
        with tf1.control_dependencies([optimizer.minimize(loss), *net.updates]):
            loss = tf.identity(loss)
        with tf1.Session(config=config) as session:
            session.run(tf1.global_variables_initializer())
            call = session.make_callable(loss, [x, labels])
            images, classes = common.images(shape)
            return common.rate(lambda: call(images, classes), args.seconds, warm=4, chunk=1)


def run_resnet20(args, config):
    rate = steps_per_second(args, common.CIFAR, resnet20, tf1.train.MomentumOptimizer(0.1, 0.9), config)
    common.emit(args, "resnet20", "images/s", rate * common.CIFAR[0])


def run_conv_mnist(args, config):
    rate = steps_per_second(args, common.MNIST, conv_mnist, tf1.train.GradientDescentOptimizer(0.01), config)
    common.emit(args, "conv_mnist", "steps/s", rate)
