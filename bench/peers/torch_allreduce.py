"""All-reduce of float32 between processes of this host by PyTorch's gloo; prints a JSON line for each size.

    python torch_allreduce.py RANKS BYTES,BYTES,... REPEATS
"""
import json
import os
import socket
import statistics
import sys
import time


def calls(size):
    return 500 if size <= 4096 else 50 if size <= 1 << 20 else 7


def run_rank(rank, ranks, port, sizes, repeats):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for size in sizes:
        values = torch.zeros(size // 4)
        times = []
        for repeat in range(repeats + 1):
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(calls(size)):
                dist.all_reduce(values)
            took = torch.tensor([(time.perf_counter() - begun) / calls(size) * 1e3], dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if repeat > 0:
                times.append(took.item())
        if rank == 0:
            print(json.dumps(dict(side="gloo", ranks=ranks, bytes=size, ms=statistics.median(times), low=min(times), high=max(times))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch.multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    count = int(sys.argv[1])
    torch.multiprocessing.spawn(run_rank, (count, chosen, [int(s) for s in sys.argv[2].split(",")], int(sys.argv[3])), nprocs=count)
