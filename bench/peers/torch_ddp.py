"""ResNet-20 under PyTorch's DistributedDataParallel over gloo, one thread a process; prints a JSON line.

    python torch_ddp.py RANKS BATCH_OF_ALL STEPS

BEGUN in the environment is the time at which the program was started, BIND=1 binds each process to a core.
"""
import json
import os
import socket
import sys
import time

import common

LOADED = time.time()


def run_rank(rank, ranks, port, batch, steps):
    if os.environ.get("BIND") == "1":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[rank * len(cores) // ranks : (rank + 1) * len(cores) // ranks] or cores)
    import torch
    import torch.distributed as dist
    from torch import nn

    from torch_conv_nets import ResNet20

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(ResNet20().to(memory_format=torch.channels_last), gradient_as_bucket_view=True, broadcast_buffers=False)
    x = torch.randn(batch // ranks, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch // ranks,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    first = time.time() - float(os.environ.get("BEGUN", LOADED))
    for _ in range(4):
        step()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    if rank == 0:
        value = steps * batch / (time.perf_counter() - begun)
        print(json.dumps(dict(side="torch DDP", value=value, first_step_s=first, peak_mb=common.peak_mb())), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch.multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    count, whole, number = (int(word) for word in sys.argv[1:4])
    torch.multiprocessing.spawn(run_rank, (count, chosen, whole, number), nprocs=count)
