"""TensorFlow's Saver on a model: checkpoint_peer.py DIRECTORY MB REPEATS. One JSON line for each repeat."""
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow.compat.v1 as tf  # noqa: E402

VARIABLES = 64


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    directory, mb, repeats = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    tf.disable_eager_execution()
    floats = mb * (1 << 20) // VARIABLES // 4
    for i in range(VARIABLES):
        tf.get_variable(f"layer_{i:02d}/kernel", [floats], initializer=tf.random_uniform_initializer(), use_resource=True)
    saver = tf.train.Saver()
    prefix = str(directory / "tensorflow")

    def files():
        return [p for p in directory.iterdir() if p.name.startswith("tensorflow.")]

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def save():
            saver.save(session, prefix, write_meta_graph=False, write_state=False)
            for path in files():
                sync(path)
            sync(directory)

        def restore():
            saver.restore(session, prefix)

        for _ in range(repeats):
            for path in files():
                path.unlink()
            result = {"save": timed(save), "restore": timed(restore)}
            for path in files():
                drop(path)
            result["restore_cold"] = timed(restore)
            print(json.dumps(result), flush=True)
    for path in files():
        path.unlink()


if __name__ == "__main__":
    main()
