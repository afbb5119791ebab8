"""TensorFlow's side of bench/feature_columns: feature_columns_peer.py write FILE, feature_columns_peer.py v1|v2 FILE BATCH COLUMN SECONDS.

The first form writes examples as records. The second parses them by tf.data and makes the input of a network by tf.feature_column: with a session and
input_layer as TensorFlow 1 does, or with a tf.function and DenseFeatures.
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
NUMBERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]


def write(file):
    random = np.random.default_rng(1)
    with tf.io.TFRecordWriter(file) as writer:
        for _ in range(20000):
            feature = {k: tf.train.Feature(float_list=tf.train.FloatList(value=[random.random()])) for k in NUMBERS}
            for k in CATEGORIES:
                value = b"%08x" % (int(40000 * random.random() ** 3) * 2654435761 % (1 << 32))
                feature[k] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def make_columns(kind):
    fc = tf.feature_column
    categories = [fc.categorical_column_with_hash_bucket(k, 1000) for k in CATEGORIES]
    if kind == "indicator":
        wrapped = [fc.indicator_column(c) for c in categories]
    else:
        wrapped = [fc.embedding_column(c, 8, initializer=tf.constant_initializer(0.5)) for c in categories]
    return [fc.numeric_column(k) for k in NUMBERS] + wrapped


def batches(file, batch, spec):
    data = tf.data.TFRecordDataset(file).repeat().batch(batch).map(lambda records: tf.io.parse_example(records, spec))
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return data.with_options(options)


def rate(step, batch, seconds):
    for _ in range(20):
        step()
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            step()
        steps += 5
    print(json.dumps({"examples_per_second": steps * batch / (time.perf_counter() - begin)}))


def main():
    if sys.argv[1] == "write":
        return write(sys.argv[2])
    form, file, batch, kind, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    columns = make_columns(kind)
    spec = tf.feature_column.make_parse_example_spec(columns)
    if form == "v1":
        with tf.Graph().as_default():
            features = tf1.data.make_one_shot_iterator(batches(file, batch, spec)).get_next()
            made = tf1.feature_column.input_layer(features, columns)
            config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            with tf1.Session(config=config) as session:
                session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
                return rate(session.make_callable(made), batch, seconds)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layer = tf.keras.layers.DenseFeatures(columns)
    iterator = iter(batches(file, batch, spec))
    step = tf.function(lambda: layer(next(iterator)))
    step()
    return rate(lambda: step().numpy(), batch, seconds)


if __name__ == "__main__":
    main()
