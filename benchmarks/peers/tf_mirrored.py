#!/usr/bin/env python3
"""The workloads in TensorFlow: MirroredStrategy over two logical CPU devices.

--mode fit   Keras compile and fit
       loop  the best compiled loop: gradients all-reduced inside the replicas, one fused momentum kernel a variable,
             several steps (--steps-per-call) in one tf.function
The runtime gets as many threads as cores, within operations and between them.
"""
import argparse
import math
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import workloads as w

CORES = 2
keras = tf.keras
layers = tf.keras.layers


def make_strategy():
    tf.config.threading.set_intra_op_parallelism_threads(CORES)
    tf.config.threading.set_inter_op_parallelism_threads(CORES)
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                               [tf.config.LogicalDeviceConfiguration()] * w.REPLICAS)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(w.REPLICAS)])


def resnet20():
    convolutions = {c.name: c for c in w.resnet20()}

    def convolution(name, x):
        c = convolutions[name]
        if c.stride > 1 and c.kernel > 1:  # Keras' "same" would pad only at the end
            x = layers.ZeroPadding2D(c.kernel // 2)(x)
        padding = "valid" if c.stride > 1 else "same"
        return layers.Conv2D(c.outputs, c.kernel, c.stride, padding, use_bias=False, name=name)(x)

    def normalised(name, x):
        norm = layers.BatchNormalization(momentum=w.BATCH_NORM_MOMENTUM, epsilon=w.BATCH_NORM_EPSILON, name=name + "_bn")
        return norm(convolution(name, x))

    image = layers.Input(w.WORKLOADS["C3"].input_shape)
    x = layers.ReLU()(normalised("stem", image))
    for name in convolutions:
        if name.endswith("conv1"):
            block = name.removesuffix("conv1")
            y = normalised(block + "conv2", layers.ReLU()(normalised(name, x)))
            shortcut = block + "shortcut"
            x = layers.ReLU()(layers.Add()([y, convolution(shortcut, x) if shortcut in convolutions else x]))
    return keras.Model(image, layers.Dense(w.CLASSES, name="dense")(layers.GlobalAveragePooling2D()(x)))


def build(name):
    """The model with the weights of workloads.weights."""
    if name == "C3":
        model = resnet20()
    elif name == "C5":
        model = keras.Sequential([
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu", name="conv0"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu", name="conv1"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu", name="dense0"),
            layers.Dense(w.CLASSES, name="dense1"),
        ])
    else:
        hidden = 512 if name == "C1" else 2048
        model = keras.Sequential([
            layers.Input((784,)),
            layers.Dense(hidden, activation="relu", name="dense0"),
            layers.Dense(hidden, activation="relu", name="dense1"),
            layers.Dense(w.CLASSES, name="dense2"),
        ])
    of_layer = {}
    for title, array in w.weights(name).items():
        of_layer.setdefault(title.split("/")[0], []).append(array)
    for layer, arrays in of_layer.items():
        model.get_layer(layer).set_weights(arrays)
    return model


class EpochClock(keras.callbacks.Callback):
    """Times an epoch from the end of its first batch, so that making the iterator does not count."""

    def on_epoch_begin(self, epoch, logs=None):
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 1:
            self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.start
        self.loss = logs["loss"]


def measure_fit(strategy, name):
    work = w.WORKLOADS[name]
    batches = tf.data.Dataset.from_tensors(w.data(name)).repeat()
    with strategy.scope():
        model = build(name)
        model.compile(optimizer=keras.optimizers.SGD(w.LEARNING_RATE, w.MOMENTUM),
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    clock = EpochClock()

    def epoch(steps):  # its loss is the mean over its steps: epochs of one step tell the loss of that step
        model.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.loss

    first = epoch(1)
    epoch(work.warmup)
    epoch(work.steps - 1)
    seconds, steps = clock.seconds, clock.batches - 1
    w.result_line("tf_mirrored_fit", name, w.REPLICAS, seconds, steps, first, epoch(1))


def measure_loop(strategy, name, steps_per_call):
    work = w.WORKLOADS[name]
    per_call = math.gcd(steps_per_call, work.warmup, work.steps)
    x, y = w.data(name)

    def part(array):
        def of_replica(context):
            begin = context.replica_id_in_sync_group * work.batch
            return tf.constant(array[begin:begin + work.batch])
        return strategy.experimental_distribute_values_from_function(of_replica)

    inputs = (part(x), part(y.astype("int32")))
    with strategy.scope():
        model = build(name)
        trained = [v.value for v in model.trainable_variables]  # the tf.Variables inside Keras' variables
        momenta = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in trained]

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / (work.batch * w.REPLICAS)
        gradients = tape.gradient(loss, trained)
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, momentum, gradient in zip(trained, momenta, gradients):
            tf.raw_ops.ResourceApplyKerasMomentum(var=variable.handle, accum=momentum.handle, lr=w.LEARNING_RATE,
                                                  grad=gradient, momentum=w.MOMENTUM)
        return loss

    def one_step():
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, inputs), axis=None)

    @tf.function
    def single_step():
        return one_step()

    @tf.function
    def call():
        loss = tf.constant(0.0)
        for _ in tf.range(per_call):
            loss = one_step()
        return loss

    first = float(single_step())
    for _ in range(work.warmup // per_call):
        call().numpy()
    start = time.perf_counter()
    for _ in range(work.steps // per_call):
        loss = call()
    last = float(loss)
    w.result_line("tf_mirrored_loop", name, w.REPLICAS, time.perf_counter() - start, work.steps, first, last,
                  steps_per_call=per_call)


def main():
    parser = argparse.ArgumentParser(description="The benchmark workloads in TensorFlow")
    parser.add_argument("--mode", choices=("fit", "loop"), default="fit")
    parser.add_argument("--steps-per-call", type=int, default=10)
    w.add_work_option(parser)
    options = parser.parse_args()
    strategy = make_strategy()
    for name in w.chosen(options):
        if options.mode == "fit":
            measure_fit(strategy, name)
        else:
            measure_loop(strategy, name, options.steps_per_call)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
