#!/usr/bin/env python3
"""The workloads in PyTorch.

--mode ddp        two processes, DistributedDataParallel with Gloo, defaults
       ddp_tuned  the same with bucket views, a static graph, no buffer broadcast, the fused optimizer, denormals flushed
       single     no distribution: one process, both cores, the doubled batch; fused optimizer, denormals flushed
Every process gets cores / processes threads. In C3 `single` normalises over the doubled batch, so its loss differs by design.
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import workloads as w

CORES = 2


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleDict()
        self.norms = nn.ModuleDict()
        for c in w.resnet20():
            self.convolutions[c.name] = nn.Conv2d(c.inputs, c.outputs, c.kernel, c.stride, c.kernel // 2, bias=False)
            if c.normalised:
                self.norms[c.name] = nn.BatchNorm2d(c.outputs, w.BATCH_NORM_EPSILON, 1 - w.BATCH_NORM_MOMENTUM)
        self.dense = nn.Linear(64, w.CLASSES)

    def normalised(self, name, x):
        return self.norms[name](self.convolutions[name](x))

    def forward(self, x):
        x = F.relu(self.normalised("stem", x))
        for name in self.convolutions:
            if not name.endswith("conv1"):
                continue
            block = name.removesuffix("conv1")
            y = self.normalised(block + "conv2", F.relu(self.normalised(name, x)))
            shortcut = block + "shortcut"
            x = F.relu(y + (self.convolutions[shortcut](x) if shortcut in self.convolutions else x))
        return self.dense(x.mean(dim=(2, 3)))

    def named_layers(self):
        for name, conv in self.convolutions.items():
            yield name, conv
        yield "dense", self.dense


def mlp(hidden):
    model = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                          nn.Linear(hidden, w.CLASSES))
    return model, {"dense0": model[0], "dense1": model[2], "dense2": model[4]}


def cnn():
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, w.CLASSES))
    return model, {"conv0": model[0], "conv1": model[3], "dense0": model[7], "dense1": model[9]}


def build(name):
    """The model with the weights of workloads.weights, turned from Keras' layouts into PyTorch's."""
    if name == "C3":
        model = ResNet20()
        layers = dict(model.named_layers())
    else:
        model, layers = cnn() if name == "C5" else mlp(512 if name == "C1" else 2048)
    torch_name = {"kernel": "weight", "bias": "bias"}
    with torch.no_grad():
        for title, array in w.weights(name).items():
            layer, part = title.split("/")
            value = torch.from_numpy(array)
            if value.dim() == 4:
                value = value.permute(3, 2, 0, 1)
            elif value.dim() == 2:
                if (name, layer) == ("C5", "dense0"):  # rows from height-width-channel to channel-height-width order
                    value = value.view(5, 5, 64, -1).permute(2, 0, 1, 3).flatten(0, 2)
                value = value.T
            getattr(layers[layer], torch_name[part]).copy_(value)
    return model.train()


def batch_of(name, rank, world, channels_last):
    x, y = (torch.from_numpy(part).chunk(world)[rank] for part in w.data(name))
    if x.dim() == 4:
        x = x.permute(0, 3, 1, 2)
        # A copy: contiguous() would keep the strides of one-channel images, which send convolutions down the NHWC path.
        x = x.clone(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    return x, y


def measure(name, rank, world, options):
    work = w.WORKLOADS[name]
    x, y = batch_of(name, rank, world, options.channels_last)
    model = build(name)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    net = model
    if options.mode == "ddp":
        net = nn.parallel.DistributedDataParallel(model)
    elif options.mode == "ddp_tuned":
        net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True,
                                                  broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=w.LEARNING_RATE, momentum=w.MOMENTUM,
                                fused=True if options.mode != "ddp" else None)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def over_ranks(value, operation):
        value = torch.as_tensor(value, dtype=torch.float64).clone()
        if world > 1:
            dist.all_reduce(value, operation)
        return value.item()

    first = over_ranks(step(), dist.ReduceOp.SUM) / world
    for _ in range(work.warmup):
        step()
    if world > 1:
        dist.barrier()
    start = time.perf_counter()
    for _ in range(work.steps):
        loss = step()
    seconds = over_ranks(time.perf_counter() - start, dist.ReduceOp.MAX)
    last = over_ranks(loss, dist.ReduceOp.SUM) / world
    if rank == 0:
        suffix = "_channels_last" if options.channels_last else ""
        w.result_line(f"torch_{options.mode}{suffix}", name, world, seconds, work.steps, first, last)
    return net


def process(rank, world, port, options):
    torch.set_num_threads(CORES // world)
    if options.mode != "ddp":
        torch.set_flush_denormal(True)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    kept = [measure(name, rank, world, options) for name in w.chosen(options)]
    if world > 1:
        dist.barrier()
        os._exit(0)  # taking DDP and Gloo down aborts now and then, after the work is done
    del kept


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description="The benchmark workloads in PyTorch")
    parser.add_argument("--mode", choices=("ddp", "ddp_tuned", "single"), default="ddp")
    parser.add_argument("--channels-last", action="store_true", help="images and convolutions in NHWC memory order")
    w.add_work_option(parser)
    options = parser.parse_args()
    if options.mode == "single":
        process(0, 1, 0, options)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"  # before the processes start: their BLAS reads it when it loads
        torch.multiprocessing.spawn(process, (w.REPLICAS, free_port(), options), nprocs=w.REPLICAS)


if __name__ == "__main__":
    main()
