"""What the checks in this folder share: which files belong to the project, and C++ text without comments and strings."""
import os
import re
import subprocess

# A comment, a raw string, a string, or a character (not the ' of 1'000'000).
_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def project_files(root):
    """Paths below root that git tracks or would track; all files where root is no git checkout."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    if listed.returncode == 0:
        return sorted(p for p in set(listed.stdout.splitlines()) if os.path.isfile(os.path.join(root, p)))
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read(root, path):
    """The text of a file; None if it is not text."""
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def code_only(text):
    """The text with comments emptied and strings reduced to their quotes; line numbers stay as they are."""
    def blank(match):
        found = match.group()
        if found.startswith("/"):
            return " " + "\n" * found.count("\n")
        return found[0].replace("R", '"') + "\n" * found.count("\n") + found[-1]
    return _NOT_CODE.sub(blank, text)


def is_test(path):
    """Whether a file is only for tests: they lie in tests/, are called x_test.cc, or are their helpers, testing_x.h."""
    return path.startswith("tests/") or path.endswith("_test.cc") or os.path.basename(path).startswith("testing_")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def finish(name, problems, notes=()):
    """Prints notes and problems; the exit status: 1 if there is a problem."""
    for note in notes:
        print(f"note: {note}")
    for problem in problems:
        print(problem)
    if problems:
        print(f"{name}: {len(problems)} problem(s)")
    return 1 if problems else 0
