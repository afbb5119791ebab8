"""TensorFlow's server behind the flags of `millrace serve`, with a number of threads: what tests/conformance/stock_server.py starts,
and the same with one thread in each pool, which is often faster on few cores."""
import argparse
import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "conformance"))
import stock_server


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster_spec", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="in each pool; 0: TensorFlow decides")
    args = parser.parse_args()
    threading.Thread(target=stock_server._follow_parent, args=(os.getppid(),), daemon=True).start()
    import tensorflow as tf
    tf1 = tf.compat.v1
    config = tf1.ConfigProto(intra_op_parallelism_threads=args.threads, inter_op_parallelism_threads=args.threads)
    server = tf1.train.Server(tf.train.ClusterSpec(stock_server.parse_cluster(args.cluster_spec)), job_name=args.job_name,
                              task_index=args.task_index, config=config)
    server.join()


if __name__ == "__main__":
    main()
