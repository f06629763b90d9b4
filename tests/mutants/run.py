#!/usr/bin/env python3
"""Seeded faults: each must be caught by a test.

run.py BUILD [NAME...]: for every fault of faults.py (or those named) changes one place of the sources, builds the programs
that should notice, runs their tests, and puts the source back. Ends with 1 when a fault lives, cannot be planted, or does
not build. BUILD is a configured build folder of this checkout; the checkout must have no uncommitted changes in the files
concerned.
"""
import subprocess
import sys
from pathlib import Path

from faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]


def build(folder, targets):
    return subprocess.run(["cmake", "--build", folder, "--target", *targets], cwd=ROOT, capture_output=True, text=True)


def notices(folder, fault):
    """The first test program that fails, or None."""
    for program, pattern in fault["tests"].items():
        run = subprocess.run([Path(folder) / "bin" / program, f"--gtest_filter={pattern}", "--gtest_fail_fast"],
                             cwd=ROOT, capture_output=True, text=True, timeout=900)
        if run.returncode != 0:
            failed = [line for line in run.stdout.splitlines() if "[  FAILED  ]" in line]
            return failed[0].split("]")[1].split(",")[0].strip() if failed else f"{program} ended with {run.returncode}"
        if "[  PASSED  ] 0 tests" in run.stdout:
            return None
    return None


def try_fault(folder, name, fault):
    path = ROOT / fault["file"]
    before = path.read_text()
    if before.count(fault["find"]) != 1:
        return f"{fault['file']} has {before.count(fault['find'])} places like it"
    try:
        path.write_text(before.replace(fault["find"], fault["plant"]))
        built = build(folder, list(fault["tests"]))
        if built.returncode != 0:
            return "does not build: " + next((line for line in built.stdout.splitlines() if "error:" in line), "?")
        caught = notices(folder, fault)
        print(f"{'caught' if caught else 'LIVES '}  {name}: {caught or fault['file']}", flush=True)
        return None if caught else "no test failed"
    finally:
        path.write_text(before)


def main():
    folder = Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(FAULTS)
    targets = sorted({program for name in names for program in FAULTS[name]["tests"]})
    if build(folder, targets).returncode != 0:
        sys.exit("the sources do not build as they are")
    problems = {name: problem for name in names if (problem := try_fault(folder, name, FAULTS[name]))}
    build(folder, targets)
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    print(f"{len(names) - len(problems)} of {len(names)} faults were caught")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
