"""The workloads in PyTorch. --mode ddp: two processes, DDP as it comes; ddp_tuned: bucket views, static graph, no buffer broadcast,
fused SGD, denormals flushed; single: one process, both cores, the doubled batch. One JSON line a workload."""
import argparse
import json
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

from workloads import LEARNING_RATE, MOMENTUM, REPLICAS, WORKLOADS, data, resnet20, scaled, weights


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleDict({n: nn.Conv2d(i, o, k, s, k // 2, bias=False) for n, k, i, o, s in resnet20()})
        self.norm = nn.ModuleDict({n: nn.BatchNorm2d(o) for n, _, _, o, _ in resnet20() if not n.endswith("p")})
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.norm["stem"](self.conv["stem"](x)), inplace=True)
        for stage in range(3):
            for block in range(3):
                p = f"stage{stage}block{block}"
                y = F.relu(self.norm[p + "a"](self.conv[p + "a"](x)), inplace=True)
                y = self.norm[p + "b"](self.conv[p + "b"](y))
                x = F.relu(y + (self.conv[p + "p"](x) if p + "p" in self.conv else x))
        return self.head(x.mean((2, 3)))


def make_model(name):
    if name == "C3":
        return ResNet20()
    if name == "C5":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))
    units = 512 if name == "C1" else 2048
    return nn.Sequential(nn.Linear(784, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 10))


@torch.no_grad()
def load(model, name):
    """Keras' layouts into PyTorch's: [in, out] is turned, HWIO becomes OIHW, the first dense layer after Flatten is permuted."""
    values = dict(weights(name))
    if name == "C5":
        values["fc0/kernel"] = values["fc0/kernel"].reshape(5, 5, 64, 128).transpose(2, 0, 1, 3).reshape(1600, 128)
    if name == "C3":
        modules = [(n, model.conv[n]) for n, *_ in resnet20()] + [("head", model.head)]
    else:
        labels = [k.split("/")[0] for k in values if k.endswith("kernel")]
        modules = list(zip(labels, [m for m in model if isinstance(m, (nn.Linear, nn.Conv2d))]))
    for label, module in modules:
        kernel = torch.from_numpy(values[label + "/kernel"])
        module.weight.copy_(kernel.T if kernel.dim() == 2 else kernel.permute(3, 2, 0, 1))
        if module.bias is not None:
            module.bias.copy_(torch.from_numpy(values[label + "/bias"]))


def run(rank, args, port):
    world = 1 if args.mode == "single" else REPLICAS
    tuned = args.mode != "ddp"
    torch.set_num_threads(REPLICAS // world)
    if tuned:
        torch.set_flush_denormal(True)
    if world > 1:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    for name in args.work.split(","):
        work = scaled(name, args.steps_scale)
        rows = work["batch"] * REPLICAS // world
        x, y = (torch.from_numpy(a[rank * rows:(rank + 1) * rows]) for a in data(name, work["batch"] * REPLICAS))
        if x.dim() == 4:
            x = x.permute(0, 3, 1, 2).contiguous()
        model = make_model(name).train()
        load(model, name)
        net = model
        if args.mode == "ddp":
            net = nn.parallel.DistributedDataParallel(model)
        elif args.mode == "ddp_tuned":
            net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, **(dict(fused=True) if tuned else {}))

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def mean(loss):
            if world > 1:
                loss = loss.clone()
                dist.all_reduce(loss)
                loss /= world
            return float(loss)

        first = mean(step())
        for _ in range(work["warm"]):
            step()
        if world > 1:
            dist.barrier()
        start = time.perf_counter()
        for _ in range(work["steps"]):
            last = step()
        seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
        if world > 1:
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
        last = mean(last)
        if rank == 0:
            print(json.dumps(dict(contender="torch_" + args.mode, workload=name, loss_first=first, loss_last=last,
                                  samples_per_s=work["steps"] * work["batch"] * REPLICAS / float(seconds),
                                  step_us=float(seconds) / work["steps"] * 1e6)), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["ddp", "ddp_tuned", "single"], required=True)
    parser.add_argument("--work", default=",".join(WORKLOADS))
    parser.add_argument("--steps-scale", type=float, default=1.0)
    args = parser.parse_args()
    if args.mode == "single":
        run(0, args, 0)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        mp.spawn(run, (args, port), REPLICAS)
