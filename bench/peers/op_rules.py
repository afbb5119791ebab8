"""Which ops bench/op_table measures, and with what arguments: rules over TensorFlow's op definitions."""
import numpy as np

# Arguments that are not data, by what they are called; functions of the data's shape.
BY_NAME = {
    **dict.fromkeys(("axis", "dimension", "dim", "concat_dim", "split_dim", "reduction_indices", "seq_dim"), lambda s: 0),
    **dict.fromkeys(("shape", "dims", "size", "output_shape", "dense_shape"), lambda s: np.array(s)),
    "perm": lambda s: np.arange(len(s))[::-1].copy(),
    "multiples": lambda s: np.ones(len(s), np.int64),
    "paddings": lambda s: np.ones((len(s), 2), np.int64),
    "begin": lambda s: np.zeros(len(s), np.int64),
    "end": lambda s: np.array(s),
    "strides": lambda s: np.ones(len(s), np.int64),
    "indices": lambda s: np.arange(s[0]) % max(1, s[0] - 1),
    "segment_ids": lambda s: np.arange(s[0]) // 4,
    "num_segments": lambda s: s[0],
    "k": lambda s: min(5, s[-1]),
    "n": lambda s: min(5, s[-1] - 1),
    "depth": lambda s: 10,
    "shift": lambda s: 3,
    "num": lambda s: 1000,
    "start": lambda s: 0, "limit": lambda s: 1000, "delta": lambda s: 1, "stop": lambda s: 1,
    "seed": lambda s: np.array([1, 2]),
    "diagonal_k": lambda s: 0,
    "num_lower": lambda s: 1, "num_upper": lambda s: 1,
    "min": lambda s: 0, "max": lambda s: 6, "inputs_min": lambda s: -6, "inputs_max": lambda s: 6,
    "block_shape": lambda s: np.array([1]), "crops": lambda s: np.zeros((1, 2), np.int64),
    "size_splits": lambda s: np.array([s[0] - 1, 1]),
    "sorted_inputs": None, "value_range": lambda s: np.array([-2.0, 2.0]), "nbins": lambda s: 10,
    "labels": lambda s: np.arange(s[0]) % s[-1] if len(s) > 1 else np.zeros(s),
    "minval": lambda s: 0, "maxval": lambda s: 100,
}
ATTRS = {"num_split": 2, "num": 10, "depth_radius": 2, "block_size": 2, "num_partitions": 4, "boundaries": [-1.0, 0.0, 1.0],
         "ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME", "ksizes": [1, 2, 2, 1], "rates": [1, 1, 1, 1],
         "mode": "REFLECT", "DstT": "float", "out_type": None, "equation": "ij,ij->ij", "dtype": "float", "type": None,
         "k": 5, "shape": None, "message": "bad", "pooling_ratio": [1.0, 1.5, 1.5, 1.0]}
SHAPES = ((1000,), (10, 100), (32, 32), (1, 10, 10, 10), (10, 10, 10), (1, 5, 5, 5, 8))
# State, files, other processes, or time: not what this measures.
LEFT_OUT = ("Queue", "Dataset", "Iterator", "Reader", "File", "Table", "Variable", "Stack", "TensorArray", "Barrier", "Summary",
            "Save", "Restore", "Checkpoint", "Collective", "Send", "Recv", "Tpu", "TPU", "Xla", "XLA", "Debug", "Boosted", "Cudnn",
            "NcclAll", "Print", "Timestamp", "PyFunc", "Quantize", "Quantized", "Encode", "Decode", "Mutex", "Staging", "Stage",
            "Accumulator", "Generator", "Experimental", "Risc", "Rpc", "Session", "Placeholder", "Fail", "Abort", "Delete", "UniformQ",
            "Host", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "Identity", "NoOp", "Const", "Case",
            "Assert", "ImmutableConst", "Unstage", "Lookup", "Batch_", "Eig", "Svd", "Qr", "SelfAdjoint", "Matrix_")


def is_wanted(op_def):
    if any(word in op_def.name for word in LEFT_OUT) or not op_def.output_arg or not op_def.input_arg:
        return False
    if op_def.is_stateful and "Random" not in op_def.name:
        return False
    return not any(a.is_ref or a.type in (20, 21) or a.type_list_attr for a in [*op_def.input_arg, *op_def.output_arg])


def type_attrs(op_def):
    """A type for each type attr: float where it is allowed."""
    types = {}
    for attr in op_def.attr:
        if attr.type != "type":
            continue
        allowed = list(attr.allowed_values.list.type)
        index = attr.name.lower() in ("tindices", "tidx", "index", "tshape", "tpaddings", "tmultiples", "tperm", "tdim", "taxis",
                                      "tnumsegments", "tsegmentids", "tlabels", "index_type", "out_idx", "s", "tlen", "tblock_shape",
                                      "tcrops", "tseed", "tsplits", "toutidx")
        wish = (9, 3) if attr.name == "Tlabels" else (3, 9) if index else (1, 3, 9, 10, 7)
        types[attr.name] = next((t for t in wish if not allowed or t in allowed), allowed[0] if allowed else 1)
    return types


def arguments(tf1, op_def, shape, types, data):
    """Arguments of tf.raw_ops.X, the data already given; None when there is no rule for one."""
    args, first = {}, None
    for arg in op_def.input_arg:
        number = arg.type or types.get(arg.type_attr)
        dtype = tf1.as_dtype(number)
        rule = BY_NAME.get(arg.name)
        is_index = dtype in (tf1.int32, tf1.int64) and arg.type_attr not in ("T", "dtype")
        if rule is not None and (is_index or arg.name in ("min", "max", "shift", "minval", "maxval", "start", "limit", "delta",
                                                          "stop", "value_range", "k", "n", "nbins")):
            # These append the shape of their data to the one they are given.
            appends = arg.name == "shape" and op_def.name in ("RandomGamma", "RandomPoisson", "RandomPoissonV2")
            value = tf1.constant(np.asarray([1] if appends else rule(shape)), dtype)
        elif dtype == tf1.string or dtype == tf1.variant or dtype == tf1.resource:
            return None, None
        else:
            value = data(dtype, shape)
            if first is None:
                first = arg.name
        args[arg.name] = [value, value] if arg.number_attr else value
    for attr in op_def.attr:
        if attr.name in args or attr.type == "type" or attr.HasField("default_value"):
            continue
        if any(a.number_attr == attr.name for a in op_def.input_arg):
            continue
        if attr.name not in ATTRS or ATTRS[attr.name] is None:
            return None, None
        args[attr.name] = ATTRS[attr.name]
    inferred = {a.type_attr for a in op_def.input_arg if a.type_attr}
    for attr in op_def.attr:
        if attr.type == "type" and attr.name not in inferred and not attr.HasField("default_value"):
            args[attr.name] = tf1.as_dtype(types[attr.name])
    return args, first


def build(tf1, op_def, shape, copies):
    """A graph with nodes `init` and `all`; raises when TensorFlow does not take the arguments."""
    import tensorflow as tf
    raw = getattr(tf.raw_ops, op_def.name)
    types = type_attrs(op_def)
    with tf1.Graph().as_default() as graph:
        inits, made = [], {}

        def data(dtype, shape):
            key = (dtype.name, tuple(shape))
            if key not in made:
                count = int(np.prod(shape))
                if dtype == tf1.bool:
                    values = np.arange(count) % 3 == 0
                elif dtype.is_integer:
                    values = np.arange(count) % 7 + 1
                else:
                    values = np.linspace(0.1, 0.9, count)
                v = tf1.get_variable(f"v{len(made)}", initializer=values.reshape(shape).astype(dtype.as_numpy_dtype),
                                     use_resource=True)
                inits.append(v.initializer)
                made[key] = v.read_value()
            return made[key]

        args, first = arguments(tf1, op_def, shape, types, data)
        if args is None or first is None:
            return None
        out = raw(**args)
        head = out[0] if isinstance(out, (list, tuple)) else out
        value = args[first][0] if isinstance(args[first], list) else args[first]
        chains = (isinstance(head, tf1.Tensor) and head.dtype == value.dtype and head.shape.as_list() == value.shape.as_list())
        ends = []
        for _ in range(copies - 1):
            ends.append(head.op)
            if chains:
                args[first] = [head, *args[first][1:]] if isinstance(args[first], list) else head
            out = raw(**args)
            head = out[0] if isinstance(out, (list, tuple)) else out
        ends.append(head.op)
        tf1.group(*inits, name="init")
        tf1.group(*(ends[-1:] if chains else ends), name="all")
        return graph, chains


def first_that_runs(tf1, op_def, copies):
    tf1.disable_v2_behavior()
    for shape in SHAPES:
        try:
            built = build(tf1, op_def, shape, copies)
            if built is None:
                return None
            graph, chains = built
            with tf1.Session(graph=graph) as session:
                session.run(graph.get_operation_by_name("init"))
                session.run(graph.get_operation_by_name("all"))
        except Exception:
            continue
        return dict(graph=graph.as_graph_def().SerializeToString(), kind="chain" if chains else "side by side")
    return None
