"""Fashion-MNIST for the peers: the IDX files of Debian's dataset-fashion-mnist, or of the folder TUTTI_DATASETS."""
import gzip
import os
import sys
from pathlib import Path

import numpy as np


def _folders():
    named = os.environ.get("TUTTI_DATASETS")
    if named:
        return [Path(named) / "fashion-mnist", Path(named)]
    return [Path("/usr/share/dataset/fashion-mnist"), Path("/usr/share/datasets/fashion-mnist")]


def _read(name, header):
    for folder in _folders():
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                content = path.read_bytes()
                return np.frombuffer(gzip.decompress(content) if path.suffix == ".gz" else content, np.uint8, offset=header)
    sys.exit(f"{name} not found; install Debian's package dataset-fashion-mnist, or set TUTTI_DATASETS to a folder with "
             "the IDX files")


def load(part):
    """(images, labels) as uint8 of shapes (n, 28, 28, 1) and (n,); `part` is "train" or "test".

    TUTTI_BENCH_SMOKE=1 keeps ten batches of them, for trying the scripts.
    """
    prefix = {"train": "train", "test": "t10k"}[part]
    images = _read(f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 28, 28, 1)
    labels = _read(f"{prefix}-labels-idx1-ubyte", 8)
    if os.environ.get("TUTTI_BENCH_SMOKE", "0") not in ("", "0"):
        images, labels = images[:1280], labels[:1280]
    return images, labels
