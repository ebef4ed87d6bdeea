#!/usr/bin/env python3
"""The protocol of collectives/all_reduce_bench.cpp for TensorFlow: one in-replica all_reduce of
MultiWorkerMirroredStrategy (RING) in one call of a tf.function, two processes. Worker 0 prints the rows.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from tf_workers import start_workers


def main():
    parser = argparse.ArgumentParser(description="All-reduce on two workers of TensorFlow")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--bytes", default="4,64,1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank < 0:
        sys.exit(start_workers())
    import tensorflow as tf
    experimental = tf.distribute.experimental
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=experimental.CommunicationOptions(
        implementation=experimental.CommunicationImplementation.RING))

    def summed(value):  # identity: a bare argument has no device, and all_reduce takes its destination from there
        return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(value))

    go_on = tf.function(lambda value: strategy.run(summed, (value,)), input_signature=[tf.TensorSpec([1], tf.float32)])
    for size in map(int, options.bytes.split(",")):
        count = max(1, size // 4)
        source = tf.sin(0.37 * tf.range(count, dtype=tf.float32) + options.rank)
        call = tf.function(lambda value: strategy.run(summed, (value,)),
                           input_signature=[tf.TensorSpec([count], tf.float32)])
        wanted = sum(np.sin(np.float32(0.37) * np.arange(count, dtype=np.float32) + rank) for rank in range(2))
        if not np.allclose(call(source).numpy(), wanted, atol=1e-2 if count > 1 << 20 else 1e-4):
            sys.exit(f"{size} bytes: a wrong result")
        times, end, rounds = [], time.perf_counter() + options.seconds, 0
        while True:
            value = source + 0.0
            more = options.rank == 0 and (rounds < 8 or time.perf_counter() < end)
            if float(go_on(tf.constant([float(more)]))[0]) == 0:  # what lines the workers up, too
                break
            start = time.perf_counter()
            call(value).numpy()
            times.append(1e6 * (time.perf_counter() - start))
            rounds += 1
        times = sorted(times[3:])
        if options.rank == 0:
            print(json.dumps({"bytes": size, "contender": "tensorflow", "ranks": 2, "median_us": times[len(times) // 2],
                              "best_us": times[0], "calls": len(times)}), flush=True)


if __name__ == "__main__":
    main()
