"""TensorFlow's side of the case `embedding`: rows of a large table, gathered, changed and added back."""
import common

ROWS, COLUMNS, BATCH = 10_000_000, 64, 4096


def run(args, tf1, config):
    """In both forms of variables."""
    for form, resource in (("embedding_ref", False), ("embedding_resource", True)):
        with tf1.Graph().as_default(), tf1.Session(config=config) as session:
            table = tf1.get_variable("table", [ROWS, COLUMNS], initializer=tf1.zeros_initializer(), use_resource=resource)
            ids = tf1.random_uniform([BATCH], 0, ROWS, dtype=tf1.int64)
            rows = tf1.nn.embedding_lookup(table, ids)
            update = tf1.scatter_add(table, ids, tf1.identity(rows) * 0.01 + 1.0)
            session.run(table.initializer)
            call = session.make_callable(update.op)
            common.emit(args, form, "steps/s", common.rate(call, args.seconds))
