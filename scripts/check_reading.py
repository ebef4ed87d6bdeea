#!/usr/bin/env python3
"""Fails if a symbol that docs/reading.md promises is no longer in its file, or if README.md's program is not the one that is built.

A promise is a line with a path and a symbol in backquotes, in this order:
    1. `src/distribute/replica_pool.cpp` `ReplicaPool::run`: what it does.
`Class::method` is found as written, or as `method` in a file that has `Class` too.
A path alone in backquotes that starts with a folder of the project must exist.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATH = r"`((?:include|src|tests|examples|docs|cmake|scripts|benchmarks)/[\w./*-]+)`"
PROGRAM = "examples/short_program.cpp"
PAIR = re.compile(PATH + r"\s+`([\w:~]+)`")


def defines(text, symbol):
    if re.search(rf"\b{re.escape(symbol)}\b", text):
        return True
    return all(re.search(rf"\b{re.escape(part)}\b", text) for part in symbol.split("::"))


def main():
    page = (ROOT / "docs/reading.md").read_text()
    errors = []
    for path in sorted(set(re.findall(PATH, page))):
        if not list(ROOT.glob(path.rstrip("/"))):
            errors.append(f"docs/reading.md: {path} does not exist; follow the code to where it went")
    pairs = PAIR.findall(page)
    for path, symbol in pairs:
        file = ROOT / path
        if file.is_file() and not defines(file.read_text(), symbol):
            errors.append(f"docs/reading.md: {path} has no {symbol}; follow the code to where it went")
    program = (ROOT / "README.md").read_text().split("```cpp\n", 1)[1].split("```", 1)[0]
    if not (ROOT / PROGRAM).read_text().endswith(program):
        errors.append(f"README.md: its first program is not {PROGRAM}; make them the same")
    for error in errors:
        print(error)
    print(f"    {len(pairs)} steps, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
