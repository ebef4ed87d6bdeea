#!/usr/bin/env python3
"""The pipelines of data_bench in tf.data, on the same data: one pipeline, one JSON line.

The files are those that `data_bench --prepare` wrote. Every pipeline runs once to warm up and is then timed over several
passes; elements are taken from the iterator as they are, one check a batch.
"""
import argparse
import glob
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

CORES = 2
IMAGES = 60000
BATCH = 128
VECTORS = 2000
VECTOR_SIZE = 16384
JPEGS = 500
WORKS = ("data_slices", "data_main", "data_tfrecord", "data_parallel_map", "data_jpeg")


def pipeline(work, folder, scale):
    """(dataset, passes, samples of a pass or None to count, what an element adds to the check sum)"""
    scaled = lambda count: max(1, int(count * scale))
    if work in ("data_slices", "data_main"):
        count = scaled(IMAGES)
        images = (np.arange(count * 784) % 251).astype(np.uint8).reshape(count, 28, 28, 1)
        rows = tf.data.Dataset.from_tensor_slices((images, np.arange(count) % 10))
        check = lambda batch: int(np.sum(batch[1].numpy()))
        if work == "data_slices":
            return rows.batch(BATCH), 20, count, check
        mapped = rows.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
        return mapped.batch(BATCH), 3, count, check
    if work == "data_tfrecord":
        files = sorted(glob.glob(f"{folder}/records_*.tfrecord"))
        return tf.data.TFRecordDataset(files), 3, None, lambda record: len(record.numpy())
    if work == "data_parallel_map":
        count = scaled(VECTORS)
        vectors = np.linspace(0, 1, count * VECTOR_SIZE, dtype=np.float32).reshape(count, VECTOR_SIZE)
        rows = tf.data.Dataset.from_tensor_slices(vectors)
        mapped = rows.map(lambda x: tf.reduce_mean(tf.sqrt(tf.exp(tf.sin(x)))), num_parallel_calls=tf.data.AUTOTUNE)
        return mapped.batch(32), 3, count, lambda batch: float(np.sum(batch.numpy()))
    decoded = tf.data.TFRecordDataset(f"{folder}/jpegs.tfrecord").map(
        lambda contents: tf.io.decode_jpeg(contents, channels=3), num_parallel_calls=tf.data.AUTOTUNE)
    return decoded, 3, scaled(JPEGS), lambda image: image.shape[1]


def main():
    parser = argparse.ArgumentParser(description="Input pipelines in tf.data")
    parser.add_argument("--work", choices=WORKS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(CORES)
    tf.config.threading.set_inter_op_parallelism_threads(CORES)
    dataset, passes, samples, check = pipeline(options.work, options.data, options.scale)
    counted = sum(1 for _ in dataset)  # warm
    samples = samples or counted
    total = 0
    begin = time.perf_counter()
    for _ in range(passes):
        for element in dataset:
            total += check(element)
    seconds = time.perf_counter() - begin
    print(json.dumps(dict(contender="tf_data", workload=options.work, samples_per_s=samples * passes / seconds,
                          seconds=seconds, check=total)), flush=True)


if __name__ == "__main__":
    main()
