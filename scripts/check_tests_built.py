#!/usr/bin/env python3
"""What is on disk is built, and what is built runs.

usage: check_tests_built.py BUILD [--ran]

Always: each tests/**/*_test.cpp, examples/*.cpp and benchmarks/**/*_bench.cpp is in the build, and
no test is disabled. With --ran, when everything is built: CTest knows each test case on disk, and a
case that may skip itself carries a CTest label that starts with needs_.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CASE = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
MACRO = re.compile(r"^#define (?:.*\\\n)*.*\n", re.M)
CONTRACT = re.compile(r"^STRATEGY_CONTRACT\(\s*(\w+)\s*\)", re.M)  # tests/contract/strategy_contract.h
SKIP = re.compile(r"\bGTEST_SKIP\b")
DISABLED = re.compile(r"\bDISABLED_\w+")


def on_disk():
    tests = sorted((ROOT / "tests").rglob("*_test.cpp"))
    outside = ROOT / "tests/consumer"  # a project of its own
    return [t for t in tests if outside not in t.parents], sorted((ROOT / "examples").glob("*.cpp"))


def check_built(build, tests, examples):
    commands = json.loads((build / "compile_commands.json").read_text())
    built = {Path(c["directory"], c["file"]).resolve() for c in commands}
    for path in [*tests, *examples]:
        if path.resolve() not in built:
            yield f"{path.relative_to(ROOT)}: on disk, but no target of {build.name} builds it"
    for path in tests:
        for name in DISABLED.findall(path.read_text()):
            yield f"{path.relative_to(ROOT)}: {name} never runs; mend it or remove it"


def ctest_cases(build):
    """Each test that CTest knows, with its labels."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                             capture_output=True, text=True, check=True).stdout
    for test in json.loads(listing)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        yield test["name"], properties.get("LABELS", [])


def check_ran(build, tests):
    labels = {}
    for name, its_labels in ctest_cases(build):
        if name.endswith("_NOT_BUILT"):
            yield f"{name}: CTest has a test whose program was not built"
        labels[name] = its_labels
    # A parametrised case is Prefix/Suite.Name/7 to CTest, a typed one Suite/0.Name.
    plain = {}
    for name, its_labels in labels.items():
        for suite, case in re.findall(r"(\w+)(?:/\w+)?\.(\w+)(?=/|$|\s)", name):
            plain.setdefault(f"{suite}.{case}", set()).update(its_labels)
    for path in [*tests, *sorted((ROOT / "tests/contract").rglob("*.h"))]:
        text = MACRO.sub("", path.read_text())
        for suite, case in [*CASE.findall(text), *(("StrategyContract", name) for name in CONTRACT.findall(text))]:
            if f"{suite}.{case}" not in plain:
                yield f"{path.relative_to(ROOT)}: {suite}.{case} is on disk, but CTest does not run it"
            elif SKIP.search(text) and not any(l.startswith("needs_") for l in plain[f"{suite}.{case}"]):
                yield (f"{path.relative_to(ROOT)}: {suite}.{case} may skip itself; say so by a CTest label "
                       "needs_<what>, or remove GTEST_SKIP")


def main():
    build = Path(sys.argv[1]).resolve()
    tests, examples = on_disk()
    errors = list(check_built(build, tests, examples))
    if "--ran" in sys.argv:
        errors += check_ran(build, tests)
    for error in errors:
        print(error)
    print(f"    {len(tests)} test files, {len(examples)} examples, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
