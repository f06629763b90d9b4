#!/usr/bin/env python3
"""bf16 at stage 3: four ranks follow the curve of one rank, and drift to neither side.

Rounding to bf16 differs with the shapes that a rank computes on, so losses agree only to about bf16's precision; an error
(a gradient counted twice, a rounded master weight) shows as a difference that keeps its sign.
Usage: bf16_ranks.py PROGRAM      in the repository's root
"""
import pathlib
import sys
import tempfile
import time

from runs import RunFailed, np, train, write_samples

STEPS, BATCH, LENGTH, VOCABULARY = 50, 16, 32, 256
EACH, MEAN, FROM = 1e-2, 2e-3, 25  # relative; of the mean signed difference, over updates after FROM


def samples():
    """Rows [STEPS * BATCH, LENGTH] in which each token is, nine times out of ten, a fixed function of the one before."""
    draw = np.random.default_rng(1)
    follows = draw.permutation(VOCABULARY)
    rows = draw.integers(VOCABULARY, size=(STEPS * BATCH, LENGTH))
    for position in range(1, LENGTH):
        kept = draw.random(len(rows)) < 0.9
        rows[kept, position] = follows[rows[kept, position - 1]]
    return rows


def main():
    program, begin = sys.argv[1], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = folder / "samples.safetensors"
        rows = samples()
        write_samples(data, rows, rows)
        flags = ["--model", "llama-tiny", "--init", "random", "--data", data, "--seq-len", LENGTH, "--steps", STEPS]
        flags += ["--lr", 3e-3, "--warmup", 5, "--schedule", "constant_with_warmup", "--stage", 3]
        losses = {}
        try:
            for name, ranks, dtype in (("one", 1, "bf16"), ("four", 4, "bf16"), ("fp32", 1, "fp32")):
                metrics = train(program, folder / name, *flags, "--dtype", dtype, "--ranks", ranks, "--batch-size", BATCH // ranks)
                losses[name] = np.array([step["loss"] for step in metrics])
        except RunFailed as failure:
            print(f"FAILED: {failure}")
            return 1
    off = (losses["four"] - losses["one"]) / losses["one"]
    each, mean = np.abs(off).max(), off[FROM:].mean()
    print(f"loss from {losses['one'][0]:.3f} to {losses['one'][-1]:.3f} in {STEPS} updates")
    print(f"four ranks against one: at most {each:.1e}, mean signed difference after update {FROM} {mean:+.1e}")
    print(f"bf16 against fp32: at most {np.abs(losses['one'] / losses['fp32'] - 1).max():.1e}; {time.monotonic() - begin:.0f} s")
    problems = []
    if len(off) != STEPS or not each <= EACH:
        problems.append(f"a loss is off by {each:.1e}, {EACH:.0e} is allowed")
    if not abs(mean) < MEAN:
        problems.append(f"losses drift by {mean:+.1e}, {MEAN:.0e} is allowed")
    if not losses["one"][-1] < 0.8 * losses["one"][0]:
        problems.append("nothing was learned, so the comparison says nothing")
    if np.array_equal(losses["one"], losses["fp32"]):
        problems.append("bf16 gives the same losses as fp32: it was not used")
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
