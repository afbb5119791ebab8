"""Shared by the peers' programs: the command line, the data, the timing and the format of the results.

Each program runs the requested cases and prints one JSON line for each:
{"side": "tensorflow", "case": "mlp_sgd", "setting": "2 threads", "threads": 2, "unit": "steps/s", "value": 1234.5}
"""
import argparse
import json
import os
import statistics
import sys
import time

# Do not use the machine's GPUs and proxies.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

MLP_SMALL = (784, 100, 10)
MLP_LARGE = (784, 1024, 1024, 10)
BATCH_SMALL = 100
BATCH_LARGE = 256
# Batches of images: [batch, height, width, channels].
MNIST = (64, 28, 28, 1)
CIFAR = (128, 32, 32, 3)


def parse(side, cases, settings=("",)):
    parser = argparse.ArgumentParser(description=f"Measures {side}; prints one JSON line for each case.")
    parser.add_argument("--cases", default=",".join(cases), help="comma-separated, of: " + " ".join(cases))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--setting", choices=settings, default=settings[0], help="how the peer is driven")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per case")
    parser.add_argument("--graph", help="file with the GraphDef of case import")
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    unknown = set(args.cases) - set(cases)
    if unknown:
        parser.error(f"{side} has no case {', '.join(sorted(unknown))}")
    if args.threads == 1:
        # Libraries size their pools by the cores they may use; one thread means one core.
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    args.side = side
    return args


def emit(args, case, unit, value, note="", **more):
    label = ", ".join(filter(None, (f"{args.threads} thread{'s' if args.threads > 1 else ''}", args.setting, note)))
    print(json.dumps(dict(side=args.side, case=case, setting=label, threads=args.threads, unit=unit,
                          value=float(f"{value:.6g}"), **more)), flush=True)


def median_seconds(call, seconds, warm=20, least=10):
    """The median time of one call, over about `seconds`."""
    for _ in range(warm):
        call()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rate(call, seconds, warm=50, chunk=10):
    """Calls per second over about `seconds`, after warming up for at least a fifth of that."""
    begin = time.perf_counter()
    n = 0
    while n < warm or time.perf_counter() - begin < seconds / 5:
        call()
        n += 1
        if time.perf_counter() - begin > 5 * seconds:
            break
    n = 0
    begin = time.perf_counter()
    while True:
        for _ in range(chunk):
            call()
        n += chunk
        took = time.perf_counter() - begin
        if took >= seconds:
            return n / took


def batch(sizes, rows):
    import numpy as np
    rng = np.random.RandomState(1)
    return rng.rand(rows, sizes[0]).astype(np.float32), rng.randint(0, sizes[-1], rows).astype(np.int32)


def initial_weights(sizes):
    import numpy as np
    rng = np.random.RandomState(2)
    return [((rng.randn(m, n) / m ** 0.5).astype(np.float32), np.zeros(n, np.float32))
            for m, n in zip(sizes, sizes[1:])]


def images(shape, classes=10):
    import numpy as np
    rng = np.random.RandomState(1)
    return rng.rand(*shape).astype(np.float32), rng.randint(0, classes, shape[0]).astype(np.int32)


def conv_weights(window, inputs, filters):
    import numpy as np
    stddev = (2 / (window * window * filters)) ** 0.5
    return (np.random.randn(window, window, inputs, filters) * stddev).astype(np.float32)


def dense_weights(inputs, units):
    import numpy as np
    return (np.random.randn(inputs, units) / inputs ** 0.5).astype(np.float32)


def cifar_files(folder, files=5, records=10000):
    """Files of CIFAR-10's binary format with random pixels."""
    import numpy as np
    rng, paths = np.random.RandomState(1), []
    for i in range(files):
        raw = rng.randint(0, 256, (records, 3073), dtype=np.uint8)
        raw[:, 0] %= 10
        paths.append(os.path.join(folder, f"data_batch_{i + 1}.bin"))
        raw.tofile(paths[-1])
    return paths


def rss_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
