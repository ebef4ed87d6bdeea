#!/usr/bin/env python3
"""Holds the includes of include/ and src/ against cmake/layers.txt, which CMake's link lines come from too.

- a file of module W includes only W and the modules W may use;
- no public header includes torch/torch.h or gRPC, and none but tutti/tutti.h includes more of
  LibTorch than ATen/core/Tensor.h and c10;
- there are at most 120 public headers, tests/ and examples/ aside; an example includes only those;
- tutti/tutti.h, "all of it", reaches every one of them.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_PUBLIC_HEADERS = 120
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
LIBTORCH = re.compile(r"^(ATen|torch|c10|caffe2)/")
ALL = "(all)"  # tutti/tutti.h and tutti/version.h belong to no module


def read_layers():
    layers, private = {}, set()
    for line in (ROOT / "cmake/layers.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            word, kind, uses, outside = line.split()
            split = lambda field: set() if field == "-" else set(field.split(","))
            layers[word] = (split(uses), split(outside))
            if kind == "private":
                private.add(word)
    return layers, private


def includes(path):
    return INCLUDE.findall(path.read_text(errors="replace"))


def module_of(include, layers):
    """The module that an include names: tutti/<word>/… or <word>/…"""
    parts = include.removeprefix("tutti/").split("/")
    return parts[0] if len(parts) > 1 and parts[0] in layers else None


def check_module_file(path, word, layers):
    uses, outside = layers[word]
    for include in includes(path):
        used = module_of(include, layers)
        if used and used != word and used not in uses:
            yield f'includes "{include}", but {word} may use only: {", ".join(sorted(uses)) or "nothing"}'
        if include == "tutti/tutti.h":
            yield "includes tutti/tutti.h, which is for programs; include what is used"
        if LIBTORCH.match(include) and "torch" not in outside:
            yield f'includes "{include}", but {word} is a module without LibTorch'


def check_public_header(path):
    everything = path == ROOT / "include/tutti/tutti.h"
    for include in includes(path):
        if include.startswith(("grpc", "google/protobuf")):
            yield f'includes "{include}": gRPC and protobuf stay in src/rpc'
        elif include == "torch/torch.h":
            yield "includes torch/torch.h (30 s a unit); keep it in a .cpp"
        elif LIBTORCH.match(include) and not everything:
            if include != "ATen/core/Tensor.h" and not include.startswith("c10/"):
                yield f'includes "{include}"; a public header includes at most ATen/core/Tensor.h and c10'
        elif include.split("/")[0] != "tutti" and (ROOT / "src" / include).exists():
            yield f'includes the private header "{include}"'


def reached_from(path, seen):
    """The public headers that `path` includes, and those that they include."""
    for include in includes(path):
        header = ROOT / "include" / include
        if header.exists() and header not in seen:
            seen.add(header)
            reached_from(header, seen)
    return seen


def main():
    layers, private = read_layers()
    errors = []

    def note(path, messages):
        errors.extend(f"{path.relative_to(ROOT)}: {message}" for message in messages)

    public = sorted((ROOT / "include/tutti").rglob("*.h"))
    if len(public) > MOST_PUBLIC_HEADERS:
        errors.append(f"include/tutti: {len(public)} public headers, expected at most {MOST_PUBLIC_HEADERS}; "
                      "merge or make private")
    for path in public:
        parts = path.relative_to(ROOT / "include/tutti").parts
        word = parts[0] if len(parts) > 1 else ALL
        note(path, check_public_header(path))
        if word in private:
            note(path, [f"module {word} is private: it has no public headers"])
        elif word in layers:
            note(path, check_module_file(path, word, layers))
        elif word != ALL:
            note(path, [f"folder {word} has no line in cmake/layers.txt"])
    everything = ROOT / "include/tutti/tutti.h"
    reached = reached_from(everything, {everything})
    note(everything, (f'does not reach "{path.relative_to(ROOT / "include")}"' for path in public if path not in reached))
    for path in sorted((ROOT / "src").rglob("*.[hc]*")):
        word = path.relative_to(ROOT / "src").parts[0]
        if word in layers:
            note(path, check_module_file(path, word, layers))
        elif (ROOT / "src" / word).is_dir():
            note(path, [f"folder {word} has no line in cmake/layers.txt"])
    for path in sorted((ROOT / "examples").glob("*.cpp")):
        note(path, (f'includes "{i}": an example includes public headers only'
                    for i in includes(path) if (ROOT / "src" / i).exists()))

    for error in errors:
        print(error)
    print(f"    {len(public)} public headers, {len(layers)} modules, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
