"""TensorFlow as the programs of tasks and their clients use it: graphs and sessions, without the machine's proxies, quiet.

Import `tf` and `tf1` from here, before anything else imports TensorFlow.
"""
import argparse
import json
import os

for _name in list(os.environ):
    if _name.lower().endswith("_proxy"):
        del os.environ[_name]

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
tf1.enable_resource_variables()
tf1.logging.set_verbosity(tf1.logging.ERROR)


def task_parser(description):
    """The flags that every task has; `cluster_of` reads those of the cluster."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    return parser


def cluster_of(args):
    return {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}


def config_of(threads, filters=()):
    return tf1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads, device_filters=list(filters))


def unrewritten(config):
    """Without Grappler, which would take away what is measured: work on one side only, or the edge between two tasks."""
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def say(**what):
    print(json.dumps(what), flush=True)
