#!/usr/bin/env python3
"""The workloads under TensorFlow's MultiWorkerMirroredStrategy: two processes with one replica each, over loopback (RING).

The best compiled loop: gradients all-reduced inside the replicas, one fused momentum kernel a variable, several steps
(--steps-per-call) in one tf.function. The models are plain TensorFlow: Keras 3 refuses this strategy.
The program starts both workers; worker 0 prints the lines.
"""
import argparse
import json
import math
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import workloads as w


def start_workers():
    sockets = [socket.socket() for _ in range(w.REPLICAS)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    workers = []
    for index in range(w.REPLICAS):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        workers.append(subprocess.Popen([sys.executable, *sys.argv, "--rank", str(index)],
                                        env={**os.environ, "TF_CONFIG": json.dumps(config)}))
    return max(abs(worker.wait()) for worker in workers)


def forward_of(tf, name, variables):
    """The logits of images, from {"layer/weight": tf.Variable}."""
    def dense(title, x):
        return tf.nn.bias_add(tf.matmul(x, variables[f"{title}/kernel"]), variables[f"{title}/bias"])

    def multilayer(x):
        x = tf.nn.relu(dense("dense0", x))
        return dense("dense2", tf.nn.relu(dense("dense1", x)))

    def convolutional(x):
        for title in ("conv0", "conv1"):
            x = tf.nn.conv2d(x, variables[f"{title}/kernel"], 1, "VALID")
            x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(x, variables[f"{title}/bias"])), 2, 2, "VALID")
        return dense("dense1", tf.nn.relu(dense("dense0", tf.reshape(x, (-1, 5 * 5 * 64)))))

    convolutions = {c.name: c for c in w.resnet20()}

    def convolution(title, x):
        c = convolutions[title]
        pad = [c.kernel // 2] * 2
        return tf.nn.conv2d(x, variables[f"{title}/kernel"], c.stride, [[0, 0], pad, pad, [0, 0]])

    def normalised(title, x):
        x, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            convolution(title, x), variables[f"{title}_bn/gamma"], variables[f"{title}_bn/beta"], epsilon=w.BATCH_NORM_EPSILON)
        for moving, batch in ((variables[f"{title}_bn/mean"], mean), (variables[f"{title}_bn/variance"], variance)):
            moving.assign(moving * w.BATCH_NORM_MOMENTUM + batch * (1 - w.BATCH_NORM_MOMENTUM))
        return x

    def residual(x):
        x = tf.nn.relu(normalised("stem", x))
        for title in convolutions:
            if title.endswith("conv1"):
                block = title.removesuffix("conv1")
                y = normalised(block + "conv2", tf.nn.relu(normalised(title, x)))
                shortcut = block + "shortcut"
                x = tf.nn.relu(y + (convolution(shortcut, x) if shortcut in convolutions else x))
        return dense("dense", tf.reduce_mean(x, (1, 2)))

    return {"C3": residual, "C5": convolutional}.get(name, multilayer)


def make_variables(tf, name):
    """(all by title, those that are trained)"""
    variables = {title: tf.Variable(array) for title, array in w.weights(name).items()}
    if name == "C3":
        for c in w.resnet20():
            if c.normalised:
                variables[f"{c.name}_bn/gamma"] = tf.Variable(tf.ones(c.outputs))
                variables[f"{c.name}_bn/beta"] = tf.Variable(tf.zeros(c.outputs))
    trained = list(variables.values())
    if name == "C3":
        kept = dict(trainable=False, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.MEAN)
        for c in w.resnet20():
            if c.normalised:
                variables[f"{c.name}_bn/mean"] = tf.Variable(tf.zeros(c.outputs), **kept)
                variables[f"{c.name}_bn/variance"] = tf.Variable(tf.ones(c.outputs), **kept)
    return variables, trained


def measure(tf, strategy, name, rank, steps_per_call):
    work = w.WORKLOADS[name]
    per_call = math.gcd(steps_per_call, work.warmup, work.steps)
    x, y = w.data(name)
    rows = slice(rank * work.batch, (rank + 1) * work.batch)
    images, labels = tf.constant(x[rows]), tf.constant(y[rows].astype("int32"))
    with strategy.scope():
        variables, trained = make_variables(tf, name)
        momenta = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in trained]
    forward = forward_of(tf, name, variables)

    def replica_step():
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, forward(images))
            loss = tf.reduce_sum(losses) / (work.batch * w.REPLICAS)
        gradients = tape.gradient(loss, trained)
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, momentum, gradient in zip(trained, momenta, gradients):
            tf.raw_ops.ResourceApplyKerasMomentum(var=variable.handle, accum=momentum.handle, lr=w.LEARNING_RATE,
                                                  grad=gradient, momentum=w.MOMENTUM)
        return loss

    @tf.function
    def single_step():
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step), axis=None)

    @tf.function
    def call():
        for _ in range(per_call - 1):
            strategy.run(replica_step)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step), axis=None)

    first = float(single_step())
    for _ in range(work.warmup // per_call):
        call().numpy()
    start = time.perf_counter()
    for _ in range(work.steps // per_call):
        loss = call()
    last = float(loss)
    if rank == 0:
        w.result_line("tf_workers_loop", name, w.REPLICAS, time.perf_counter() - start, work.steps, first, last,
                      steps_per_call=per_call)


def main():
    parser = argparse.ArgumentParser(description="The benchmark workloads on two workers of TensorFlow")
    parser.add_argument("--steps-per-call", type=int, default=10)
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    w.add_work_option(parser)
    options = parser.parse_args()
    if options.rank < 0:
        sys.exit(start_workers())
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # one that computes, one that waits for the other worker
    experimental = tf.distribute.experimental
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=experimental.CommunicationOptions(
        implementation=experimental.CommunicationImplementation.RING))
    for name in w.chosen(options):
        measure(tf, strategy, name, options.rank, options.steps_per_call)


if __name__ == "__main__":
    main()
