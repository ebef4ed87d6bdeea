#!/usr/bin/env python3
"""Holds docs/api.md against TensorFlow's names and against the public headers.

docs/tensorflow_names.json has every public name with its members. In the page

- a heading that is one name in backquotes (`tf.distribute.Strategy`) says what the tables below it are about: names in their first
  column are members of it, unless they begin with `tf.`;
- the second column is the counterpart: C++ names in backquotes, or "issue N", "later" or "not in C++", with the reason;
- a third column of four names the header below include/tutti;
- the last column is free, but: "members as `NAME`" stands for all rows of NAME, names in backquotes beside a class without a
  counterpart stand for its members, and `…Options` for the arguments;
- the tables below "Tutti's own" list what has no TensorFlow name: class, members ("all": every one), why.

Errors: a name or member of TensorFlow without a row; a row of a name that TensorFlow does not have; a counterpart that no public
header declares, or not in the header that the row names; none, though a header declares the name itself; a public member of a class of include/tutti/distribute that no row
mentions.
"""
import copy
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/api.md"
NAMES = ROOT / "docs/tensorflow_names.json"
INCLUDE = ROOT / "include/tutti"
CODE = re.compile(r"`([^`]+)`")
WITHOUT_COUNTERPART = re.compile(r"issue [567]\b|later\b|not in C\+\+")
FOREIGN = ("std::", "at::", "torch::", "c10::")


# --- the headers -------------------------------------------------------------------------------

class Entity:
    """A namespace member: a class with its members, or a function, variable or alias."""

    def __init__(self, name, kind, header, bases=(), target=None):
        self.name, self.kind, self.header, self.bases, self.target = name, kind, header, bases, target
        self.parameters = []  # a template's, by name
        self.arguments = []   # of an alias' target
        self.members = {}  # name -> (access, is an override)
        self.is_public = True  # no enclosing class hides it


def without_noise(text):
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^\s*#[^\n]*", " ", text, flags=re.M)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    return re.sub(r"'(?:\\.|[^'\\])'", "0", text).replace("->", "  ")


def closing(text, start):
    """Index behind the bracket that closes the one at `start`."""
    pairs = {"(": ")", "{": "}", "[": "]", "<": ">"}
    opening, end, depth = text[start], pairs[text[start]], 0
    for i in range(start, len(text)):
        if text[i] == opening:
            depth += 1
        elif text[i] == end:
            depth -= 1
            if depth == 0:
                return i + 1
    raise ValueError(f"no {end} for the {opening} in: {text[start:start + 80]}")


def stripped_head(head):
    """A declaration without template<…>, attributes, requires(…) and decltype(…)."""
    head = re.sub(r"\[\[.*?\]\]", " ", head)
    for word in (r"\btemplate\s*(?=<)", r"\brequires\s*(?=\()", r"\bdecltype\s*(?=\()", r"\balignas\s*(?=\()"):
        while found := re.search(word, head):
            head = head[:found.start()] + " auto " * word.count("decltype") + head[closing(head, found.end()):]
    return " ".join(head.split())


def declared_name(head):
    """What a declaration that is no class declares, or None."""
    if re.search(r"\boperator\b|^friend\b|^static_assert\b|^typedef\b|~", head):
        return None
    depth, cut = 0, len(head)
    for i, char in enumerate(head):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if depth == 0 and char in "(={[":
            cut = i
            break
    found = re.search(r"(\w+)\s*$", head[:cut])
    is_member_defined_outside = re.search(r"\w\s*::\s*\w+\s*$", head[:cut])
    return found[1] if found and not found[1].isdigit() and not is_member_defined_outside else None


class Headers:
    CLASS = re.compile(r"^(class|struct|union)\s+(\w+)\s*(<.*>)?\s*(?:final\s*)?(?::(?!:)(.*))?$", re.S)
    ENUM = re.compile(r"^enum\s+(?:class\s+|struct\s+)?(\w+)")

    def __init__(self, folder):
        self.entities = {}
        for path in sorted(folder.rglob("*.h")):
            self.header = path.relative_to(folder).as_posix()
            self._scope(without_noise(path.read_text()), "", None)

    def _scope(self, text, space, owner):
        """Declarations of a namespace (`owner` None) or class body."""
        access = "private" if owner and owner.kind == "class" else "public"
        i = start = 0
        while i < len(text):
            char = text[i]
            if char == "(":
                i = closing(text, i)
            elif char == ":" and owner and (label := re.fullmatch(r"\s*(public|protected|private)\s*", text[start:i])):
                access = label[1]
                i = start = i + 1
            elif char == ";":
                self._declare(stripped_head(text[start:i]), space, owner, access)
                i = start = i + 1
            elif char == "{":
                end = closing(text, i)
                raw = text[start:i]
                if self._opens(raw, text[i + 1:end - 1], space, owner, access):
                    start = end
                i = end
            elif char == "}":
                raise ValueError(f"{self.header}: a closing brace too many")
            else:
                i += 1

    def _opens(self, raw, body, space, owner, access):
        """What a brace after `raw` begins; true when the declaration ends with its partner."""
        head = stripped_head(raw)
        if re.match(r"(inline )?namespace\b", head):
            name = head.split()[-1] if head.split()[-1] != "namespace" else "(anonymous)"
            self._scope(body, f"{space}::{name}" if space else name, None)
            return True
        if found := self.CLASS.match(head):
            kind, name, special, bases = found.groups()
            if special:
                return False  # a specialisation declares nothing new
            bases = [re.sub(r"\b(public|protected|private|virtual)\b|<.*", "", base).strip()
                     for base in re.split(r",(?![^<]*>)", bases or "")]
            entity = Entity(name, kind, self.header, [b for b in bases if b])
            if template := re.match(r"\s*template\s*(?=<)", raw):
                text = raw[template.end() + 1:closing(raw, template.end()) - 1]
                entity.parameters = re.findall(r"(\w+)\s*(?=,|$)", text)
            self._add_class(entity, body, space, owner, access)
            return False  # up to the semicolon
        if found := self.ENUM.match(head):
            entity = Entity(found[1], "enum", self.header)
            for item in body.split(","):
                if name := re.match(r"\s*(\w+)", item):
                    entity.members[name[1]] = ("public", False)
            self._add(entity, space, owner, access)
            return False
        if re.search(r"\brequires\s*$", raw) or "(" not in head or head.endswith("="):
            return False  # an initialiser, up to the semicolon
        self._declare(head, space, owner, access)
        return True

    def _add_class(self, entity, body, space, owner, access):
        name = self._add(entity, space, owner, access)
        self._scope(body, name, entity)

    def _add(self, entity, space, owner, access):
        if owner:
            owner.members.setdefault(entity.name, (access, False))
        full = f"{space}::{entity.name}" if space else entity.name
        self.entities[full] = entity
        entity.space, entity.full = space, full
        entity.is_public = access == "public" and (not owner or owner.is_public)
        return full

    def _declare(self, head, space, owner, access):
        if not head or self.CLASS.match(head) or self.ENUM.match(head):
            return  # a forward declaration, or what stands between a class body and its semicolon
        arguments = []
        if found := re.match(r"(?:using|namespace)\s+(\w+)\s*=\s*([\w:]*)(?:<(.*)>)?", head):
            name, target, arguments = found[1], found[2], re.split(r",(?![^<]*>)", found[3] or "")
        elif found := re.match(r"using\s+(?!namespace\b)([\w:]+)$", head):
            name, target = found[1].split("::")[-1], found[1]
        else:
            name, target = declared_name(head), None
        if not name or (owner and name in (owner.name, *owner.bases)):
            return  # constructors, inherited ones too
        if owner:
            owner.members.setdefault(name, (access, bool(re.search(r"\boverride\b", head))))
        else:
            full = f"{space}::{name}" if space else name
            if full not in self.entities:
                entity = Entity(name, "alias" if target else "name", self.header, target=target)
                entity.arguments = [argument.strip() for argument in arguments]
                self._add(entity, space, None, access)

    # ---- looking things up

    def find(self, path, space):
        """The entity that `path` names inside namespace or class `space`."""
        while True:
            full = f"{space}::{path}" if space else path
            if full in self.entities:
                return self._followed(self.entities[full])
            head, _, rest = full.rpartition("::")
            if rest and head in self.entities and self.entities[head].kind == "alias":
                if (parent := self._followed(self.entities[head])) and (found := self.entities.get(f"{parent.full}::{rest}")):
                    return found
            if not space:
                return None
            space = space.rpartition("::")[0]

    def _followed(self, entity):
        if entity.kind != "alias":
            return entity
        target = self.find(entity.target, entity.space)
        if not target or target is entity:
            return entity
        given = dict(zip(target.parameters, entity.arguments))
        if not any(base in given for base in target.bases):
            return target
        filled = copy.copy(target)  # a template that derives from its argument
        filled.bases = [given.get(base, base) for base in target.bases]
        return filled

    def member(self, entity, name):
        """(declaring class, access) of a member of the class or of its bases."""
        if name in entity.members:
            return entity, entity.members[name][0]
        for base in entity.bases:
            parent = self.find(base, entity.space)
            if parent and (found := self.member(parent, name)):
                return found
        return None


# --- the page ----------------------------------------------------------------------------------

class Row:
    def __init__(self, line, subject, cells):
        self.line, self.cells = line, cells
        self.names = [n if n.startswith("tf.") else f"{subject}.{n}" for n in CODE.findall(cells[0])]
        self.counterpart, self.remarks = cells[1], cells[-1]
        self.header = cells[2] if len(cells) > 3 else ""
        self.subject = subject
        self.has_counterpart = not WITHOUT_COUNTERPART.match(self.counterpart)


def read_page(text):
    """Rows of TensorFlow's names, and rows of Tutti's own."""
    rows, own, subject, in_own = [], [], "", False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            in_own = in_own and line.startswith("###") or "Tutti's own" in line
            found = re.fullmatch(r"#+\s+`(tf[\w.]*)`", line.strip())
            subject = found[1] if found else subject if line.startswith("####") else ""
        elif line.startswith("|") and not re.match(r"\|\s*:?-", line):
            if number < len(lines) and re.match(r"\|\s*:?-", lines[number]):
                continue  # the table's head
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            (own if in_own else rows).append(Row(number, subject, cells))
    return rows, own


class Check:
    def __init__(self, headers, names, rows, own):
        self.headers, self.names, self.rows, self.own = headers, names, rows, own
        self.errors = []
        self.row_of = {}          # TensorFlow's full name -> row
        self.mentioned = set()    # (class, member) of the headers
        self.members_of = {name: {f"{name}.{member}" for member in members} for name, members in names.items()}
        self.known = set(names).union(*self.members_of.values())

    def fail(self, row, message):
        self.errors.append(f"docs/api.md:{row.line}: {message}")

    def run(self):
        for row in self.rows:
            for name in row.names:
                if name not in self.known:
                    self.fail(row, f"{name} is no public name of TensorFlow; mend the spelling or the heading above")
                if name in self.row_of:
                    self.fail(row, f"{name} has a row already, in line {self.row_of[name].line}")
                self.row_of[name] = row
        self.classes = {name: self._class_of(name) for name in self.names if name in self.row_of}
        for row in self.rows:
            self._check_counterpart(row)
        covered = set(self.row_of)
        for name in self.names:
            covered |= self._covered_members(name, ())
        for name in sorted(self.known - covered):
            self.errors.append(f"docs/api.md: no row for {name}; add its counterpart, the issue that brings it, or why it "
                               "is not in C++")
        self._check_own()
        self._check_distribute()
        return self.errors

    def _class_of(self, name):
        """The C++ class of a TensorFlow class: the first counterpart of its row."""
        row = self.row_of[name]
        spans = CODE.findall(row.counterpart) if row.has_counterpart else []
        return self._resolve(spans[0], None) if spans and self.names[name] else None

    def _covered_members(self, name, seen):
        row = self.row_of.get(name)
        if not row or name in seen:
            return set()
        covered = {n for n in self.members_of[name] if n in self.row_of}
        if not row.has_counterpart:
            covered |= {f"{name}.{span}" for span in CODE.findall(row.remarks)}
        for other in re.findall(r"members as `([^`]+)`", row.remarks):
            if other not in self.names:
                self.fail(row, f"members as `{other}`: no class of TensorFlow")
                continue
            if (mine := self.classes.get(name)) and mine.kind in ("class", "struct"):
                for member in sorted(self.members_of[other] & set(self.row_of)):
                    its = self.row_of[member]
                    for span in CODE.findall(its.counterpart) if its.has_counterpart else []:
                        if "::" not in span and not self._resolve(span, mine):
                            self.fail(row, f"members as `{other}`, but {mine.full} has no {span}")
            its_covered = self._covered_members(other, (*seen, name))
            covered |= {f"{name}.{n.removeprefix(other + '.')}" for n in its_covered}
        return covered

    def _resolve(self, span, owner):
        """The entity that a counterpart names; a member's is that of the class that declares it."""
        path = re.match(r"[\w:]+", span)
        if not path:
            return None
        path = path[0]
        if owner:
            head, *rest = path.split("::")
            found = self.headers.member(owner, head)
            if found and found[1] != "private" and not rest:
                self.mentioned.add((found[0].full, head))
                return found[0]
        space = owner.space if owner else "tutti"
        if entity := self.headers.find(path, space):
            return entity
        parent, _, member = path.rpartition("::")
        entity = parent and self.headers.find(parent, space)
        found = entity and self.headers.member(entity, member)
        if found and found[1] != "private":
            self.mentioned.add((found[0].full, member))
            return found[0]
        return None

    def _namesake(self, name):
        """The public C++ name that is spelled as TensorFlow's, if it is declared."""
        path = "::".join(part.removeprefix("experimental_") for part in name.split(".")[1:] if part != "experimental")
        if f"tutti::{path}" in self.headers.entities:
            return f"tutti::{path}"
        parent, _, member = path.rpartition("::")
        entity = self.headers.entities.get(f"tutti::{parent}")
        found = entity and self.headers.member(entity, member)
        return f"tutti::{path}" if found and found[1] == "public" else None

    def _check_counterpart(self, row):
        if not row.has_counterpart:
            for name in row.names:
                if same := self._namesake(name):
                    self.fail(row, f"{name} has no counterpart here, but {same} is declared; say so")
            return
        if not row.names:
            return
        spans = CODE.findall(row.counterpart)
        if not spans:
            self.fail(row, f"{row.counterpart!r}: expected a C++ name in backquotes, \"issue 5\" to \"issue 7\", \"later\" or "
                           "\"not in C++\"")
        owner = self.classes.get(row.subject)
        for number, span in enumerate(spans):
            if span.startswith(FOREIGN):
                continue
            entity = self._resolve(span, owner)
            if not entity:
                self.fail(row, f"`{span}`: no public header declares it" + (f" in {owner.full}" if owner else ""))
            elif row.header and number == 0:
                header = CODE.findall(row.header)[0]
                if not self._declared_in(span, entity, header):
                    self.fail(row, f"`{span}` is declared in {entity.header}, not in {header}")

    def _declared_in(self, span, entity, header):
        if entity.header == header:
            return True
        path = re.match(r"[\w:]+", span)[0]  # an alias of a class of another header
        return any(e.header == header and full.endswith(path) for full, e in self.headers.entities.items())

    def _check_own(self):
        for row in self.own:
            spans = CODE.findall(row.cells[0])
            for span in spans:
                entity = self.headers.find(span, "tutti")
                if not entity:
                    self.fail(row, f"`{span}`: no public header declares it")
                    continue
                members = list(entity.members) if row.cells[1] == "all" else CODE.findall(row.cells[1])
                for member in members:
                    found = self.headers.member(entity, re.match(r"\w+", member)[0])
                    if not found:
                        self.fail(row, f"`{member}`: {entity.full} does not declare it")
                    else:
                        self.mentioned.add((found[0].full, re.match(r"\w+", member)[0]))

    def _check_distribute(self):
        """Every public member of a public class of the distribute headers has a row."""
        options = {span for row in self.rows for span in CODE.findall(row.remarks) if span.endswith("Options")}
        for full, entity in self.headers.entities.items():
            if not entity.header.startswith("distribute/") or "internal" in full.split("::") or not entity.is_public:
                continue
            if entity.name in options:
                continue  # its fields are the arguments of what the row names
            for member, (access, overrides) in entity.members.items():
                if access == "public" and not overrides and (full, member) not in self.mentioned:
                    self.errors.append(f"include/tutti/{entity.header}: {full}::{member} has no row in docs/api.md; add it to "
                                       "its TensorFlow class or to \"Tutti's own\"")


def main():
    headers = Headers(INCLUDE)
    names = json.loads(NAMES.read_text())
    rows, own = read_page(PAGE.read_text())
    errors = Check(headers, names, rows, own).run()
    for error in errors:
        print(error)
    total = len(names) + sum(len(members) for members in names.values())
    print(f"    {len(names)} names and {total - len(names)} members of TensorFlow, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
