#!/usr/bin/env python3
"""Refuses calls, words, paths and file lengths that the project does without.

- Calls that end the process or print behind the caller's back: errors are intarsia::Error (intarsia/base/error.h).
- Words that stand for work not done, and second words for a concept of docs/glossary.md.
- Paths of one machine.
- Files over 800 lines; those over 400 are listed.
Usage: check_words.py [ROOT]
"""
import re
import sys

from cxx_source import code_only, finish, is_test, line_of, project_files, read

LONGEST, LONG = 800, 400
FOLDERS_OF_CODE = ("intarsia/", "tests/", "bench/", "examples/", "tools/", "cmake/", ".ci/")

# In the library's code, unit tests excepted: pattern, what to do instead.
CALLS = [
    (r"\b(?:TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT\w*|AT_ASSERT\w*)\s*\(", "use INTARSIA_CHECK or INTARSIA_INVARIANT"),
    (r"(?<![\w.>])assert\s*\(", "use INTARSIA_INVARIANT"),
    (r"(?:\bstd::|(?<![\w.>:]))(?<!void )abort\s*\(\s*\)", "throw intarsia::Error"),
    (r"(?:\bstd::|(?<![\w.>:])(?:::)?)(?:_|quick_)?exit\s*\(", "throw intarsia::Error"),
    (r"(?<![\w.>])(?:std::)?(?:|v|f|vf|s|vs|d)printf\s*\(", "use intarsia/base/log.h, or std::to_chars"),
    (r"(?<![\w.>])(?:std::)?f?puts\s*\(", "use intarsia/base/log.h"),
]
# (file, call) pairs that may: where a process really ends.
ALLOWED_CALLS = {
    ("intarsia/launch/", "_exit"),  # a forked rank must not run its parent's destructors
    ("intarsia/cli/", "_exit"),  # the same
    ("intarsia/train/process.cc", "_exit"),  # a second Ctrl-C, in its signal handler
}

# Second words for a concept, in identifiers below the readers: pattern, the word of docs/glossary.md.
# The readers, and the commands that show them, speak the language of the files they read.
SYNONYMS = [
    (r"(?<!std::)(?<!std::stable_)\b(?!hpz_partition_size)\w*partition\w*", "shard"),
    (r"\b\w*(?:bucket|Bucket)\w*", "unit (what is gathered), reduce buffer (what is reduced)"),
    (r"\b\w*(?:flat_param|FlatParam)\w*", "flat buffer of a unit"),
    (r"\bmesh_dim\w*|\b\w*_mesh_dim\b", "axis"),
    (r"(?<!config\.)\b\w*(?:activation_checkpoint|ActivationCheckpoint)\w*", "recompute"),
    (r"\b\w*(?:world_rank|global_rank)\b", "rank"),
]
SPEAK_FOREIGN = ("intarsia/config/", "intarsia/formats/", "intarsia/cli/", "intarsia/checkpoint/", "intarsia/io/", "intarsia/base/")

UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# Paths of the machine of whoever wrote it. Tests may name /tmp.
MACHINE = re.compile(r"(?<![\w.}\])$*-])/(?:work|root|home)/\w")
MACHINE_TMP = re.compile(r"(?<![\w.}\])$*-])/tmp/")


def check_calls(path, code):
    for pattern, instead in CALLS:
        for match in re.finditer(pattern, code):
            call = match.group().rstrip("( )\t").split("::")[-1]
            if not any(path.startswith(where) and call == name for where, name in ALLOWED_CALLS):
                yield f"{path}:{line_of(code, match.start())}: {call}: {instead}"
    if path.endswith(".h"):
        for match in re.finditer(r"\busing\s+namespace\b", code):
            yield f"{path}:{line_of(code, match.start())}: using namespace in a header reaches every file that includes it"


def check_synonyms(path, code):
    for pattern, word in SYNONYMS:
        for match in re.finditer(pattern, code):
            yield f"{path}:{line_of(code, match.start())}: {match.group()}: the word here is {word} (docs/glossary.md)"


def check_text(path, text):
    for match in UNFINISHED.finditer(text):
        yield f"{path}:{line_of(text, match.start())}: {match.group()}: finish it, or write an issue"
    for pattern in (MACHINE,) if is_test(path) else (MACHINE, MACHINE_TMP):
        for match in pattern.finditer(text):
            yield f"{path}:{line_of(text, match.start())}: {match.group()}...: a path of one machine"


def check(root):
    problems, notes = [], []
    for path in project_files(root):
        if path.startswith("tests/fixtures/"):
            continue
        text = read(root, path)
        if text is None:
            continue
        problems += check_text(path, text)
        lines = text.count("\n")
        if (path.startswith(FOLDERS_OF_CODE) and not path.endswith(".csv")) or path == "dev":
            if lines > LONGEST:
                problems.append(f"{path}: {lines} lines; {LONGEST} are the most. Split it by subject")
            elif lines > LONG:
                notes.append(f"{path}: {lines} lines; think of splitting it ({LONG})")
        if path.startswith("intarsia/") and path.endswith((".h", ".cc")) and not is_test(path):
            code = code_only(text)
            problems += check_calls(path, code)
            if not path.startswith(SPEAK_FOREIGN):
                problems += check_synonyms(path, code)
    return problems, notes


if __name__ == "__main__":
    sys.exit(finish("check_words", *check(sys.argv[1] if len(sys.argv) > 1 else ".")))
