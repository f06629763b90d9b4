#!/usr/bin/env python3
"""transformers' own LlamaForCausalLM, driven through the engine's events by python/, trains like this program's Llama.

Stage 3, two ranks, fp32, 10 updates: losses and gradient norms agree to a relative 1e-5, and with recomputation they are
the same bits as without. Builds the extension of python/ first.
Usage: python_modules.py PROGRAM      in the repository's root; PROGRAM is build/bin/intarsia
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from runs import FIXTURES, RunFailed, call, np, relative, train, write_samples

RANKS, MICRO, LENGTH, STEPS, LR, DECAY, CLIP = 2, 4, 16, 10, 0.001, 0.1, 1.0
ALLOWED = 1e-5
CONFIG = {
    "train_batch_size": RANKS * MICRO,
    "train_micro_batch_size_per_gpu": MICRO,
    "gradient_clipping": CLIP,
    "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}},
    "zero_optimization": {"stage": 3},
}


def build_extension(build):
    """Builds python/ in the folder that PROGRAM lies in; returns the extension's folder."""
    targets = subprocess.run(["cmake", "--build", build, "--target", "help"], capture_output=True, text=True).stdout
    if "intarsia_python" not in targets:
        print("SKIPPED: Python's headers were not there when the build was configured (Debian: python3-dev)")
        sys.exit(77)
    done = subprocess.run(["cmake", "--build", build, "--parallel", "1", "--target", "intarsia_python"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RunFailed(f"the extension could not be built:\n{done.stdout[-3000:]}")
    return build / "python"


def run_python(program, model, samples, config, *flags):
    """Trains through python/ on two ranks."""
    command = ["launch", "--ranks", RANKS, "--", sys.executable, "python/train_llama.py", model, samples, config, MICRO, STEPS, *flags]
    lines = call(program, *command, timeout=900).splitlines()
    return json.loads(next(line for line in lines if line.startswith('{"losses"')))


def main():
    program, begin = pathlib.Path(sys.argv[1]).resolve(), time.monotonic()
    problems = []
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            os.environ["PYTHONPATH"] = str(build_extension(program.parent.parent))
            config = folder / "config.json"
            config.write_text(json.dumps(CONFIG))
            for case in ("llama-gqa", "llama-tied"):
                model, samples = FIXTURES / case / "model", folder / f"{case}.safetensors"
                facts = json.loads((model / "config.json").read_text())
                rows = np.random.default_rng(1).integers(facts["vocab_size"], size=(STEPS * RANKS * MICRO, LENGTH))
                write_samples(samples, rows, rows)
                flags = ["--model", model, "--data", samples, "--seq-len", LENGTH, "--steps", STEPS, "--batch-size", MICRO, "--ranks", RANKS]
                flags += ["--stage", 3, "--dtype", "fp32", "--threads", 1, "--clip", CLIP, "--lr", LR, "--schedule", "constant", "--weight-decay", DECAY]
                here = train(program, folder / case, *flags)
                kept = run_python(program, model, samples, config)
                again = run_python(program, model, samples, config, "--recompute")
                for key, there in (("loss", kept["losses"]), ("grad_norm", kept["norms"])):
                    off = relative(there, [step[key] for step in here])
                    print(f"{case}: {key} off by {off:.1e}")
                    if not off <= ALLOWED:
                        problems.append(f"{case}: {key} of the Python module is off by {off:.1e}, {ALLOWED:.0e} is allowed")
                runs = [kept.pop("recomputed_runs"), again.pop("recomputed_runs")]
                if runs != [0, STEPS * facts["num_hidden_layers"]]:
                    problems.append(f"{case}: blocks ran again {runs} times without and with recomputation")
                if kept != again:
                    problems.append(f"{case}: recomputation changes numbers: {kept} and {again}")
                if not abs(kept["losses"][-1] - kept["losses"][0]) > 1e-3 * kept["losses"][0]:
                    problems.append(f"{case}: the loss does not move, so the comparison says nothing")
        except RunFailed as failure:
            problems.append(str(failure))
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
