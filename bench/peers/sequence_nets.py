"""The lstm and transformer cases of TensorFlow and PyTorch: characters, embedding, the network, logits, Adam.

The sizes are those of bench/sequence_nets.h.
"""
import numpy as np

import common

CHARACTERS = 64
UNITS, TIME, BATCH = 128, 35, 32
LAYERS, WIDTH, HEADS, T_TIME, T_BATCH = 4, 256, 4, 64, 16


def characters(shape):
    rng = np.random.RandomState(1)
    return [rng.randint(0, CHARACTERS, shape).astype(np.int32) for _ in range(2)]


def tensorflow_step(tf, tf1, config, shape, width, logits_of):
    inputs, targets = (tf1.placeholder(tf.int32, shape) for _ in range(2))
    table = tf1.get_variable("embedding", [CHARACTERS, width], initializer=tf1.random_normal_initializer(stddev=0.02))
    logits = logits_of(tf1.nn.embedding_lookup(table, inputs))
    loss = tf.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits))
    train = tf1.train.AdamOptimizer(0.001).minimize(loss)
    with tf1.control_dependencies([train]):
        loss = tf.identity(loss)
    session = tf1.Session(config=config)
    session.run(tf1.global_variables_initializer())
    call = session.make_callable(loss, [inputs, targets])
    feeds = characters(shape)
    return lambda: call(*feeds)


def tensorflow_dense(tf, tf1, x, units, name):
    w = tf1.get_variable(f"{name}/kernel", [x.shape[-1], units])
    b = tf1.get_variable(f"{name}/bias", [units], initializer=tf1.zeros_initializer())
    rows = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), w), b)
    return tf.reshape(rows, [*x.shape[:-1], units])


def tensorflow_lstm(tf, tf1, block):
    """As one BlockLSTM, or as a loop over the steps."""
    def logits(x):
        kernel = tf1.get_variable("kernel", [2 * UNITS, 4 * UNITS])
        bias = tf1.get_variable("bias", [4 * UNITS], initializer=tf1.zeros_initializer())
        zeros = tf.zeros([BATCH, UNITS])
        if block:
            none = tf.zeros([UNITS])
            h = tf.raw_ops.BlockLSTM(seq_len_max=TIME, x=x, cs_prev=zeros, h_prev=zeros, w=kernel, wci=none, wcf=none,
                                     wco=none, b=bias, forget_bias=1.0, cell_clip=-1.0).h
            h = tf.ensure_shape(h, [TIME, BATCH, UNITS])
        else:
            def step(t, c, h, out):
                i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([xs.read(t), h], 1), kernel), bias), 4, 1)
                c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
                h = tf.sigmoid(o) * tf.tanh(c)
                return t + 1, c, h, out.write(t, h)
            xs = tf1.TensorArray(tf.float32, TIME).unstack(x)
            out = tf1.while_loop(lambda t, *_: t < TIME, step, (0, zeros, zeros, tf1.TensorArray(tf.float32, TIME)),
                                 parallel_iterations=32)[3]
            h = tf.ensure_shape(out.stack(), [TIME, BATCH, UNITS])
        return tensorflow_dense(tf, tf1, h, CHARACTERS, "logits")
    return logits


def tensorflow_transformer(tf, tf1):
    def norm(x, name):
        gamma = tf1.get_variable(f"{name}/gamma", [WIDTH], initializer=tf1.ones_initializer())
        beta = tf1.get_variable(f"{name}/beta", [WIDTH], initializer=tf1.zeros_initializer())
        mean, variance = tf1.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-5)

    def heads(x):
        return tf.transpose(tf.reshape(x, [T_BATCH, T_TIME, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    def logits(x):
        x = x + tf1.get_variable("positions", [T_TIME, WIDTH])
        mask = tf.constant(np.tril(np.ones((T_TIME, T_TIME), bool)))
        for i in range(LAYERS):
            h = norm(x, f"norm{i}a")
            q, k, v = (heads(tensorflow_dense(tf, tf1, h, WIDTH, f"{n}{i}")) for n in "qkv")
            scores = tf.matmul(q * (WIDTH // HEADS) ** -0.5, k, transpose_b=True)
            mixed = tf.matmul(tf.nn.softmax(tf.where(mask, scores, -1e9)), v)
            mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [T_BATCH, T_TIME, WIDTH])
            x = x + tensorflow_dense(tf, tf1, mixed, WIDTH, f"o{i}")
            h = tensorflow_dense(tf, tf1, norm(x, f"norm{i}b"), 4 * WIDTH, f"up{i}")
            x = x + tensorflow_dense(tf, tf1, tf.nn.gelu(h, approximate=True), WIDTH, f"down{i}")
        return tensorflow_dense(tf, tf1, norm(x, "norm"), CHARACTERS, "logits")
    return logits


def tensorflow(args, case, tf, tf1, config):
    forms = (("block", "loop") if case == "lstm" else ("",))
    for form in forms:
        with tf1.Graph().as_default():
            if case == "lstm":
                step = tensorflow_step(tf, tf1, config, (TIME, BATCH), UNITS, tensorflow_lstm(tf, tf1, form == "block"))
            else:
                step = tensorflow_step(tf, tf1, config, (T_BATCH, T_TIME), WIDTH, tensorflow_transformer(tf, tf1))
            common.emit(args, case, "steps/s", common.rate(step, args.seconds), note=form)


def torch(args, case):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.lstm = nn.Embedding(CHARACTERS, UNITS), nn.LSTM(UNITS, UNITS)
            self.logits = nn.Linear(UNITS, CHARACTERS)

        def forward(self, x):
            return self.logits(self.lstm(self.table(x))[0])

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.positions = nn.Embedding(CHARACTERS, WIDTH), nn.Parameter(torch.zeros(T_TIME, WIDTH))
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

        def forward(self, x):
            return self.logits(self.norm(self.blocks(self.table(x) + self.positions)))

    model, shape = (Lstm(), (TIME, BATCH)) if case == "lstm" else (Transformer(), (T_BATCH, T_TIME))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)

    def loss_of(x, y):
        return F.cross_entropy(model(x).view(-1, CHARACTERS), y.view(-1))

    if args.setting == "compiled":
        loss_of = torch.compile(loss_of)
    feeds = characters(shape)

    def step():
        x, y = (torch.from_numpy(f).long() for f in feeds)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    common.emit(args, case, "steps/s", common.rate(step, args.seconds))
