"""Checkpoints between TensorFlow and Millrace, both ways."""

import os
import re
import subprocess

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1

# Three steps of momentum from 0.5 and from 1..6: see training_probe.
STEPS = 3


def expected(start):
    value, velocity = np.array(start, np.float32), 0
    for _ in range(STEPS):
        velocity = 0.5 * velocity + 2 * value
        value = value - 0.25 * velocity
    return value


W = expected([[1, 2, 3], [4, 5, 6]])
TABLE = expected(np.full((5, 2), 0.5))


def probe(*words, check=True):
    result = subprocess.run([os.environ["PROBE"], *words], capture_output=True, text=True, timeout=60)
    if check:
        assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(params=["one file", "sharded"])
def saved(request, tmp_path):
    """A directory with a checkpoint of ours, its table in three parts."""
    flags = ["--sharded"] if request.param == "sharded" else []
    probe("save", str(tmp_path), "--parts=3", "--steps=%d" % STEPS, *flags)
    return str(tmp_path)


def test_tensorflow_reads_ours(saved):
    state = tf.train.get_checkpoint_state(saved)
    assert state.model_checkpoint_path == os.path.join(saved, "model.ckpt-3")
    assert list(state.all_model_checkpoint_paths) == [state.model_checkpoint_path]
    assert len(state.all_model_checkpoint_timestamps) == 1
    assert tf.train.latest_checkpoint(saved) == state.model_checkpoint_path
    reader = tf.train.load_checkpoint(saved)
    shapes = reader.get_variable_to_shape_map()
    assert shapes["table"] == [5, 2] and shapes["table/Momentum"] == [5, 2] and shapes["dense/w"] == [2, 3]
    np.testing.assert_allclose(reader.get_tensor("dense/w"), W, rtol=1e-6)
    np.testing.assert_allclose(reader.get_tensor("table"), TABLE, rtol=1e-6)
    assert list(reader.get_tensor("words")) == [b"hello", b"world"]
    assert reader.get_tensor("global_step") == STEPS


def test_tensorflows_saver_restores_ours_whole_and_in_other_parts(saved):
    with tf.Graph().as_default():
        w = tf1.get_variable("dense/w", [2, 3])
        table = tf1.get_variable("table", [5, 2], partitioner=tf1.fixed_size_partitioner(2))
        step = tf1.train.get_or_create_global_step()
        saver = tf1.train.Saver()
        with tf1.Session() as session:
            saver.restore(session, tf.train.latest_checkpoint(saved))
            np.testing.assert_allclose(session.run(w), W, rtol=1e-6)
            np.testing.assert_allclose(session.run(tf.convert_to_tensor(table)), TABLE, rtol=1e-6)
            assert session.run(step) == STEPS


def test_tensorflow_imports_the_graph_and_trains_on(saved):
    with tf.Graph().as_default():
        saver = tf1.train.import_meta_graph(os.path.join(saved, "model.ckpt-3.meta"))
        names = [v.op.name for v in tf1.global_variables()]
        assert "table/part_0" in names and "dense/w" in names and "table/part_2/Momentum" in names
        assert [v.op.name for v in tf1.trainable_variables()] == ["dense/w", "table/part_0", "table/part_1", "table/part_2"]
        step = tf1.train.get_global_step()
        with tf1.Session() as session:
            saver.restore(session, os.path.join(saved, "model.ckpt-3"))
            np.testing.assert_allclose(session.run("dense/w/Read/ReadVariableOp:0"), W, rtol=1e-6)
            train = [op for op in tf1.get_default_graph().get_operations() if op.name.startswith("train") and op.type == "AssignAddVariableOp"]
            session.run(train[0])
            assert session.run(step) == STEPS + 1
            # And what it saves is ours again.
            saver.save(session, os.path.join(saved, "model.ckpt"), global_step=4)
    lines = probe("restore", saved, "--parts=4").stdout.split("\n")
    assert "step 4" in lines


def test_ours_restores_tensorflows(tmp_path):
    rng = np.random.RandomState(1)
    w, table, slot = rng.rand(2, 3).astype("f"), rng.rand(5, 2).astype("f"), rng.rand(5, 2).astype("f")
    with tf.Graph().as_default():
        with tf1.variable_scope("dense"):
            tf1.get_variable("w", initializer=w)
            tf1.get_variable("w/Momentum", initializer=w)
        tf1.get_variable("table", [5, 2], partitioner=tf1.fixed_size_partitioner(4), initializer=lambda shape, dtype, partition_info: tf.constant(
            table[partition_info.var_offset[0]:partition_info.var_offset[0] + shape[0]]))
        tf1.get_variable("table/Momentum", initializer=slot)
        tf1.get_variable("words", initializer=np.array([b"from", b"tf"]))
        tf1.train.get_or_create_global_step()
        saver = tf1.train.Saver(sharded=True)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=9)
    for parts in ("1", "2", "5"):
        lines = probe("restore", str(tmp_path), "--parts=" + parts).stdout.strip().split("\n")
        values = {line.split()[0]: line.split()[1:] for line in lines}
        np.testing.assert_allclose(np.array(values["w"], "f").reshape(2, 3), w, rtol=1e-5)
        np.testing.assert_allclose(np.array(values["table"], "f").reshape(5, 2), table, rtol=1e-5)
        assert values["words"] == ["from", "tf"] and values["step"] == ["0"]


def test_what_is_missing_is_named(tmp_path):
    result = probe("restore", str(tmp_path), check=False)
    assert result.returncode == 1 and "has no checkpoint" in result.stderr
    with tf.Graph().as_default():
        tf1.get_variable("other", [1])
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            tf1.train.Saver().save(session, str(tmp_path / "m"))
    result = probe("restore", str(tmp_path), check=False)
    assert result.returncode == 1 and "lacks variable dense/w" in result.stderr


def millrace(*words):
    return subprocess.run([os.environ["MILLRACE"], *words], capture_output=True, text=True, timeout=60)


def test_the_command_lists_and_prints(saved):
    result = millrace("checkpoint", saved)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(os.path.join(saved, "model.ckpt-3") + ": 6 tensors")
    assert re.search(r"\n  table  +float\[5,2\]  in 3 slices\n", result.stdout)
    assert millrace("checkpoint", saved + "/model.ckpt-3", "--tensor", "global_step").stdout == "global_step  int64[]\n3\n"
    assert '"hello" "world"' in millrace("checkpoint", saved, "--tensor", "words").stdout
    rows = millrace("checkpoint", saved, "--tensor", "dense/w", "--max_values", "4").stdout.split("\n")
    assert len(rows[1].split()) == 3 and "2 more" in rows[3]


def test_the_command_says_what_is_wrong(tmp_path):
    for words, message in ((["checkpoint"], "checkpoint is required"), (["checkpoint", str(tmp_path)], "has no checkpoint"),
                           (["checkpoint", str(tmp_path / "x")], "there is no checkpoint")):
        result = millrace(*words)
        assert result.returncode != 0 and message in result.stderr, result.stderr
    assert "--tensor" in millrace("checkpoint", "--help").stdout
