"""The other side of interop_files: TensorFlow, NumPy and safetensors write files (`write FOLDER`), and read what Tutti wrote
(`check FOLDER`)."""
import glob
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

RECORDS = 5
PACKINGS = ["", "GZIP", "ZLIB"]
DTYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8", "Bool": "bool"}


def pattern(shape, dtype):
    return (np.arange(int(np.prod(shape))) % 251).reshape(shape).astype(dtype)


def example_of(i):
    feature = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i, -i])),
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5 * i, 1e-30])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"record {i}".encode(), b"\0\xff"])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


def sequence_example():
    sequence = tf.train.SequenceExample()
    sequence.context.feature["length"].int64_list.value.append(2)
    for word in (b"ab", b"c"):
        sequence.feature_lists.feature_list["words"].feature.add().bytes_list.value.append(word)
    return sequence


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for packing in PACKINGS:
        with tf.io.TFRecordWriter(f"{folder}/records{packing}.tfrecord", options=packing) as writer:
            for i in range(RECORDS):
                writer.write(example_of(i).SerializeToString())
    with tf.io.TFRecordWriter(f"{folder}/sequence.tfrecord") as writer:
        writer.write(sequence_example().SerializeToString())
    with tf.summary.create_file_writer(f"{folder}/events").as_default():
        for step in range(3):
            tf.summary.scalar("loss", 1.0 / (step + 1), step)
        tf.summary.histogram("weights", pattern((100,), "float32"), 2)
        tf.summary.image("picture", pattern((1, 4, 5, 3), "uint8"), 1)
        tf.summary.text("note", "a *text*", 0)
    arrays = {f"t/{name}": pattern((2, 3), dtype) for name, dtype in DTYPES.items()}
    safetensors.numpy.save_file(arrays, f"{folder}/weights.safetensors", metadata={"by": "a test"})
    np.save(f"{folder}/array.npy", np.asfortranarray(pattern((3, 4), "float64")))
    np.savez_compressed(f"{folder}/arrays.npz", a=pattern((7,), "int32"), b=pattern((2, 2), "bool"))
    with open(f"{folder}/image.png", "wb") as file:
        file.write(tf.io.encode_png(pattern((9, 8, 3), "uint8")).numpy())
    with open(f"{folder}/image.jpg", "wb") as file:
        file.write(tf.io.encode_jpeg(np.full((16, 16, 3), 120, "uint8"), quality=95).numpy())


class Checks:
    def __init__(self):
        self.failures = 0

    def __call__(self, what, holds):
        try:
            good, reason = bool(holds()), "another value"
        except Exception as error:  # the reason is what this is about
            good, reason = False, repr(error)
        print(("ok   " if good else "FAIL ") + what + ("" if good else ": " + reason))
        self.failures += not good


def check(folder):
    checks = Checks()
    for packing in PACKINGS:
        path = f"{folder}/records{packing}.tfrecord"

        def records():
            found = [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(path, compression_type=packing)]
            return found == [example_of(i) for i in range(RECORDS)]

        checks(f'TensorFlow reads TFRecords of Example, packed "{packing}"', records)

    def parsed():
        spec = {"id": tf.io.FixedLenFeature([2], tf.int64), "x": tf.io.VarLenFeature(tf.float32)}
        data = tf.data.TFRecordDataset(f"{folder}/records.tfrecord").map(lambda r: tf.io.parse_single_example(r, spec))
        return [int(e["id"][1]) for e in data] == [-i for i in range(RECORDS)]

    checks("TensorFlow parses them", parsed)

    def sequence():
        (record,) = tf.data.TFRecordDataset(f"{folder}/sequence.tfrecord")
        return tf.train.SequenceExample.FromString(record.numpy()) == sequence_example()

    checks("TensorFlow reads a SequenceExample", sequence)

    def events():
        values = {}
        for path in glob.glob(f"{folder}/events/*"):
            for event in tf.compat.v1.train.summary_iterator(path):
                for value in event.summary.value:
                    values.setdefault(value.tag, []).append((event.step, tf.make_ndarray(value.tensor), value.metadata))
        losses = [float(v[1]) for v in values["loss"]]
        counts = values["weights"][0][1]
        png = values["picture"][0][1][2] if "picture" in values else values["picture/image"][0][1][2]
        picture = tf.io.decode_png(png).numpy()
        return (
            np.allclose(losses, [1, 1 / 2, 1 / 3]) and counts.shape == (30, 3) and counts[:, 2].sum() == 100
            and np.array_equal(picture, pattern((4, 5, 3), "uint8")) and b"a *text*" in np.ravel(values["note"][0][1])[0]
        )

    checks("TensorFlow reads the event file", events)

    def tensorboard():
        from tensorboard.backend.event_processing import event_accumulator

        accumulator = event_accumulator.EventAccumulator(f"{folder}/events")
        accumulator.Reload()
        tags = accumulator.Tags()
        return "loss" in tags["tensors"] + tags["scalars"] and any("weights" in t for t in tags["tensors"] + tags["histograms"])

    checks("TensorBoard reads the event file", tensorboard)

    def tensors():
        found = safetensors.numpy.load_file(f"{folder}/weights.safetensors")
        return len(found) == len(DTYPES) and all(
            np.array_equal(found[f"t/{name}"], pattern((2, 3), dtype)) and found[f"t/{name}"].dtype == dtype
            for name, dtype in DTYPES.items()
        )

    checks("Python's safetensors reads the weights", tensors)
    checks("NumPy reads the npy file", lambda: np.array_equal(np.load(f"{folder}/array.npy"), pattern((3, 4), "float64")))

    def arrays():
        found = np.load(f"{folder}/arrays.npz")
        return np.array_equal(found["a"], pattern((7,), "int32")) and np.array_equal(found["b"], pattern((2, 2), "bool"))

    checks("NumPy reads the npz file", arrays)
    read = tf.io.read_file
    checks("TensorFlow reads the PNG", lambda: np.array_equal(tf.io.decode_png(read(f"{folder}/image.png")), pattern((9, 8, 3), "uint8")))
    checks("TensorFlow reads the JPEG", lambda: np.abs(tf.io.decode_jpeg(read(f"{folder}/image.jpg")).numpy().astype(int) - 120).max() <= 2)
    return checks.failures


if __name__ == "__main__":
    verb, folder = sys.argv[1:]
    sys.exit(write(folder) if verb == "write" else check(folder))
