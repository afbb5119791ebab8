"""One process of torchrun's: the network of ../train_task.cc (784-100-10, batch 100, SGD) under DistributedDataParallel over gloo, and one step of it.
Prints a JSON line with the time at which the step had ended.
"""
import json
import time

import torch
import torch.distributed as dist
from torch import nn


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loss = nn.functional.cross_entropy(model(torch.rand(100, 784)), torch.randint(0, 10, (100,)))
    loss.backward()
    optimizer.step()
    loss.item()
    print(json.dumps(dict(first_step=time.time())), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
