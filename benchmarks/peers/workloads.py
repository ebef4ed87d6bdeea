#!/usr/bin/env python3
"""The benchmark workloads: sizes, fixed data and initial weights, the same for every contender.

Needs numpy only. As a program it writes everything for contenders in other languages:
    workloads.py --dump DIR     for each workload DIR/NAME/manifest.json and a raw little-endian file for each tensor
All layouts are those of Keras: dense kernels (in, out), convolution kernels (height, width, in, out), images NHWC.

What one run does, step by step, on one fixed global batch:
    1 step, whose loss is loss_first; `warmup` steps; `steps` timed steps, the loss of the last being loss_last.
A loss is the mean over the global batch before the update of its step. So loss_last belongs to step 1 + warmup + steps
in every contender, and speeds are only compared where it agrees.
--steps-scale 0.02, or TUTTI_BENCH_SMOKE=1, shortens every workload to a few steps: to try the scripts, not to time.
"""
import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

REPLICAS = 2
LEARNING_RATE = 0.01
MOMENTUM = 0.9
BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_MOMENTUM = 0.9  # as Keras counts it: moving = 0.9 * moving + 0.1 * batch
CLASSES = 10
SMOKE = os.environ.get("TUTTI_BENCH_SMOKE", "0") not in ("", "0")


class Workload:
    """One row of the table.

    `tolerance` is how far, relatively, loss_last may be from that of another contender. Float32 against float64 on these
    data: C1 and C2 1e-5, C5 1e-3; ResNet-20 moves by 4e-3 with the memory order of its images alone.
    """

    def __init__(self, title, input_shape, batch, warmup, steps, tolerance=1e-3):
        self.title = title
        self.input_shape = input_shape
        self.batch = batch    # samples of one replica in a step
        self.warmup = warmup
        self.steps = steps    # timed
        self.tolerance = tolerance


WORKLOADS = {
    "C1": Workload("MLP 784-512-512-10", (784,), batch=64, warmup=20, steps=400),
    "C2": Workload("wide MLP 784-2048-2048-10", (784,), batch=32, warmup=20, steps=60),
    "C3": Workload("ResNet-20 on 32x32x3", (32, 32, 3), batch=16, warmup=20, steps=30, tolerance=3e-2),
    "C5": Workload("CNN conv32-conv64-fc128 on 28x28", (28, 28, 1), batch=32, warmup=20, steps=160, tolerance=5e-3),
}


def data(name):
    """(x, y) of the global batch; rows [r * batch, (r + 1) * batch) belong to replica r."""
    work = WORKLOADS[name]
    samples = work.batch * REPLICAS
    source = np.random.default_rng(20)
    # Centred: with inputs in [0, 1) the CNN sits on a plateau, and when it leaves that depends on rounding, so that no
    # loss could be compared.
    x = 2 * source.random((samples, *work.input_shape), dtype=np.float32) - 1
    return x, source.integers(0, CLASSES, samples, dtype=np.int64)


class Convolution:
    """A convolution of ResNet-20: square kernel, padded by kernel // 2 on every side, without bias."""

    def __init__(self, name, kernel, inputs, outputs, stride):
        self.name, self.kernel, self.inputs, self.outputs, self.stride = name, kernel, inputs, outputs, stride
        self.normalised = not name.endswith("shortcut")  # a shortcut's projection has no batch normalisation


def resnet20():
    """The convolutions: the stem, then 3 stages of 3 blocks of conv1, conv2 and, where the width changes, shortcut."""
    convolutions, width = [Convolution("stem", 3, 3, 16, 1)], 16
    for stage, outputs in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if outputs != width else 1
            prefix = f"stage{stage}_block{block}_"
            convolutions.append(Convolution(prefix + "conv1", 3, width, outputs, stride))
            convolutions.append(Convolution(prefix + "conv2", 3, outputs, outputs, 1))
            if outputs != width:
                convolutions.append(Convolution(prefix + "shortcut", 1, width, outputs, stride))
            width = outputs
    return convolutions


def _glorot(source, *shape):
    receptive = int(np.prod(shape[:-2]))
    limit = np.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
    return source.uniform(-limit, limit, shape).astype(np.float32)


def weights(name):
    """{"layer/weight": array} in the order of the layers. Batch normalisation starts at gamma 1, beta 0 everywhere."""
    source = np.random.default_rng(10)
    result = {}

    def layer(title, *kernel_shape, bias=True):
        result[f"{title}/kernel"] = _glorot(source, *kernel_shape)
        if bias:
            result[f"{title}/bias"] = np.zeros(kernel_shape[-1], np.float32)

    if name in ("C1", "C2"):
        hidden = 512 if name == "C1" else 2048
        layer("dense0", 784, hidden)
        layer("dense1", hidden, hidden)
        layer("dense2", hidden, CLASSES)
    elif name == "C3":
        for conv in resnet20():
            layer(conv.name, conv.kernel, conv.kernel, conv.inputs, conv.outputs, bias=False)
        layer("dense", 64, CLASSES)
    elif name == "C5":
        layer("conv0", 3, 3, 1, 32)
        layer("conv1", 3, 3, 32, 64)
        layer("dense0", 5 * 5 * 64, 128)  # rows in the order of an NHWC flatten
        layer("dense1", 128, CLASSES)
    else:
        raise ValueError(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    return result


def result_line(contender, name, replicas, seconds, steps, loss_first, loss_last, **more):
    """Prints the line that run.py reads. `replicas` is how many there were; the global batch is always the same."""
    samples = WORKLOADS[name].batch * REPLICAS
    line = dict(contender=contender, workload=name, replicas=replicas, samples_per_s=samples * steps / seconds,
                step_us=1e6 * seconds / steps, seconds=seconds, steps=steps, loss_first=float(loss_first),
                loss_last=float(loss_last), **more)
    print(json.dumps({key: float(f"{value:.7g}") if isinstance(value, float) else value for key, value in line.items()}),
          flush=True)


def add_work_option(parser):
    parser.add_argument("--work", default=",".join(WORKLOADS), help="workloads, comma-separated")
    parser.add_argument("--steps-scale", type=float, default=0.02 if SMOKE else 1.0, help="factor on the numbers of steps")


def scale_steps(factor):
    """Even numbers of steps, so that a compiled loop can take several in a call."""
    if factor != 1:
        for work in WORKLOADS.values():
            work.warmup = max(2, 2 * round(work.warmup * factor / 2))
            work.steps = max(4, 2 * round(work.steps * factor / 2))


def chosen(options):
    """The names asked for; applies --steps-scale to WORKLOADS."""
    names = options.work.split(",")
    for name in names:
        if name not in WORKLOADS:
            sys.exit(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    scale_steps(options.steps_scale)
    return names


def dump(folder, names=tuple(WORKLOADS)):
    """Writes folder/NAME/manifest.json and the tensors beside it, for each workload."""

    def tensor(own, file, array):
        array.astype(array.dtype.newbyteorder("<")).tofile(own / file)
        return {"file": file, "dtype": str(array.dtype), "shape": list(array.shape)}

    for name in names:
        work, own = WORKLOADS[name], Path(folder) / name
        own.mkdir(parents=True, exist_ok=True)
        x, y = data(name)
        manifest = {
            "batch": work.batch,
            "replicas": REPLICAS,
            "warm": work.warmup,
            "steps": work.steps,
            "lr": LEARNING_RATE,
            "momentum": MOMENTUM,
            "x": tensor(own, "x.bin", x),
            "y": tensor(own, "y.bin", y),
            "weights": [{"name": title, **tensor(own, f"w{i}.bin", array)}
                        for i, (title, array) in enumerate(weights(name).items())],
        }
        (own / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Writes data and initial weights of the benchmark workloads")
    parser.add_argument("--dump", metavar="DIR", required=True)
    add_work_option(parser)
    options = parser.parse_args()
    dump(options.dump, chosen(options))


if __name__ == "__main__":
    main()
