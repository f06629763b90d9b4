#!/usr/bin/env python3
"""Checks that the documents name only what exists.

In every .md file outside tests/fixtures: the target of a relative link; `a/path` in backquotes that begins with one of the
project's folders; and of `a/path.cc:name` also that the file contains the name. Usage: check_docs.py [ROOT]
"""
import glob
import os
import re
import sys

from cxx_source import finish, line_of, project_files, read

FOLDERS = "intarsia|tests|bench|docs|examples|tools|cmake"
CODE_PATH = re.compile(rf"`((?:{FOLDERS})/[^`\s:]*)(?::([A-Za-z_]\w*)(?:\(\))?)?`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def exists(root, path):
    """Whether the path, in which * stands for any part of a name and {a,b} for alternatives, names at least one file."""
    alternatives = re.search(r"\{([^{}]*)\}", path)
    if alternatives:
        head, tail = path[:alternatives.start()], path[alternatives.end():]
        return all(exists(root, head + part.strip() + tail) for part in alternatives.group(1).split(","))
    return bool(glob.glob(os.path.join(glob.escape(root), path)))


def check_document(root, path, text):
    # Fenced blocks hold commands and output, not references.
    text = FENCE.sub(lambda m: "\n" * m.group().count("\n"), text)
    for match in CODE_PATH.finditer(text):
        target, name = match.groups()
        if "..." in target or "<" in target:  # a pattern in words, no path
            continue
        where = f"{path}:{line_of(text, match.start())}"
        if not exists(root, target):
            yield f"{where}: {target} does not exist"
        elif name and not re.search(rf"\b{name}\b", read(root, target) or ""):
            yield f"{where}: {target} has no {name}"
    for match in LINK.finditer(text):
        target = match.group(1)
        if "://" in target or target.startswith("mailto:"):
            continue
        if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            yield f"{path}:{line_of(text, match.start())}: link to {target}, which does not exist"


def check(root):
    problems = []
    for path in project_files(root):
        if path.endswith(".md") and not path.startswith("tests/fixtures/"):
            problems += check_document(root, path, read(root, path) or "")
    return problems


if __name__ == "__main__":
    sys.exit(finish("check_docs", check(sys.argv[1] if len(sys.argv) > 1 else ".")))
