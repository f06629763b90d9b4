#!/usr/bin/env python3
"""Saves and loads of 1.3 GB of training state on 2 ranks, by this program and by torch (DCP, torch.save), in turn on the same disk.

Usage: bench/checkpoint.py FOLDER [ROUNDS]      FOLDER: on the disk in question, with 6 GB free. Needs build/bin/checkpoint_bench, makes the
Python environment of tests/python if it is not there, and prints a Markdown table: medians, and the spread in parentheses.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def lines(command, environment=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{(done.stderr + done.stdout)[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    folder, rounds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    folder.mkdir(parents=True, exist_ok=True)
    python = subprocess.run([ROOT / "tests/python/environment"], capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]

    def torch(ranks, *arguments):
        command = [python, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", 20000 + os.getpid() % 20000]
        return lines([*command, HERE / "peers/checkpoint.py", folder, *arguments], {"OMP_NUM_THREADS": "1"})

    found = {}
    load_before = os.getloadavg()[0]
    for turn in range(rounds):
        for measured in lines([ROOT / "build/bin/checkpoint_bench", folder / "intarsia", 1]) + torch(2, 1):
            found.setdefault((measured["what"], measured["system"]), []).append(measured)
        if turn > 0:
            continue
        for saved, ranks in ((2, 1), (2, 4)):
            for measured in torch(ranks, 1, "load", saved):
                found.setdefault((measured["what"], "torch"), []).append(measured)
        for saved, ranks in ((1, 2), (4, 3)):
            torch(saved, 0)
            for measured in torch(ranks, 1, "load", saved):
                found.setdefault((measured["what"], "torch"), []).append(measured)

    def median(what, system):
        values = [m["seconds"] for m in found.get((what, system), [])]
        return statistics.median(values) if values else None

    def cell(what, system):
        values = [m["seconds"] for m in found.get((what, system), [])]
        if not values:
            return "", ""
        rate = statistics.median(m["bytes"] / m["seconds"] / 1e9 for m in found[(what, system)])
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})", f"{rate:.2f}"

    print(f"{rounds} rounds in turn; load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f}\n")
    print("| | this program s | GB/s | torch s | GB/s | torch / this |\n|---|--:|--:|--:|--:|--:|")
    for what in dict.fromkeys(what for what, _ in found):
        ours, theirs = median(what, "intarsia"), median(what, "torch")
        ratio = f"{theirs / ours:.2f}" if ours and theirs else ""
        print(f"| {what} | " + " | ".join((*cell(what, "intarsia"), *cell(what, "torch"), ratio)) + " |")
    disk = min(median("disk", "intarsia"), median("disk, past the page cache", "intarsia"))
    print(f"\nsave against the disk (the faster of the two ways): {disk / median('save', 'intarsia'):.2f} of its rate; at least 0.85 is wanted"
          f"\nsave against DCP's: {median('save', 'torch') / median('save', 'intarsia'):.2f} times as fast; at least 1"
          f"\nload against DCP's: {median('load 2 -> 2, cold', 'torch') / median('load 2 -> 2, cold', 'intarsia'):.2f} (cold), "
          f"{median('load 2 -> 2, cached', 'torch') / median('load 2 -> 2, cached', 'intarsia'):.2f} (cached) times as fast; at least 2"
          f"\nstall of the asynchronous save against a copy of the shard: {median('async stall', 'intarsia') / median('memory copy', 'intarsia'):.2f}; at most 1.3")  # fmt: skip


if __name__ == "__main__":
    main()
