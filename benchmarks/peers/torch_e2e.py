#!/usr/bin/env python3
"""The main job in PyTorch: one epoch of Fashion-MNIST at a global batch of 128, then validated and evaluated.

--mode ddp     two processes with DistributedDataParallel over Gloo, 64 images each a step
       single  one process, both cores, 128 images a step
DataLoader over a TensorDataset in the process itself (no workers: the cores are busy), the images scaled once.
Twice over the test images, as the program of Tutti does: as validation of the epoch and as the evaluation at the end.
"""
import argparse
import json
import os
import resource
import socket
import time

STARTED = time.time()

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from fashion_mnist import load

CORES = 2
GLOBAL_BATCH = 128


def loader(part, rank, world, shuffle):
    images, labels = load(part)
    images = torch.from_numpy(images.copy()).permute(0, 3, 1, 2).to(torch.float32) / 255
    dataset = TensorDataset(images.clone(memory_format=torch.contiguous_format), torch.from_numpy(labels.astype("int64")))
    batch = GLOBAL_BATCH // world
    if world == 1:
        return DataLoader(dataset, batch, shuffle=shuffle)
    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset, world, rank, shuffle=shuffle))


def summed(values, world):
    values = torch.tensor(values, dtype=torch.float64)
    if world > 1:
        dist.all_reduce(values)
    return values.tolist()


def evaluate(model, batches, world):
    """(loss, accuracy) over the test images of all ranks."""
    loss, right, count = 0.0, 0, 0
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
            count += len(labels)
    model.train()
    loss, right, count = summed([loss, right, count], world)
    return loss / count, right / count


def process(rank, world, port, started):
    torch.set_num_threads(CORES // world)
    torch.manual_seed(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    training, test = loader("train", rank, world, True), loader("test", rank, world, False)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 13 * 13, 64),
                          nn.ReLU(), nn.Linear(64, 10))
    net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first_step = None
    total, right, count = 0.0, 0, 0  # what a progress bar shows: the running loss and accuracy
    for images, labels in training:
        optimizer.zero_grad()
        logits = net(images)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        right += (logits.detach().argmax(1) == labels).sum().item()
        count += len(labels)
        first_step = first_step or time.time() - started
    total, right, count = summed([total, right, count], world)
    evaluate(model, test, world)
    loss, accuracy = evaluate(model, test, world)
    peak = summed([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024], world)[0]
    if rank == 0:
        name = "torch_ddp_e2e" if world > 1 else "torch_single_e2e"
        print(json.dumps(dict(contender=name, workload="main", accuracy=accuracy, eval_loss=loss, train_loss=total / count,
                              first_step_s=round(first_step, 3), wall_s=round(time.time() - started, 3),
                              peak_rss_mb=round(peak, 1))), flush=True)
    if world > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="The main job in PyTorch")
    parser.add_argument("--mode", choices=("ddp", "single"), default="ddp")
    options = parser.parse_args()
    if options.mode == "single":
        process(0, 1, 0, STARTED)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.multiprocessing.spawn(process, (2, port, STARTED), nprocs=2)


if __name__ == "__main__":
    main()
