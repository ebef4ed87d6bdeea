"""Writes keras_layers.json: what Keras' layers give, for keras_layers_test.cpp. Needs TensorFlow and Keras.

Tensors: {"dtype", "shape", "data"}, or {"wave": shape, "from": s} for sin(.7 i + s). The weight number i of a layer is
.5 wave(shape, .3 + i), unless "weights" lists them.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers as L  # noqa: E402

cases = []


def wave(shape, start=0.3):
    count = int(np.prod(shape))
    return np.sin(np.arange(count, dtype=np.float32) * np.float32(0.7) + np.float32(start)).reshape(shape)


def described(value):
    value = np.asarray(value)
    if value.dtype.kind == "f":
        data = [float("%.9g" % v) for v in value.reshape(-1)]
    elif value.dtype.kind == "b":
        data = [int(v) for v in value.reshape(-1)]
    else:
        data = [v.decode() if isinstance(v, bytes) else v if isinstance(v, str) else int(v) for v in value.reshape(-1)]
    kind = {"f": "float32", "b": "bool", "i": "int64", "u": "uint8", "O": "string", "U": "string"}[value.dtype.kind]
    return {"dtype": kind, "shape": list(value.shape), "data": data}


class Wave:
    def __init__(self, shape, start=0.3):
        self.shape, self.start = shape, start
        self.value = wave(shape, start)

    def json(self):
        return {"wave": list(self.shape), "from": self.start}


def as_json(value):
    return value.json() if isinstance(value, Wave) else described(value)


def as_array(value):
    return value.value if isinstance(value, Wave) else value


def add(name, layer, inputs, config=None, call=None, weights=None, adapt=None, training=False, **arguments):
    """`call` gives the outputs of the built layer for arrays; `arguments` are written down only."""
    arrays = [as_array(i) for i in inputs]
    if weights is not None:
        layer.set_weights(weights)
    elif layer.weights and adapt is None:
        layer.set_weights([wave(w.shape, 0.3 + i) * np.float32(0.5) for i, w in enumerate(layer.weights)])
    outputs = call(*arrays) if call else layer(arrays[0], **({"training": True} if training else {}))
    entry = {"name": name, "class": layer.__class__.__name__, "config": config or {},
             "inputs": [as_json(i) for i in inputs], "outputs": [described(o) for o in tf.nest.flatten(outputs)]}
    if weights is not None:
        entry["weights"] = [described(w) for w in weights]
    if adapt is not None:
        entry["adapt"] = [as_json(batch) for batch in adapt]
    if training:
        entry["training"] = True
    for key, value in arguments.items():
        entry[key] = value
    cases.append(entry)


# ---- recurrent

X = Wave((2, 4, 3))
MASK = np.array([[True, False, True, False], [False, True, True, True]])


def built(layer, *shapes):
    layer.build(*(shapes or ((2, 4, 3),)))
    return layer


for cls, extra in [(L.SimpleRNN, {}), (L.LSTM, {}), (L.GRU, {}), (L.GRU, {"reset_after": False})]:
    label = cls.__name__ + ("_reset_before" if extra else "")
    for sequences in (False, True):
        config = {"units": 2, "return_sequences": sequences, "return_state": True, **extra}
        layer = built(cls(**config))
        add(f"{label}_masked_{'sequences' if sequences else 'last'}", layer, [X], config,
            lambda x: layer(x, mask=MASK), masks=[described(MASK)])
        add(f"{label}_state_{'sequences' if sequences else 'last'}", layer, [X], config)
    config = {"units": 2, "return_sequences": True, "go_backwards": True, **extra}
    add(f"{label}_backwards", built(cls(**config)), [X], config)
    layer = built(cls(2, **extra))
    starts = [Wave((2, 2), 0.9 + i) for i in range(2 if cls is L.LSTM else 1)]
    add(f"{label}_initial_state", layer, [X] + starts, {"units": 2, **extra},
        lambda x, *states: layer(x, initial_state=list(states)))
    config = {"units": 2, "activation": "relu", "use_bias": False, **extra}
    if cls is not L.SimpleRNN:
        config["recurrent_activation"] = "hard_sigmoid"
    add(f"{label}_other_activations", built(cls(**config)), [X], config)


def cell(name, **config):
    return {"class_name": name, "config": config}


config = {"cell": cell("StackedRNNCells", cells=[cell("LSTMCell", units=2), cell("GRUCell", units=3)]),
          "return_sequences": True, "return_state": True}
add("stacked_cells", built(L.RNN([L.LSTMCell(2), L.GRUCell(3)], return_sequences=True, return_state=True)), [X], config)
for mode in ["concat", "sum", "mul", "ave", None]:
    layer = built(L.Bidirectional(L.LSTM(2, return_sequences=True), merge_mode=mode))
    add(f"bidirectional_{mode}", layer, [X],
        {"layer": cell("LSTM", units=2, return_sequences=True), "merge_mode": mode})
for sequences in (False, True):
    layer = built(L.Bidirectional(L.GRU(2, return_sequences=sequences)))
    add(f"bidirectional_masked_{'sequences' if sequences else 'last'}", layer, [X],
        {"layer": cell("GRU", units=2, return_sequences=sequences)}, lambda x: layer(x, mask=MASK),
        masks=[described(MASK)])
add("bidirectional_state", built(L.Bidirectional(L.LSTM(2, return_state=True))), [X],
    {"layer": cell("LSTM", units=2, return_state=True)})
layer = built(L.Bidirectional(L.SimpleRNN(2)))
add("bidirectional_initial_state", layer, [X, Wave((2, 2), 0.9), Wave((2, 2), 1.9)], {"layer": cell("SimpleRNN", units=2)},
    lambda x, *states: layer(x, initial_state=list(states)))
add("time_distributed_dense", built(L.TimeDistributed(L.Dense(2))), [X], {"layer": cell("Dense", units=2)})
add("masking", L.Masking(1.0), [np.array([[[1, 1], [1, 2], [0, 1]]], np.float32)], {"mask_value": 1.0})

# ---- attention

Q, V, K = Wave((2, 3, 4)), Wave((2, 5, 4), 1.1), Wave((2, 5, 4), 2.3)
QM = np.array([[True, True, True], [True, False, True]])
VM = np.array([[True, False, True, True, False], [True, True, True, True, True]])
SHAPES = [Q.shape, V.shape, K.shape]
for name, config in [("dot", {}), ("scaled", {"use_scale": True}), ("concat", {"score_mode": "concat", "use_scale": True})]:
    layer = L.Attention(**config)
    layer.build(SHAPES)
    add(f"attention_{name}", layer, [Q, V, K], {**config, "return_attention_scores": True},
        lambda q, v, k: layer([q, v, k], return_attention_scores=True))
layer = L.Attention()
layer.build(SHAPES)
add("attention_masked", layer, [Q, V, K], {}, lambda q, v, k: layer([q, v, k], mask=[QM, VM]),
    masks=[described(QM), described(VM)])
add("attention_causal", layer, [Q, V], {"use_causal_mask": True}, lambda q, v: layer([q, v], use_causal_mask=True))
for scaled in (True, False):
    layer = L.AdditiveAttention(use_scale=scaled)
    layer.build(SHAPES)
    add(f"additive_attention_{scaled}", layer, [Q, V, K], {"use_scale": scaled},
        lambda q, v, k: layer([q, v, k], mask=[QM, VM]), masks=[described(QM), described(VM)])
config = {"num_heads": 2, "key_dim": 3, "value_dim": 2, "output_shape": 5}
layer = L.MultiHeadAttention(**config)
layer.build(*SHAPES)
add("heads", layer, [Q, V, K], config, lambda q, v, k: layer(q, v, k))
add("heads_scores", layer, [Q, V, K], {**config, "return_attention_scores": True},
    lambda q, v, k: layer(q, v, k, return_attention_scores=True))
add("heads_value_mask", layer, [Q, V, K], config, lambda q, v, k: layer(q, v, k, value_mask=VM),
    masks=[None, described(VM)])
add("heads_causal_masked", layer, [Q, V, K], {**config, "use_causal_mask": True},
    lambda q, v, k: layer(q, v, k, value_mask=VM, use_causal_mask=True), masks=[None, described(VM)])
ATTENTION = np.array([[[1, 0, 0, 1, 0], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1]]] * 2, bool)
add("heads_attention_mask", layer, [Q, V, K, ATTENTION], config,
    lambda q, v, k, mask: layer(q, v, k, attention_mask=mask))
config = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
layer = L.GroupQueryAttention(**config)
layer.build(*SHAPES)
add("groups", layer, [Q, V, K], config, lambda q, v, k: layer(q, v, k))
X4 = Wave((2, 2, 3, 4))
for axes in (None, (2,), (1,)):
    config = {"num_heads": 2, "key_dim": 3, **({"attention_axes": axes} if axes else {})}
    layer = L.MultiHeadAttention(**config)
    layer.build(X4.shape, X4.shape)
    add(f"heads_axes_{axes}", layer, [X4, X4], {**config, "return_attention_scores": True},
        lambda q, v: layer(q, v, return_attention_scores=True))

# ---- numbers

DATA = [wave((5, 3)) * 2, wave((2, 3), 1.0) + 1]
for config in [{}, {"axis": None}, {"invert": True}]:
    layer = L.Normalization(**config)
    layer.adapt(iter(DATA))
    add(f"normalization_{config}", layer, [Wave((2, 3), 2.0)], config, adapt=DATA)
layer = L.Normalization(axis=(1, 2))
layer.adapt(wave((4, 2, 3)))
add("normalization_two_axes", layer, [Wave((1, 2, 3), 2.0)], {"axis": [1, 2]}, adapt=[wave((4, 2, 3))])
layer = L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 1.0, 0.0])
layer.build((None, 3))
add("normalization_given", layer, [Wave((2, 3))], {"mean": [1.0, 2.0, 3.0], "variance": [4.0, 1.0, 0.0]})
IDS = np.array([[0, 1, 1], [3, 2, 0]])
for mode in ["one_hot", "multi_hot", "count"]:
    add(f"category_{mode}", L.CategoryEncoding(4, mode), [IDS], {"num_tokens": 4, "output_mode": mode})
add("category_one_hot_column", L.CategoryEncoding(4, "one_hot"), [IDS[:, :1]], {"num_tokens": 4, "output_mode": "one_hot"})
add("category_one_sample", L.CategoryEncoding(4, "multi_hot"), [IDS[0]], {"num_tokens": 4})
layer = L.CategoryEncoding(4, "count")
add("category_weights", layer, [IDS, Wave((2, 3))], {"num_tokens": 4, "output_mode": "count"},
    lambda ids, weights: layer(ids, count_weights=weights))
BINS = np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]], np.float32)
for mode in ["int", "one_hot"]:
    config = {"bin_boundaries": [0.0, 1.0, 2.0], "output_mode": mode}
    add(f"discretization_{mode}", L.Discretization(**config), [BINS], config)
for count, batches in [(2, [BINS]), (4, [wave((300,)) * 3, wave((200,), 1.0) * 5, wave((7,), 2.0)]), (3, [wave((1000,))])]:
    layer = L.Discretization(num_bins=count)
    layer.adapt(iter(batches))
    add(f"discretization_adapt_{count}", layer, [BINS], {"num_bins": count}, adapt=batches,
        boundaries=[float(b) for b in layer.bin_boundaries])

# ---- images

IMAGES = Wave((2, 4, 5, 2))
for height, width in [(3, 7), (8, 2), (4, 5)]:
    for mode in ["bilinear", "nearest"]:
        config = {"height": height, "width": width, "interpolation": mode}
        add(f"resizing_{height}_{width}_{mode}", L.Resizing(**config), [IMAGES], config)
for flag in ["crop_to_aspect_ratio", "pad_to_aspect_ratio"]:
    config = {"height": 6, "width": 4, flag: True}
    add(f"resizing_{flag}", L.Resizing(**config), [IMAGES], config)
BYTES = np.arange(0, 216, 9, dtype=np.uint8).reshape(1, 4, 6, 1)
add("resizing_bytes", L.Resizing(3, 4), [BYTES], {"height": 3, "width": 4})
for height, width in [(2, 3), (3, 2), (6, 3), (4, 5)]:
    config = {"height": height, "width": width}
    add(f"center_crop_{height}_{width}", L.CenterCrop(**config), [IMAGES], config)
SMALL = Wave((2, 3, 4, 1))
for name, cls, config in [
        ("rotation", L.RandomRotation, {"factor": [0.25, 0.25]}), ("rotation_some", L.RandomRotation, {"factor": [0.1, 0.1]}),
        ("zoom_out", L.RandomZoom, {"height_factor": [0.5, 0.5]}),
        ("zoom_in", L.RandomZoom, {"height_factor": [-0.3, -0.3], "width_factor": [-0.6, -0.6]}),
        ("translation", L.RandomTranslation, {"height_factor": [0.3, 0.3], "width_factor": [-0.45, -0.45]})]:
    for fill in ["reflect", "wrap", "constant", "nearest"]:
        # A quarter turn looks between two pixels, so the nearest one is a matter of rounding.
        for mode in ["bilinear"] if name == "rotation" else ["bilinear", "nearest"]:
            full = {**config, "fill_mode": fill, "interpolation": mode, "fill_value": 0.5}
            add(f"{name}_{fill}_{mode}", cls(**full), [SMALL], full, training=True)
PICTURE = np.abs(wave((2, 3, 3, 2))) * 255
add("brightness", L.RandomBrightness((0.2, 0.2)), [PICTURE], {"factor": [0.2, 0.2]}, training=True)
add("contrast", L.RandomContrast((0.0, 0.0)), [PICTURE], {"factor": [0.0, 0.0]}, training=True)

# ---- words

WORDS = np.array([["b", "a", "b"], ["c", "b", "z"], ["z", "", "a"]], object)
ASKED = np.array([["a", "b", "nope"], ["", "z", "other"]], object)


def lookup(name, cls, config, data, asked):
    layer = cls(**config)
    if data is not None:
        layer.adapt(tf.constant(data))
    outputs = layer(tf.constant(asked))
    cases.append({"name": name, "class": cls.__name__, "config": config,
                  "adapt": [described(data)] if data is not None else None,
                  "inputs": [described(asked)], "outputs": [described(outputs)],
                  "vocabulary": [v if isinstance(v, str) else int(v) for v in layer.get_vocabulary()]})


VOCABULARY = ["a", "b", "z"]
for mode in ["int", "one_hot", "multi_hot", "count", "tf_idf"]:
    lookup(f"strings_adapt_{mode}", L.StringLookup, {"output_mode": mode}, WORDS, ASKED)
    lookup(f"strings_adapt_mask_{mode}", L.StringLookup, {"output_mode": mode, "mask_token": ""}, WORDS, ASKED)
lookup("strings_most", L.StringLookup, {"max_tokens": 3}, WORDS, ASKED)
lookup("strings_padded", L.StringLookup, {"max_tokens": 9, "pad_to_max_tokens": True, "output_mode": "tf_idf"}, WORDS, ASKED)
lookup("strings_given", L.StringLookup, {"vocabulary": VOCABULARY}, None, ASKED)
lookup("strings_given_mask", L.StringLookup, {"vocabulary": VOCABULARY, "mask_token": ""}, None, ASKED)
lookup("strings_given_special", L.StringLookup, {"vocabulary": ["", "[UNK]", "a", "b"], "mask_token": ""}, None, ASKED)
lookup("strings_none_outside", L.StringLookup, {"vocabulary": VOCABULARY, "num_oov_indices": 0}, None,
       np.array(["z", "a"], object))
lookup("strings_buckets", L.StringLookup, {"vocabulary": VOCABULARY, "num_oov_indices": 3}, None, ASKED)
lookup("strings_salted", L.StringLookup, {"vocabulary": VOCABULARY, "num_oov_indices": 3, "salt": [7, 9]}, None, ASKED)
lookup("strings_idf", L.StringLookup,
       {"vocabulary": VOCABULARY, "idf_weights": [0.5, 1.5, 2.5], "output_mode": "tf_idf"}, None, ASKED)
lookup("strings_invert", L.StringLookup, {"vocabulary": VOCABULARY, "invert": True}, None, np.array([[1, 3], [0, 9]]))
lookup("strings_invert_mask", L.StringLookup, {"vocabulary": VOCABULARY, "invert": True, "mask_token": ""}, None,
       np.array([[2, 4], [0, 1]]))
NUMBERS = np.array([[12, 1138, 42], [42, 1000, 36], [42, 12, -1]])
lookup("integers_adapt", L.IntegerLookup, {}, NUMBERS, np.array([[42, 7], [-1, 12]]))
lookup("integers_mask", L.IntegerLookup, {"vocabulary": [12, 36, 42], "mask_token": 0}, None, np.array([[42, 7], [0, 12]]))
lookup("integers_buckets", L.IntegerLookup, {"vocabulary": [12, 36, 42], "num_oov_indices": 3}, None,
       np.array([[37, 1000], [-1, -2], [12, 5]]))
lookup("integers_farmhash", L.IntegerLookup,
       {"vocabulary": [12, 36, 42], "num_oov_indices": 5, "oov_method": "farmhash"}, None, np.array([[37, 1000], [-1, 7]]))
lookup("integers_multi_hot", L.IntegerLookup, {"vocabulary": [12, 36, 42], "output_mode": "multi_hot"}, None, NUMBERS)
lookup("integers_invert", L.IntegerLookup, {"vocabulary": [12, 36, 42], "invert": True}, None, np.array([[1, 3, 0, 8]]))
TEXTS = np.array(["The Cat, the DOG!", "a cat's  nap\tnow", "", "dog dog (dog) it_is"], object)
ASKED_TEXTS = np.array(["the dog naps now", "CAT", "", "Dog; the cat: a mouse is not a dog"], object)
for mode in ["int", "multi_hot", "count", "tf_idf"]:
    lookup(f"texts_{mode}", L.TextVectorization, {"output_mode": mode}, TEXTS, ASKED_TEXTS)
lookup("texts_length", L.TextVectorization, {"output_sequence_length": 3}, TEXTS, ASKED_TEXTS)
lookup("texts_longer", L.TextVectorization, {"output_sequence_length": 12, "max_tokens": 5}, TEXTS, ASKED_TEXTS)
lookup("texts_column", L.TextVectorization, {"output_sequence_length": 3}, TEXTS[:, None], ASKED_TEXTS[:, None])
lookup("texts_one", L.TextVectorization, {"output_sequence_length": 5}, TEXTS, ASKED_TEXTS[3])
for standardize in ["lower", "strip_punctuation", None]:
    lookup(f"texts_{standardize}", L.TextVectorization, {"standardize": standardize}, TEXTS, ASKED_TEXTS)
lookup("texts_characters", L.TextVectorization, {"split": "character"}, np.array(["aé b", "éé"], object),
       np.array(["béa€"], object))
lookup("texts_ngrams", L.TextVectorization, {"ngrams": 2}, TEXTS, ASKED_TEXTS)
lookup("texts_padded", L.TextVectorization, {"max_tokens": 14, "pad_to_max_tokens": True, "output_mode": "count"}, TEXTS,
       ASKED_TEXTS)
lookup("texts_vocabulary", L.TextVectorization, {"vocabulary": ["dog", "cat"]}, None, ASKED_TEXTS)
PREFIXES = np.array([("abcdefghij" * 20)[:n] for n in list(range(0, 70)) + [127, 128, 129, 200]], object)
for salt in (None, 133, [133, 137]):
    config = {"num_bins": 1000003, **({"salt": salt} if salt else {})}
    layer = L.Hashing(**config)
    cases.append({"name": f"hashing_{salt}", "class": "Hashing", "config": config, "adapt": None,
                  "inputs": [described(PREFIXES)], "outputs": [described(layer(tf.constant(PREFIXES)))]})
for config, asked in [({"num_bins": 3, "mask_value": ""}, np.array([["A", "", "B"]], object)),
                      ({"num_bins": 5}, np.array([[1, -2, 30000000000]])),
                      ({"num_bins": 4, "output_mode": "multi_hot"}, np.array([[1, 2], [3, 4]]))]:
    cases.append({"name": f"hashing_{config}", "class": "Hashing", "config": config, "adapt": None,
                  "inputs": [described(asked)], "outputs": [described(L.Hashing(**config)(tf.constant(asked)))]})

# ---- einsum, adaptive pooling, crossed features, spectral norms

for equation, shape, sizes, extra in [
        ("ab,bc->ac", (2, 3), 4, {"bias_axes": "c"}), ("abc,cd->abd", (2, 4, 3), (None, 5), {"bias_axes": "d"}),
        ("...x,xy->...y", (2, 4, 3), 5, {"activation": "relu"}), ("...x,xy->...y", (2, 2, 4, 3), 5, {"bias_axes": "y"}),
        ("ab...,bc->ac...", (2, 3, 4), 5, {"bias_axes": "c"}), ("abc,cde->abde", (2, 4, 3), (None, 2, 5), {"bias_axes": "de"}),
        ("abcd,cde->abe", (2, 4, 3, 2), (None, 5), {"bias_axes": "e"}),
        ("abc,cde->abde", (2, 4, 3), (None, 2, 5), {"bias_axes": "d"})]:
    layer = built(L.EinsumDense(equation, sizes, **extra), shape)
    listed = [sizes] if isinstance(sizes, int) else [-1 if size is None else size for size in sizes]
    add(f"einsum_{equation}_{extra.get('bias_axes')}", layer, [Wave(shape)],
        {"equation": equation, "output_shape": listed, **extra})
for rank, shape, sizes in [(1, (2, 7, 3), (3,)), (2, (2, 5, 7, 2), (2, 3)), (2, (2, 4, 6, 1), (4, 2)),
                           (3, (2, 5, 4, 3, 2), (2, 3, 2))]:
    for kind in ("Average", "Max"):
        cls = getattr(L, f"Adaptive{kind}Pooling{rank}D")
        config = {"output_size": sizes[0] if rank == 1 else list(sizes)}
        add(f"adaptive_{kind}_{rank}_{sizes}", cls(sizes[0] if rank == 1 else sizes), [Wave(shape)], config)
LETTERS = np.array(["A", "B", "A", "B", "longer than sixteen bytes, \u00fcber", ""], object)
NUMBERED = np.array([101, 101, -7, 102, 1 << 40, 0])
for name, config, features in [
        ("crossing", {"num_bins": 5}, [LETTERS, NUMBERED]), ("crossing_many_bins", {"num_bins": 1000003}, [LETTERS, NUMBERED]),
        ("crossing_numbers", {"num_bins": 101}, [NUMBERED, NUMBERED[::-1].copy()]),
        ("crossing_three", {"num_bins": 77}, [NUMBERED[:, None], LETTERS[:, None], LETTERS[::-1, None].copy()]),
        ("crossing_one_hot", {"num_bins": 5, "output_mode": "one_hot"}, [LETTERS, NUMBERED]),
        ("crossing_one_hot_column", {"num_bins": 5, "output_mode": "one_hot"}, [LETTERS[:, None], NUMBERED[:, None]])]:
    given = [tf.constant(list(f.reshape(-1)), shape=f.shape) if f.dtype == object else tf.constant(f) for f in features]
    cases.append({"name": name, "class": "HashedCrossing", "config": config, "adapt": None, "inputs": [described(f) for f in features],
                  "outputs": [described(L.HashedCrossing(**config)(given))]})
for inner, shape, iterations in [(("Dense", {"units": 4}), (3, 5), 1), (("Dense", {"units": 2}), (3, 5), 3),
                                 (("Conv2D", {"filters": 3, "kernel_size": [2, 2]}), (2, 4, 4, 2), 2)]:
    layer = built(L.SpectralNormalization(getattr(L, inner[0])(**inner[1]), power_iterations=iterations), shape)
    weights = [layer.vector_u, layer.layer.kernel, layer.layer.bias]  # Tutti's order
    for i, weight in enumerate(weights):
        weight.assign(wave(weight.shape, 0.3 + i) * np.float32(0.5))
    before = [described(keras.ops.convert_to_numpy(weight)) for weight in weights]
    out = layer(wave(shape), training=True)
    cases.append({"name": f"spectral_{inner[0]}_{iterations}", "class": "SpectralNormalization",
                  "config": {"layer": cell(inner[0], **inner[1]), "power_iterations": iterations},
                  "inputs": [Wave(shape).json()], "weights": before, "training": True, "outputs": [described(out)],
                  "after": [described(keras.ops.convert_to_numpy(weight)) for weight in weights]})

with open(sys.argv[1], "w") as file:
    file.write('{"keras": "%s", "cases": [\n' % keras.__version__)
    file.write(",\n".join(json.dumps(case, sort_keys=True) for case in cases))
    file.write("\n]}\n")
