"""ResNet-20 on CIFAR-10 under TensorFlow's MultiWorkerMirroredStrategy with the settings of examples/resnet_cifar; prints a JSON line for each epoch.

    python tensorflow_cifar.py DATA_DIR WORKERS EPOCHS [SEED]
"""
import json
import os
import sys

from tensorflow_mirrored import Net, run_workers

BATCH = 128
DECAY = 2e-4


def read(folder, names):
    import numpy as np

    raw = np.concatenate([np.fromfile(os.path.join(folder, name), np.uint8) for name in names]).reshape(-1, 3073)
    return raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), raw[:, 0].astype("int32")


def standardised(images):
    images = images.astype("float32")
    mean = images.mean((1, 2, 3), keepdims=True)
    return (images - mean) / images.std((1, 2, 3), keepdims=True).clip(1 / images[0].size**0.5)


def augmented(images, random):
    import numpy as np

    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    tops, lefts, flips = random.integers(0, 9, len(images)), random.integers(0, 9, len(images)), random.integers(0, 2, len(images))
    out = np.empty_like(images)
    for i, (top, left, flip) in enumerate(zip(tops, lefts, flips)):
        crop = padded[i, top : top + 32, left : left + 32]
        out[i] = crop[:, ::-1] if flip else crop
    return standardised(out)


def run_worker(rank, ports, folder, epochs, seed):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]}, "task": {"type": "worker", "index": rank}})
    import numpy as np
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = read(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = read(folder, ["test_batch.bin"])
    workers = len(ports)
    with strategy.scope():
        tf.random.set_seed(seed)
        net = Net(tf)
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)

    @tf.function
    def step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, net.logits(x)))
                loss += DECAY * tf.add_n([tf.nn.l2_loss(v) for v in net.trainable if len(v.shape) > 1])
            optimizer.apply_gradients(zip([g / workers for g in tape.gradient(loss, net.trainable)], net.trainable))
            return loss

        return strategy.run(replica, (x, y))

    @tf.function
    def correct(x, y):
        return tf.reduce_sum(tf.cast(tf.argmax(net.logits(x, training=False), 1, tf.int32) == y, tf.int32))

    steps = len(images) // BATCH
    for epoch in range(epochs):
        order = np.random.default_rng([seed, 1, epoch]).permutation(len(images))
        random = np.random.default_rng([seed, 2, epoch, rank])
        for i in range(steps):
            mine = order[i * BATCH : (i + 1) * BATCH][rank::workers]
            step(tf.constant(augmented(images[mine], random)), tf.constant(labels[mine]))
        # Moving averages are reduced when they are read outside of a replica, which all workers do.
        hits = sum(int(correct(tf.constant(standardised(test_images[at : at + 500])), tf.constant(test_labels[at : at + 500]))) for at in range(0, 10000, 500))
        if rank == 0:
            print(json.dumps(dict(epoch=epoch + 1, accuracy=hits / 10000)), flush=True)


def main():
    folder, workers, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    return run_workers(run_worker, workers, folder, epochs, seed)


if __name__ == "__main__":
    sys.exit(main())
