#!/usr/bin/env python3
"""The training step on one host, two ranks of one thread each: Intarsia against FSDP2 and DeepSpeed, in turn, on the same weights
and batches.

  bench/step.py [--model llama-34m] [--dtype bf16] [--stage 3] [--accum 1] [--pairs 5] [--systems fsdp2-full,ds-3] [--alone]

Gate, before any time counts: our losses are those of the first of the systems, from its weights on its batches (fp32 to 1e-5, bf16 to
2e-3 of the value). Then tokens/s of each in turn, every second round in reverse order, and the ratio to each in every round; "the
best" is the best of a round. --alone also times two unsharded runs (one rank each) at the same time on the same cores, and the
matrix products of a step alone, two processes at once (bench/products_bench.cc). Models: llama-34m (micro-batch 4 x 256),
llama-110m (2), llama-350m (1). Needs build/bin (intarsia, and for --alone products_bench) and the Python environment of
tests/python, made at the first call. Prints Markdown; results go to bench/results.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

LENGTH, RANKS, WARM_UP = 256, 2, 2
MICRO = {"llama-34m": 4, "llama-110m": 2, "llama-350m": 1}
SYSTEMS = {3: "fsdp2-full,fsdp2-full-compile,ds-3", 2: "fsdp2-grad,ds-2"}


def run(command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def peer(options, system, out=None):
    environment = {**os.environ, "ACCUM": str(options.accum)} | ({"OUT": str(out)} if out else {})
    line = run(["bench/peers/run", options.model, options.dtype, MICRO[options.model], LENGTH, options.steps, system], env=environment)
    result = json.loads(line)
    if result.get("failed"):
        sys.exit(f"{system} failed")
    return result


class Ours:
    """A run of ours that has been started; tokens/s and losses when it has ended."""

    def __init__(self, options, reference, ranks, stage):
        self.folder = tempfile.TemporaryDirectory()
        self.tokens = ranks * options.accum * MICRO[options.model] * LENGTH
        out = pathlib.Path(self.folder.name)
        config = {"bf16": {"enabled": options.dtype == "bf16"}, "zero_optimization": {"stage": stage}}
        (out / "ds.json").write_text(json.dumps(config))
        command = ["build/bin/intarsia", "train", "--model", reference, "--data", reference / "samples.safetensors", "--seq-len", LENGTH,
                   "--config", out / "ds.json", "--ranks", ranks, "--batch-size", MICRO[options.model], "--accumulation", options.accum,
                   "--steps", options.steps, "--threads", 1, "--shuffle", "off", "--clip", 1, "--lr", 3e-4, "--schedule", "constant", "--weight-decay", 0.01,
                   "--out", out / "run"]  # fmt: skip
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self):
        text, _ = self.process.communicate()
        if self.process.returncode != 0:
            sys.exit(f"intarsia failed:\n{text[-2000:]}")
        lines = [json.loads(line) for line in open(pathlib.Path(self.folder.name) / "run/metrics.jsonl")]
        self.folder.cleanup()
        return self.tokens / statistics.median(line["step_seconds"] for line in lines[WARM_UP:]), [line["loss"] for line in lines]


def gate(options, reference, wanted):
    _, losses = Ours(options, reference, RANKS, options.stage).wait()
    limit = 1e-5 if options.dtype == "fp32" else 2e-3
    worst = max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))
    print(f"Gate: {len(losses)} losses, the worst differs by {worst:.1e} of its value (allowed {limit:.0e}).\n")
    if worst > limit:
        sys.exit("the losses differ: nothing is timed")


def alone(options, reference):
    both = [Ours(options, reference, 1, 0) for _ in range(RANKS)]
    return sum(each.wait()[0] for each in both)


def products(options):
    command = ["build/bin/products_bench", options.model, options.dtype, str(MICRO[options.model] * LENGTH)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(RANKS)]
    seconds = [float(each.communicate()[0]) for each in both]
    return sum(MICRO[options.model] * LENGTH / each for each in seconds)


def spread(ratios):
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MICRO, default="llama-34m")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--stage", type=int, choices=SYSTEMS, default=3)
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--systems")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    os.chdir(pathlib.Path(__file__).parent.parent)
    systems = (options.systems or SYSTEMS[options.stage]).split(",")
    commit = run(["git", "rev-parse", "--short", "HEAD"]).strip()
    print(f"{options.model}, {options.dtype}, stage {options.stage}, {RANKS} ranks x 1 thread, micro-batch {MICRO[options.model]} x {LENGTH}, "
          f"{options.accum} micro-steps, {options.pairs} rounds of {options.steps} updates; commit {commit}, {os.cpu_count()} processors "
          f"({platform.machine()}), load average {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        reference = pathlib.Path(folder)
        peer(options, systems[0], reference)
        # Runs read it as a Hugging Face directory.
        if not (reference / "model.safetensors").exists():
            (reference / "weights.safetensors").rename(reference / "model.safetensors")
        gate(options, reference, json.loads((reference / "losses.json").read_text()))
        timed = {"intarsia": lambda: Ours(options, reference, RANKS, options.stage).wait()[0]}
        timed |= {system: lambda system=system: peer(options, system)["tokens_per_s"] for system in systems}
        if options.alone:
            timed |= {"unsharded, both at once": lambda: alone(options, reference), "matrix products alone": lambda: products(options)}
        rates = {name: [] for name in timed}
        for round_ in range(options.pairs):
            for name in timed if round_ % 2 == 0 else reversed(timed):
                rates[name].append(timed[name]())
    rates["best of the systems"] = [max(rates[system][i] for system in systems) for i in range(options.pairs)]
    print("| | tokens/s | ours / it |\n|---|--:|--:|")
    for name, values in rates.items():
        ratios = [mine / other for mine, other in zip(rates["intarsia"], values, strict=True)]
        print(f"| {name} | {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f}) | {spread(ratios)} |")
    print(f"\nLoad average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
