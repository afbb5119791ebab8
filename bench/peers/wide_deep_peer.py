"""TensorFlow's side of bench/wide_deep: one task, as TF_CONFIG says, of the model of examples/wide_deep with tf.estimator."""
import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
NUMBERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]


def clicks(batch, values):
    """64 batches from memory, again and again."""
    def make():
        random, count = np.random.default_rng(1), 64 * batch
        features = {k: random.random((count, 1), np.float32) * 2 - 1 for k in NUMBERS}
        for k in CATEGORIES:
            ids = (values * random.random((count, 1)) ** 3).astype(np.uint64) * 2654435761 % (1 << 32)
            features[k] = np.array([b"%08x" % i for i in ids[:, 0]]).reshape(-1, 1)
        labels = random.integers(0, 2, (count, 1))
        return tf.data.Dataset.from_tensor_slices((features, labels)).batch(batch).cache().repeat().prefetch(4)
    return make


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--max_steps", type=int, default=2000)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--values", type=int, default=1000)
    parser.add_argument("--buckets", type=int, default=2000)
    parser.add_argument("--dimension", type=int, default=8)
    parser.add_argument("--log_step_count_steps", type=int, default=100)
    args = parser.parse_args()
    tf1.disable_eager_execution()
    tf1.logging.set_verbosity(tf1.logging.INFO)
    fc = tf.feature_column
    categories = [fc.categorical_column_with_hash_bucket(k, args.buckets) for k in CATEGORIES]
    wide = categories + [fc.crossed_column(["C1", "C2"], args.buckets),
                         fc.crossed_column([fc.bucketized_column(fc.numeric_column("I1"), [-0.5, 0, 0.5]), "C3"], args.buckets)]
    deep = [fc.numeric_column(k) for k in NUMBERS] + [fc.embedding_column(c, args.dimension) for c in categories]
    config = tf1.estimator.RunConfig(model_dir=args.model_dir, tf_random_seed=1, save_checkpoints_steps=1000000, save_summary_steps=None,
                                     log_step_count_steps=args.log_step_count_steps)
    estimator = tf1.estimator.DNNLinearCombinedClassifier(
        config=config, linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[64, 32],
        linear_optimizer=tf1.train.FtrlOptimizer(0.1), dnn_optimizer=tf1.train.AdagradOptimizer(0.05), loss_reduction=tf1.losses.Reduction.SUM_OVER_BATCH_SIZE)
    data = clicks(args.batch_size, args.values)
    tf1.estimator.train_and_evaluate(estimator, tf1.estimator.TrainSpec(data, max_steps=args.max_steps), tf1.estimator.EvalSpec(data, steps=1))


if __name__ == "__main__":
    main()
