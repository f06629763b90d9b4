#!/usr/bin/env python3
"""Holds every #include against the layer table.

The table is the intarsia_folder(...) lines of intarsia/CMakeLists.txt: a folder may include itself and the folders its
line names, all of which stand above it. Unit tests obey their folder's line too; cli, tests, bench and examples may
include every folder. Usage: check_layers.py [ROOT]
"""
import os
import re
import sys

from cxx_source import code_only, finish, is_test, line_of, project_files, read

TABLE = "intarsia/CMakeLists.txt"
TORCH_HEADER = re.compile(r"(ATen|c10|torch)/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)


class Folder:
    def __init__(self, name, torch, deps):
        self.name, self.torch, self.deps = name, torch, deps


def read_table(text):
    """The folders by name, in the order of the table, and what is wrong with the table itself."""
    folders, problems = {}, []
    text = re.sub(r"#[^\n]*", "", text)
    for match in re.finditer(r"intarsia_folder\(([^)]*)\)", text):
        words = match.group(1).split()
        name, torch, deps, part = words[0], "TORCH" in words, [], None
        for word in words[1:]:
            if word in ("DEPS", "LIBS", "TORCH"):
                part = word
            elif part == "DEPS":
                deps.append(word)
        for dep in deps:
            if dep not in folders:
                problems.append(f"{TABLE}: {name} names {dep}, which does not stand above it")
            elif folders[dep].torch and not torch:
                problems.append(f"{TABLE}: {name} is without torch, but names {dep}, which has torch")
        folders[name] = Folder(name, torch, deps)
    if not folders:
        problems.append(f"{TABLE}: no intarsia_folder(...) line found")
    return folders, problems


def folder_of(path):
    """The folder of intarsia/ that a path lies in, or None."""
    parts = path.split("/")
    return parts[1] if parts[0] == "intarsia" and len(parts) > 2 else None


def without_torch(path, folders):
    folder = folder_of(path)
    if folder in folders:
        return not folders[folder].torch
    return path.startswith("intarsia/cli/commands/")


def check_include(path, target, quoted, folders, exists):
    """What is wrong with one #include of `path`, or None."""
    if TORCH_HEADER.match(target):
        return f"includes <{target}>, but is to build without torch" if without_torch(path, folders) else None
    if not quoted:
        return None
    if not path.startswith("intarsia/") and exists(os.path.join(os.path.dirname(path), target)):
        return None  # tests and examples may name what lies beside them
    if not target.startswith(("intarsia/", "tests/", "bench/")):
        return f'includes "{target}": write the path from the repository root, "intarsia/FOLDER/FILE.h"'
    if not exists(target):
        return f'includes "{target}", which does not exist'
    mine, other = folder_of(path), folder_of(target)
    if other == "config" and mine in ("train", "api") and not os.path.basename(path).startswith("assemble"):
        return f'includes "{target}": of {mine} only assemble.cc sees the configuration; take it from RunPlan'
    if "/internal/" in target and mine != other:
        return f'includes "{target}", which is internal to {other}'
    if mine is not None and not is_test(path) and (is_test(target) or target.startswith("bench/")):
        return f'includes "{target}", which is not part of the library'
    if other is None or mine == other:
        return None
    if mine in folders:
        if other not in folders[mine].deps:
            return f'includes "{target}", but the table lets {mine} include only: {" ".join(folders[mine].deps) or "nothing"}'
    elif mine not in (None, "cli"):
        return f'{mine} has no line in {TABLE}'
    elif other in folders and folders[other].torch and without_torch(path, folders):
        return f'includes "{target}" of {other}, which needs torch, but is to build without torch'
    return None


def check(root):
    folders, problems = read_table(read(root, TABLE) or "")
    for path in project_files(root):
        if not path.endswith((".h", ".cc")):
            continue
        text = read(root, path) or ""
        if path.endswith(".h") and not path.startswith("cmake/") and "#pragma once" not in code_only(text):
            problems.append(f"{path}: has no #pragma once")
        # A commented-out include is none; its quotes are needed, so only comments are blanked here.
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
        for match in INCLUDE.finditer(text):
            wrong = check_include(path, match.group(2), match.group(1) == '"', folders,
                                  lambda p: os.path.exists(os.path.join(root, p)))
            if wrong:
                problems.append(f"{path}:{line_of(text, match.start())}: {wrong}")
    return problems


if __name__ == "__main__":
    sys.exit(finish("check_layers", check(sys.argv[1] if len(sys.argv) > 1 else ".")))
