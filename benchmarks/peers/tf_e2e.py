#!/usr/bin/env python3
"""The main job in TensorFlow: Keras fit for one epoch of Fashion-MNIST at a global batch of 128, validated, then evaluated.

--replicas 2  MirroredStrategy over two logical CPU devices (default); 1: the default strategy, both cores.
The pipeline is that of Tutti's program: map, cache, shuffle(10000), batch.
"""
import argparse
import json
import os
import resource
import time

STARTED = time.time()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from fashion_mnist import load

CORES = 2
GLOBAL_BATCH = 128
keras = tf.keras
layers = tf.keras.layers


def make_strategy(replicas):
    tf.config.threading.set_intra_op_parallelism_threads(CORES)
    tf.config.threading.set_inter_op_parallelism_threads(CORES)
    if replicas == 1:
        return tf.distribute.get_strategy()
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                               [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


class FirstStep(keras.callbacks.Callback):
    seconds = None

    def on_train_batch_end(self, batch, logs=None):
        self.seconds = self.seconds or time.time() - STARTED


def main():
    parser = argparse.ArgumentParser(description="The main job in TensorFlow")
    parser.add_argument("--replicas", type=int, default=2)
    options = parser.parse_args()
    strategy = make_strategy(options.replicas)

    def scale(image, label):
        return tf.cast(image, tf.float32) / 255.0, label

    training = tf.data.Dataset.from_tensor_slices(load("train")).map(scale).cache().shuffle(10000).batch(GLOBAL_BATCH)
    test = tf.data.Dataset.from_tensor_slices(load("test")).map(scale).batch(GLOBAL_BATCH)
    with strategy.scope():
        model = keras.Sequential([
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ])
        model.compile(optimizer=keras.optimizers.Adam(1e-3),
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    first = FirstStep()
    history = model.fit(training, epochs=1, validation_data=test, verbose=0, callbacks=[first])
    loss, accuracy = model.evaluate(test, verbose=0)
    name = "tf_mirrored_e2e" if options.replicas > 1 else "tf_single_e2e"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(dict(contender=name, workload="main", accuracy=accuracy, eval_loss=loss,
                          train_loss=history.history["loss"][-1], first_step_s=round(first.seconds, 3),
                          wall_s=round(time.time() - STARTED, 3), peak_rss_mb=round(peak, 1))), flush=True)


if __name__ == "__main__":
    main()
