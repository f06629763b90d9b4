#!/usr/bin/env python3
"""FSDP2 and DeepSpeed, themselves run on the seed weights and batches of bench/peers, have the losses of this program.

Two ranks, fp32, 20 updates, stages 2 and 3: losses agree to a relative 1e-5, with the peers as they are run now and with
tests/fixtures/peers/curves.json, what they gave when the fixture was made.
Usage: peers.py PROGRAM            in the repository's root
       peers.py --write            runs the peers only and writes the fixture
"""
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from runs import FIXTURES, RunFailed, np, relative, train

from safetensors.torch import load_file

FIXTURE = pathlib.Path("tests/fixtures/peers/curves.json")
MODELS = ("llama-gqa", "llama-tied")
# What bench/peers/run calls a system, and the stage whose placement it has.
SYSTEMS = {"fsdp2-grad": 2, "ds-2": 2, "fsdp2-full": 3, "ds-3": 3}
RANKS, MICRO, LENGTH, STEPS, CLIP = 2, 4, 16, 20, 1.0
# A wrong decay, moment or eps shows in the losses. A larger rate would let rounding decide: of gradients near zero Adam takes the sign.
HYPER = {"lr": 0.001, "weight_decay": 0.1}
ALLOWED = 1e-5


def run_peer(model, system, out):
    """Runs one system into the folder `out`; returns the losses of its updates."""
    environment = {**os.environ, "OUT": str(out), "HYPER": json.dumps(HYPER), "PORT": str(20000 + os.getpid() % 20000)}
    command = ["bench/peers/run", str(FIXTURES / model / "model"), "fp32", MICRO, LENGTH, STEPS, system]
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=900)
    losses = out / "losses.json"
    if done.returncode != 0 or not losses.exists():
        raise RunFailed(f"{' '.join(map(str, command))}\n  {(done.stderr + done.stdout)[-2000:]}")
    return json.loads(losses.read_text())


def run_here(program, model, stage, peer, out):
    """The same work by this program, on the samples that the peer wrote into the folder `peer`."""
    flags = ["--model", FIXTURES / model / "model", "--data", peer / "samples.safetensors", "--seq-len", LENGTH, "--steps", STEPS]
    flags += ["--batch-size", MICRO, "--ranks", RANKS, "--stage", stage, "--dtype", "fp32", "--threads", 1, "--clip", CLIP]
    flags += ["--lr", HYPER["lr"], "--schedule", "constant", "--betas", 0.9, 0.999, "--eps", 1e-8, "--weight-decay", HYPER["weight_decay"]]
    return [step["loss"] for step in train(program, out, *flags)]


def fixture_of(curves, samples):
    """The fixture's text: one line a curve."""
    facts = {
        "made_by": "tests/slow/peers.py --write",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "deepspeed")},
        "ranks": RANKS, "micro_batch": MICRO, "seq": LENGTH, "steps": STEPS,
        "optimizer": {"name": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8, **HYPER}, "clip": CLIP,
        "samples": samples,
    }  # fmt: skip
    head = json.dumps(facts, indent=2).removesuffix("\n}")
    models = [f"    {json.dumps(model)}: {{\n" + ",\n".join(f"      {json.dumps(name)}: {json.dumps(curve)}" for name, curve in of.items()) + "\n    }"
              for model, of in curves.items()]  # fmt: skip
    return head + ',\n  "curves": {\n' + ",\n".join(models) + "\n  }\n}\n"


def main():
    program, begin = sys.argv[1], time.monotonic()
    stored = json.loads(FIXTURE.read_text())["curves"] if program != "--write" else {}
    curves, samples, problems = {}, {}, []

    def compare(what, found, wanted):
        off = relative(found, wanted)
        print(f"{what}: off by {off:.1e}", flush=True)
        if not off <= ALLOWED:
            problems.append(f"{what}: off by {off:.1e}, {ALLOWED:.0e} is allowed")

    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            curves[model] = {}
            for system, stage in SYSTEMS.items():
                peer = pathlib.Path(folder) / model / system
                try:
                    losses = curves[model][system] = run_peer(model, system, peer)
                    ids = load_file(peer / "samples.safetensors")["input_ids"]
                    samples[model] = {"first": ids[0].tolist(), "sum": int(ids.sum())}
                    if program == "--write":
                        continue
                    compare(f"{model} {system} as stored", losses, stored[model][system])
                    compare(f"{model} {system} and stage {stage} here", run_here(program, model, stage, peer, peer / "run"), losses)
                except RunFailed as failure:
                    problems.append(str(failure))
            if any(abs(losses[-1] - losses[0]) < 1e-3 * losses[0] for losses in curves[model].values()):
                problems.append(f"{model}: the loss does not move, so the comparison says nothing")
    if program == "--write" and not problems:
        FIXTURE.parent.mkdir(parents=True, exist_ok=True)
        FIXTURE.write_text(fixture_of(curves, samples))
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
