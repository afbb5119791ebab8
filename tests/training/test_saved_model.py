"""SavedModels between TensorFlow and Millrace, both ways."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1

X = np.array([[1, 2], [-3, 0.5], [0, 0]], np.float32)
WORDS = ["red", "blue", "no"]


def run(*command, check=True):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if check:
        assert result.returncode == 0, result.stderr
    return result


def millrace(*words, check=True):
    return run(os.environ["MILLRACE"], "saved_model", *words, check=check)


def predict(directory, out, signature="serving_default", tags="serve", **inputs):
    """What ours gives: name -> array."""
    flags = ["--outdir=%s" % out, "--signature_def=%s" % signature, "--tag_set=%s" % tags, "--max_values=0"]
    for name, value in inputs.items():
        path = os.path.join(out, "input_%s.npy" % name)
        if isinstance(value, np.ndarray):
            np.save(path, value)
        flags += ["--inputs", "%s=%s" % (name, path if isinstance(value, np.ndarray) else json.dumps(value))]
    millrace(str(directory), *flags)
    names = [name for name in os.listdir(out) if not name.startswith("input_")]
    return {name[:-4]: np.load(os.path.join(out, name)) for name in names}


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("red\ngreen\nblue\n")
    return str(path)


@pytest.fixture
def exported(tmp_path, words):
    """A model of ours: x w + b after three steps, a table from a file. See training_probe."""
    directory = str(tmp_path / "models" / "17")
    printed = run(os.environ["PROBE"], "export", directory, "--words=%s" % words, "--steps=3").stdout
    lines = dict(line.split(" ", 1) for line in printed.splitlines())
    # TensorFlow must find the copy in the model.
    os.remove(words)
    return directory, {name: np.array(lines[name].split(), np.float32) for name in ("w", "b")}


def expected(values, x=X):
    return x @ values["w"].reshape(2, 2) + values["b"]


def test_tensorflow_2_loads_ours(exported):
    directory, values = exported
    model = tf.saved_model.load(directory, tags=["serve"])
    assert sorted(model.signatures) == ["look_up", "serving_default"]
    outputs = model.signatures["serving_default"](x=tf.constant(X))
    np.testing.assert_allclose(outputs["y"], expected(values), rtol=1e-6)
    ids = model.signatures["look_up"](words=tf.constant(WORDS))["ids"]
    assert list(ids.numpy()) == [0, 2, -1]
    # The variables are there to be trained.
    assert {"w:0", "b:0", "global_step:0"} <= {v.name for v in model.variables}


def test_tensorflow_1_loads_ours_and_trains_on(exported):
    directory, values = exported
    with tf.Graph().as_default(), tf1.Session() as session:
        meta = tf1.saved_model.loader.load(session, ["serve"], directory)
        np.testing.assert_allclose(session.run("y:0", {"x:0": X}), expected(values), rtol=1e-6)
        assert list(session.run("ids:0", {"words:0": WORDS})) == [0, 2, -1]
        assert [v.op.name for v in tf1.trainable_variables()] == ["w", "b"]
        assert {op.name for op in meta.meta_info_def.stripped_op_list.op} >= {"MatMul", "VarHandleOp"}
        [train] = tf1.get_collection("train_op")
        before = session.run("loss:0", {"x:0": X})
        session.run(train, {"x:0": X})
        assert session.run("loss:0", {"x:0": X}) < before
        assert session.run(tf1.train.get_global_step()) == 4
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.saved_model.loader.load(session, ["train"], directory)
        np.testing.assert_allclose(session.run(tf1.global_variables()[0]).ravel(), values["w"], rtol=1e-6)


def test_saved_model_cli_runs_ours(exported, tmp_path):
    directory, values = exported
    cli = os.path.join(os.path.dirname(sys.executable), "saved_model_cli")
    np.save(tmp_path / "x.npy", X)
    run(cli, "run", "--dir", directory, "--tag_set", "serve", "--signature_def", "serving_default",
        "--inputs", "x=%s" % (tmp_path / "x.npy"), "--outdir", str(tmp_path))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(values), rtol=1e-6)


def test_tensorflow_loads_the_exports_of_an_estimator(tmp_path):
    printed = run(os.environ["PROBE"], "export_estimator", str(tmp_path), "--steps=7").stdout
    lines = dict(line.split(" ", 1) for line in printed.splitlines())
    w, b = (np.array(lines[name].split(), np.float32) for name in ("w", "b"))
    assert abs(w).max() > 0.1
    want = X @ w.reshape(2, 1) + b
    raw, examples = (str(tmp_path / "run" / "export" / name) for name in ("raw", "examples"))
    assert len(os.listdir(raw)) == 4 and len(os.listdir(examples)) == 1  # steps 2, 4, 6, 7 and the last
    assert all(name.isdigit() for name in os.listdir(raw))

    model = tf.saved_model.load(os.path.join(raw, max(os.listdir(raw))))
    assert list(model.signatures) == ["serving_default"]  # the others need Examples
    np.testing.assert_allclose(model.signatures["serving_default"](x=tf.constant(X))["y"], want, rtol=1e-6)

    directory = os.path.join(examples, os.listdir(examples)[0])
    features = [tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=row))}) for row in X]
    serialized = [tf.train.Example(features=f).SerializeToString() for f in features]
    with tf.Graph().as_default(), tf1.Session() as session:
        meta = tf1.saved_model.loader.load(session, ["serve"], directory)
        methods = {key: signature.method_name.split("/")[-1] for key, signature in meta.signature_def.items()}
        assert methods == {"serving_default": "predict", "regress": "regress", "classify": "classify"}
        for key, name, output in [("serving_default", "examples", "y"), ("regress", "inputs", "outputs"),
                                  ("classify", "inputs", "scores")]:
            signature = meta.signature_def[key]
            got = session.run(signature.outputs[output].name, {signature.inputs[name].name: serialized})
            np.testing.assert_allclose(got, 1 / (1 + np.exp(-want)) if key == "classify" else want, rtol=1e-5)


class Module(tf.Module):
    def __init__(self, words):
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False)
        text = tf.lookup.TextFileInitializer(words, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
                                             tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        self.table = tf.lookup.StaticHashTable(text, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def predict(self, x):
        y = tf.matmul(x, self.w)
        for _ in tf.range(3):  # a loop and a branch in the graph
            y = tf.cond(tf.reduce_sum(y) > 0, lambda: y - 1.0, lambda: y * 2.0)
        return {"y": y, "calls": self.calls.assign_add(1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def look_up(self, words):
        return {"ids": self.table.lookup(words)}


def test_ours_loads_a_module_of_tensorflow_2(tmp_path, words):
    module = Module(words)
    tf.saved_model.save(module, str(tmp_path / "m"), {"serving_default": module.predict, "look_up": module.look_up})
    os.remove(words)
    out = tmp_path / "out"
    out.mkdir()
    outputs = predict(tmp_path / "m", str(out), x=X)
    np.testing.assert_allclose(outputs["y"], module.predict(tf.constant(X))["y"], rtol=1e-6)
    assert outputs["calls"] == 1
    out = tmp_path / "ids"
    out.mkdir()
    assert list(predict(tmp_path / "m", str(out), "look_up", words=WORDS)["ids"]) == [0, 2, -1]


@pytest.mark.parametrize("kind", ["convolutions", "lstm"])
def test_ours_loads_keras_models(tmp_path, kind):
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    if kind == "lstm":
        model = tf.keras.Sequential([layers.Input((7, 3)), layers.Bidirectional(layers.LSTM(4)), layers.Dense(2)])
        x = np.random.rand(5, 7, 3).astype(np.float32)
    else:
        model = tf.keras.Sequential([
            layers.Input((12, 12, 1)), layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(),
            layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        x = np.random.rand(5, 12, 12, 1).astype(np.float32)
        model.fit(x, np.arange(5), verbose=0)
    want = model(x, training=False).numpy()
    for i, save in enumerate([model.export, lambda path: tf.saved_model.save(model, path)]):
        directory, out = tmp_path / ("model%d" % i), tmp_path / ("out%d" % i)
        out.mkdir()
        save(str(directory))
        loaded = tf.saved_model.load(str(directory)).signatures["serving_default"]
        [name] = loaded.structured_input_signature[1]
        np.testing.assert_allclose(predict(directory, str(out), **{name: x})["output_0"], want, rtol=1e-4, atol=1e-6)
    # Ours trains it on as TensorFlow does.
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=False) ** 2)
        for variable, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            variable.assign_sub(0.1 * gradient)
    trained = model(x, training=False).numpy()
    assert abs(trained - want).max() > 1e-4
    for i in range(2):
        printed = run(os.environ["PROBE"], "fine_tune", str(tmp_path / ("model%d" % i)), "--steps=2",
                      "--x=%s" % " ".join(map(repr, x.ravel().tolist()))).stdout
        np.testing.assert_allclose(np.array(printed.split()[1:], np.float32), trained.ravel(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("resource", [False, True], ids=["references", "resources"])
def test_ours_loads_tensorflow_1_and_trains_on(tmp_path, words, resource):
    directory = str(tmp_path / "m")
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 2], name="x")
        with tf1.variable_scope("net", use_resource=resource):
            w = tf1.get_variable("w", initializer=[[1.0, 2.0], [3.0, 4.0]])
        y = tf.matmul(x, w, name="y")
        loss = tf.reduce_mean(y**2, name="loss")
        step = tf1.train.get_or_create_global_step()
        train = tf1.train.AdamOptimizer(0.1).minimize(loss, global_step=step, name="train")
        tf1.add_to_collection("train_op", train)
        path = tf.constant(words)
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, path)
        text = tf.lookup.TextFileInitializer(path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
                                             tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        given = tf1.placeholder(tf.string, [None], name="words")
        ids = tf.lookup.StaticHashTable(text, -1).lookup(given)
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        session.run(train, {x: X})
        builder = tf1.saved_model.Builder(directory)
        signatures = {"serving_default": tf1.saved_model.predict_signature_def({"x": x}, {"y": y}),
                      "look_up": tf1.saved_model.predict_signature_def({"words": given}, {"ids": ids})}
        builder.add_meta_graph_and_variables(
            session, ["serve", "cpu"], signatures, strip_default_attrs=resource,
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS), main_op=tf1.tables_initializer())
        builder.save()
        want = session.run(y, {x: X})
        for _ in range(2):
            session.run(train, {x: X})
        trained = session.run(w)
    os.remove(words)
    for name in "o", "ids":
        (tmp_path / name).mkdir()
    np.testing.assert_allclose(predict(directory, str(tmp_path / "o"), tags="cpu,serve", x=X)["y"], want, rtol=1e-6)
    got = predict(directory, str(tmp_path / "ids"), "look_up", tags="serve,cpu", words=WORDS)["ids"]
    assert list(got) == [0, 2, -1]
    # The same two steps by a program of ours that imports it, with the optimizer's slots.
    printed = run(os.environ["PROBE"], "train_on", directory, "--steps=2", "--x=%s" % " ".join(map(str, X.ravel()))).stdout
    lines = dict(line.split(" ", 1) for line in printed.splitlines())
    np.testing.assert_allclose(np.array(lines["net/w"].split(), np.float32), trained.ravel(), rtol=1e-5)
    assert lines["step"] == "3"


def test_the_command_shows_and_explains(exported):
    directory, values = exported
    shown = millrace(directory).stdout
    for part in ("tags: serve", "tags: train", "serving_default  tensorflow/serving/predict", "x  float[?,2]  x:0",
                 "words  string[?]  words:0", "ids:0"):
        assert part in shown
    y = millrace(directory, "--inputs", "x=[[1, 2]]").stdout.splitlines()
    assert y[0] == "y  float[1,2]"
    np.testing.assert_allclose([float(v) for v in y[1].split()], expected(values, X[:1])[0], rtol=1e-5)

    def error(*words):
        result = millrace(directory, *words, check=False)
        assert result.returncode == 1 and not result.stdout
        return result.stderr

    assert "no signature 'classify'; there are: look_up, serving_default" in error("--signature_def=classify")
    assert "no signature 'classify'; there are: look_up, serving_default" in error("--signature_def=classify", "--run")
    assert "input 'x' is missing: float[?,2]" in error("--run")
    assert "no input 'z'; there are: x" in error("--inputs", "z=1")
    assert "input 'x': \"a\" is not float" in error("--inputs", 'x=[["a", 1]]')
    assert "input 'x' has shape [2], but must have [?,2]" in error("--inputs", "x=[1, 2]")
    assert "lists of different lengths" in error("--inputs", "x=[[1, 2], [3]]")
    assert "no graph has exactly the tags {gpu}; there are {serve} and {train}" in error("--tag_set=gpu")
    assert "nowhere.npy" in error("--inputs", "x=nowhere.npy")
    os.truncate(os.path.join(directory, "saved_model.pb"), 1000)
    assert "saved_model.pb is not a SavedModel" in error()
