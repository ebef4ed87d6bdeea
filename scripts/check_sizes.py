#!/usr/bin/env python3
"""Prints the ten largest files and functions, and fails over the last column of CONTRIBUTING.md's budgets.

Functions are measured by their closing brace, which clang-format puts at the indent of the head:
rough, but it needs no parser.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = {".cpp": 800, ".h": 400}
MOST_FUNCTION_LINES = 120
NOT_A_FUNCTION = re.compile(r"\s*(namespace|class|struct|union|enum|extern|using|typedef)\b|.*[=]\s*\{?$")


def files():
    for folder in ("include", "src", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in MOST_LINES:
                yield path, path.read_text(errors="replace").splitlines()


def functions(lines):
    """(lines, first line number, head) of each block that starts with a parameter list."""
    head = None  # (line number, indent, text) of a declaration that has begun
    open_at = []
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if open_at and re.match(r"\s*\}", line) and indent == open_at[-1][1]:
            start, _, text = open_at.pop()
            yield number - start + 1, start, text
        elif not line.strip() or line.lstrip().startswith(("//", "#", "}", ":", "public", "private")):
            continue
        else:
            if head is None:
                head = (number, indent, line.strip())
            if line.rstrip().endswith("{"):
                # Only outermost bodies count: lambdas and blocks are part of theirs.
                if "(" in head[2] and not NOT_A_FUNCTION.match(head[2]) and not open_at:
                    open_at.append(head)
                head = None
            elif line.rstrip().endswith((";", "}")):
                head = None


def main():
    sizes, bodies, errors = [], [], []
    for path, lines in files():
        name = path.relative_to(ROOT)
        sizes.append((len(lines), str(name)))
        if len(lines) > MOST_LINES[path.suffix]:
            errors.append(f"{name}: {len(lines)} lines, at most {MOST_LINES[path.suffix]}; split it")
        for length, start, head in functions(lines):
            bodies.append((length, f"{name}:{start}  {head[:60]}"))
            if length > MOST_FUNCTION_LINES:
                errors.append(f"{name}:{start}: a function of {length} lines, "
                              f"at most {MOST_FUNCTION_LINES}; split it")
    for title, entries in (("files", sizes), ("functions", bodies)):
        print(f"    largest {title}")
        for length, name in sorted(entries, reverse=True)[:10]:
            print(f"    {length:6}  {name}")
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
