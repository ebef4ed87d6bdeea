"""The training workloads that Tutti and its peers are timed on: data and initial weights, the same for every contender.

python workloads.py --dump DIR writes, for each workload, DIR/<name>/manifest.json and raw little-endian files beside it.
"""
import argparse
import json
import os

import numpy as np

LEARNING_RATE, MOMENTUM, REPLICAS = 0.01, 0.9, 2

#        rows of one replica, warm-up steps, measured steps
WORKLOADS = {
    "C1": dict(batch=64, warm=20, steps=400),   # MLP 784-512-512-10
    "C2": dict(batch=32, warm=20, steps=60),    # MLP 784-2048-2048-10
    "C3": dict(batch=16, warm=20, steps=30),    # ResNet-20 on 32 x 32 x 3
    "C5": dict(batch=32, warm=20, steps=160),   # conv32, conv64, fc128 on 28 x 28 x 1
}


def scaled(name, factor):
    """The workload with fewer or more measured steps."""
    work = dict(WORKLOADS[name])
    work["steps"] = max(2, int(work["steps"] * factor))
    work["warm"] = max(1, int(work["warm"] * min(1, factor)))
    return work


def data(name, rows):
    """Images (NHWC or rows of 784) and labels."""
    random = np.random.default_rng(1)
    shape = {"C1": (784,), "C2": (784,), "C3": (32, 32, 3), "C5": (28, 28, 1)}[name]
    x = random.random((rows, *shape), np.float32)
    return x, random.integers(0, 10, rows).astype(np.int64)


def resnet20():
    """Convolutions in order: name, kernel, in, out, stride. A projection follows its block's second convolution."""
    convolutions, channels = [("stem", 3, 3, 16, 1)], 16
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage > 0 and block == 0 else 1
            prefix = f"stage{stage}block{block}"
            convolutions += [(prefix + "a", 3, channels, filters, stride), (prefix + "b", 3, filters, filters, 1)]
            if channels != filters:
                convolutions.append((prefix + "p", 1, channels, filters, stride))
            channels = filters
    return convolutions


def weights(name):
    """[(name, array)] in Keras' order and layouts."""
    random = np.random.default_rng(0)

    def kernel(*shape):
        field = int(np.prod(shape[:-2], dtype=int)) if len(shape) > 2 else 1
        limit = np.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
        return random.uniform(-limit, limit, shape).astype(np.float32)

    def layer(label, *shape):
        return [(label + "/kernel", kernel(*shape)), (label + "/bias", np.zeros(shape[-1], np.float32))]

    if name in ("C1", "C2"):
        units = 512 if name == "C1" else 2048
        return layer("fc0", 784, units) + layer("fc1", units, units) + layer("fc2", units, 10)
    if name == "C5":
        return layer("conv0", 3, 3, 1, 32) + layer("conv1", 3, 3, 32, 64) + layer("fc0", 1600, 128) + layer("fc1", 128, 10)
    convolutions = [(label + "/kernel", kernel(size, size, into, out)) for label, size, into, out, _ in resnet20()]
    return convolutions + layer("head", 64, 10)


def dump(folder, names, factor=1.0):
    for name in names:
        work, own = scaled(name, factor), os.path.join(folder, name)
        os.makedirs(own, exist_ok=True)

        def save(array, file):
            array.tofile(os.path.join(own, file))
            return dict(file=file, dtype=str(array.dtype), shape=list(array.shape))

        x, y = data(name, work["batch"] * REPLICAS)
        entries = [dict(name=label, **save(array, f"w{i}.bin")) for i, (label, array) in enumerate(weights(name))]
        manifest = dict(batch=work["batch"], replicas=REPLICAS, warm=work["warm"], steps=work["steps"], lr=LEARNING_RATE,
                        momentum=MOMENTUM, x=save(x, "x.bin"), y=save(y, "y.bin"), weights=entries)
        with open(os.path.join(own, "manifest.json"), "w") as file:
            json.dump(manifest, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", required=True)
    parser.add_argument("--work", default=",".join(WORKLOADS))
    parser.add_argument("--steps-scale", type=float, default=1.0)
    args = parser.parse_args()
    dump(args.dump, args.work.split(","), args.steps_scale)
