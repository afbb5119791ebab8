"""TensorFlow's side of bench/saved_model: saved_model_peer.py write v1|v2 DIRECTORY MB, saved_model_peer.py v1|v2 DIRECTORY.

The first form writes a model of 64 layers, the second loads one with the loader of TensorFlow 1 or 2 and prints a JSON line.
"""
import json
import os
import resource
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
LAYERS = 64


def initial(width, seed):
    return np.random.default_rng(seed).standard_normal((width, width), np.float32) / np.sqrt(width).astype(np.float32)


def write(form, directory, mb):
    width = int((mb * (1 << 20) // LAYERS // 4) ** 0.5)
    if form == "v1":
        with tf.Graph().as_default(), tf1.Session() as session:
            x = y = tf1.placeholder(tf.float32, [None, width], name="x")
            for i in range(LAYERS):
                w = tf1.get_variable(f"layer_{i:02d}/kernel", [width, width], initializer=tf1.zeros_initializer(), use_resource=True)
                w.initializer.run()
                w.load(initial(width, i), session)
                y = tf.matmul(y, w)
            tf1.saved_model.simple_save(session, directory, {"x": x}, {"y": y})
        return
    module = tf.Module()
    module.layers = [tf.Variable(initial(width, i), name=f"layer_{i:02d}") for i in range(LAYERS)]

    @tf.function(input_signature=[tf.TensorSpec([None, width], tf.float32, name="x")])
    def predict(x):
        for w in module.layers:
            x = tf.matmul(x, w)
        return {"y": x}

    tf.saved_model.save(module, directory, {"serving_default": predict})


def load(loader, directory):
    begin = time.perf_counter()
    if loader == "v2":
        predict = tf.saved_model.load(directory).signatures["serving_default"]
        loaded = time.perf_counter()
        [spec] = predict.structured_input_signature[1].values()
        y = predict(x=tf.ones([1, spec.shape[1]]))["y"].numpy()
    else:
        with tf.Graph().as_default(), tf1.Session() as session:
            meta = tf1.saved_model.loader.load(session, ["serve"], directory)
            loaded = time.perf_counter()
            signature = meta.signature_def["serving_default"]
            width = signature.inputs["x"].tensor_shape.dim[1].size
            y = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: np.ones([1, width], np.float32)})
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"load": loaded - begin, "predict": end - loaded, "peak_mb": peak, "y": float(y[0, 0])}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        load(sys.argv[1], sys.argv[2])
