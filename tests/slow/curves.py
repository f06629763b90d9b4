#!/usr/bin/env python3
"""Every training curve of the fixtures on every layout, through the command line.

A layout is a number of ranks that divides the curve's rows, a stage and a way for ranks to talk. metrics.jsonl must equal
curves.json and, for `plain`, RUN/model must equal final_plain.safetensors, within the tolerances of
tests/fixtures/hf/README.md; runs of one curve on equally many ranks must equal each other more closely.
Usage: curves.py PROGRAM [--subset] [--jobs N] [--case CASE]... [--way WAY]...      in the repository's root
  --subset  only enough layouts that any two choices (case, variant, ranks, stage, way) meet in one run
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

from runs import FIXTURES, RunFailed, np, relative, train, write_samples

from safetensors.torch import load_file

CASES = ("llama-gqa", "llama-tied", "llama-bf16", "mistral-window", "qwen2-tied", "qwen3", "gpt2")
VARIANTS = ("plain", "nodecay1d", "clip", "accumulate", "warmup_cosine", "all")
WAYS = {
    "mapped": ("--backend", "shm"),
    "copied": ("--backend", "shm", "--force-copy"),
    "gloo": ("--backend", "gloo"),
    "threads": ("--backend", "threads"),
}
FIRST = 5  # updates that are held to the tighter of two tolerances
BETWEEN, BETWEEN_ACCUMULATED = 1e-6, 5e-6  # between stages and ways, at equal ranks


def layouts(rows, ways):
    """(ranks, stage, way) for a batch of `rows`; one rank talks to nobody, and only stage 3 gathers parameters."""
    for ranks in (n for n in range(1, 5) if rows % n == 0):
        for stage, way in itertools.product(range(4), ways):
            if (way == "mapped" or ranks > 1) and (way != "copied" or stage == 3):
                yield ranks, stage, way


def pairwise_first(runs):
    """Reorders runs so that every pair of choices is met as early as possible; also returns how many runs that takes."""
    pairs = {run: set(itertools.combinations(enumerate(run), 2)) for run in runs}
    left, missing, head = list(runs), set().union(*pairs.values()), []
    while missing:
        best = max(left, key=lambda run: len(pairs[run] & missing))
        left.remove(best)
        head.append(best)
        missing -= pairs[best]
    return head + left, len(head)


class Curves:
    """The curves of one case, and their windows as files of samples."""

    def __init__(self, case, folder):
        self.model = FIXTURES / case / "model"
        self.settings = json.loads((FIXTURES / case / "curves.json").read_text())
        self.lr, self.rows = self.settings["optimizer"]["lr"], self.settings["batch"]
        self.final = load_file(FIXTURES / case / "final_plain.safetensors")
        self.files = {}
        batches = load_file(FIXTURES / case / "batches.safetensors")
        for accumulation in (1, self.settings["micro_batches"]):
            self.files[accumulation] = pathlib.Path(folder) / f"{case}-{accumulation}.safetensors"
            rows = [batches[name][:, :accumulation].reshape(-1, self.settings["seq"]).numpy() for name in ("input_ids", "labels")]
            write_samples(self.files[accumulation], *rows)

    def accumulation(self, variant):
        return self.settings["micro_batches"] if self.settings["variants"][variant]["accumulate"] else 1

    def flags(self, variant):
        chosen, optimizer, accumulation = self.settings["variants"][variant], self.settings["optimizer"], self.accumulation(variant)
        return [
            "--model", self.model, "--data", self.files[accumulation], "--seq-len", self.settings["seq"],
            "--steps", self.settings["steps"], "--accumulation", accumulation,
            "--lr-schedule", *map(repr, self.settings["curves"][variant]["lr"]),
            "--betas", *optimizer["betas"], "--eps", optimizer["eps"], "--weight-decay", optimizer["weight_decay"],
            "--clip", self.settings["clip"] if chosen["clip"] else 0,
            *(["--no-decay-1d"] if chosen["no_decay_1d"] else []),
        ]  # fmt: skip


def curve_problems(found, wanted, worst):
    """Compares metrics with a curve; `worst` keeps the largest relative deviations."""
    if len(found) != len(wanted["loss"]):
        return [f"{len(found)} updates, want {len(wanted['loss'])}"]
    problems = []
    if [step["tokens"] for step in found] != wanted["tokens"]:
        problems.append(f"tokens {[step['tokens'] for step in found]}, want {wanted['tokens']}")
    for key, limits in {"lr": (1e-12, 1e-12), "loss": (1e-5, 5e-5), "grad_norm": (1e-4, 1e-3)}.items():
        values = [step[key] for step in found]
        for part, limit in zip((slice(0, FIRST), slice(FIRST, None)), limits):
            off = relative(values[part], wanted[key][part])
            worst[key] = max(worst.get(key, 0.0), off)
            if not off <= limit:
                updates = f"updates {part.start + 1} to {part.stop or len(values)}"
                problems.append(f"{key} of {updates} is off by {off:.1e}, {limit:.0e} is allowed")
    return problems


def weight_problems(folder, curves, worst):
    """Compares the exported model with the weights after the last update of `plain`."""
    found = {name: tensor.float() for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
    if found.keys() != curves.final.keys():
        return [f"weights {sorted(found.keys() ^ curves.final.keys())} are in only one of {folder} and final_plain.safetensors"]
    differences = {name: np.abs((found[name] - wanted).numpy()).ravel() for name, wanted in curves.final.items()}
    for name, difference in differences.items():
        if name.endswith("attn.c_attn.bias"):  # the keys' third: its gradient is rounding only
            differences[name] = np.concatenate([difference[: len(difference) // 3], difference[len(difference) // 3 * 2 :]])
    off = np.concatenate(list(differences.values())) / curves.lr
    worst["final weights, of lr"] = max(worst.get("final weights, of lr", 0.0), float(off.max()))
    if not off.max() <= 0.2 or not np.quantile(off, 0.999) <= 0.01:
        return [f"weights are off by {off.max():.1e} lr, 99.9 % of them by up to {np.quantile(off, 0.999):.1e} lr; 0.2 and 0.01 are allowed"]
    return []


def between_problems(results, accumulated, worst):
    """Compares runs of one curve that have their number of ranks in common with the first of them."""
    for key, first in results.items():
        first_key = next(other for other in results if other[:3] == key[:3])
        limit = BETWEEN_ACCUMULATED if accumulated(key) else BETWEEN
        for what in ("loss", "grad_norm"):
            off = relative([step[what] for step in first], [step[what] for step in results[first_key]])
            name = f"{what} between layouts{', accumulated' if accumulated(key) else ''}"
            worst[name] = max(worst.get(name, 0.0), off)
            if not off <= limit:
                yield key, f"{what} differs from {label(first_key)} by {off:.1e}, {limit:.0e} is allowed"


def label(run):
    return "{} {}, {} ranks, stage {}, {}".format(*run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--subset", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        curves = {case: Curves(case, folder) for case in options.case or CASES}
        choices = {case: list(layouts(curves[case].rows, options.way or WAYS)) for case in curves}
        runs = [(case, variant, *layout) for case in curves for variant in VARIANTS for layout in choices[case]]
        runs, enough = pairwise_first(runs)
        if options.subset:
            runs = runs[:enough]
        results, problems, worst = {}, [], {}

        def one(run):
            case, variant, ranks, stage, way = run
            out = pathlib.Path(folder) / "-".join(map(str, run))
            flags = ["--ranks", ranks, "--batch-size", curves[case].rows // ranks, "--stage", stage, "--threads", 1]
            return out, train(options.program, out, *curves[case].flags(variant), *flags, *WAYS[way])

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for run, future in [(run, pool.submit(one, run)) for run in runs]:
                case, variant = run[:2]
                try:
                    out, results[run] = future.result()
                except RunFailed as failure:
                    problems.append((run, str(failure)))
                    continue
                problems += [(run, text) for text in curve_problems(results[run], curves[case].settings["curves"][variant], worst)]
                if variant == "plain":
                    problems += [(run, text) for text in weight_problems(out / "model", curves[case], worst)]
                shutil.rmtree(out)
        problems += between_problems(results, lambda run: curves[run[0]].accumulation(run[1]) > 1, worst)

    for run, text in problems:
        print(f"FAILED: {label(run):52} {text}")
    for name, value in sorted(worst.items()):
        print(f"largest deviation: {name:40} {value:.1e}")
    print(f"{len(runs)} runs, {len({run for run, _ in problems})} of them with problems, {time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
