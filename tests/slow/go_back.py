"""A run of this program goes on in its peers: `intarsia convert --to dcp|accelerate|universal`, then PyTorch's DCP, Accelerate and DeepSpeed
load what it wrote into FSDP2 and ZeRO 1, 2, 3, and their next three losses are the next three of this program.

Usage: go_back.py PROGRAM            in the repository's root
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from runs import FIXTURES, LAUNCHER, RunFailed, call, np, relative, train, write_samples

RANKS, MICRO, LENGTH, BEFORE, AFTER = 2, 4, 24, 5, 3
JOB = {"micro": MICRO, "lr": 2e-3, "wd": 0.1, "eps": 1e-7, "betas": [0.9, 0.98], "clip": 1.0}
ALLOWED = 1e-5  # relative, as in peers.py
# System, what convert is asked for, torch's AdamW instead of DeepSpeed's own.
CASES = [("dcp", "dcp", True), ("dcp-flat", "dcp", True), ("accelerate", "accelerate", True),
         ("ds-1", "universal", False), ("ds-2", "universal", True), ("ds-3", "universal", False)]  # fmt: skip


def run_peer(system, model, checkpoint, samples, torch_adam):
    environment = {key: value for key, value in os.environ.items() if key not in LAUNCHER}
    environment |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = pathlib.Path(__file__).with_name("peer_goes_on.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--master-port", 20000 + os.getpid() % 20000, script,
               system, model, checkpoint, samples, BEFORE * RANKS * MICRO, AFTER, json.dumps(JOB | {"torch_adam": torch_adam})]  # fmt: skip
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"losses"')]
    if done.returncode != 0 or len(lines) != 1:
        raise RunFailed(f"{system}: exit code {done.returncode}\n{(done.stderr + done.stdout)[-3000:]}")
    return json.loads(lines[0])


def main():
    program, begin, problems = sys.argv[1], time.monotonic(), []
    wanted = sys.argv[2:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in ("llama-gqa", "llama-tied"):
            source = FIXTURES / model / "model"
            vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
            rows = np.random.default_rng(11).integers(0, vocabulary, ((BEFORE + AFTER) * RANKS * MICRO, LENGTH))
            samples = folder / f"{model}.safetensors"
            write_samples(samples, rows, rows)
            for torch_adam in (False, True):
                run = folder / f"{model}-{torch_adam}"
                config = folder / "ds.json"
                params = {"lr": JOB["lr"], "betas": JOB["betas"], "eps": JOB["eps"], "weight_decay": JOB["wd"], "torch_adam": torch_adam}
                config.write_text(json.dumps({"train_micro_batch_size_per_gpu": MICRO, "gradient_clipping": JOB["clip"],
                    "optimizer": {"type": "AdamW", "params": params}, "zero_optimization": {"stage": 3}}))  # fmt: skip
                flags = ["--config", config, "--model", source, "--data", samples, "--seq-len", LENGTH, "--ranks", RANKS,
                         "--no-decay-1d", "--threads", 1, "--save-every", BEFORE, "--keep", 0]  # fmt: skip
                losses = [step["loss"] for step in train(program, run, "--steps", BEFORE + AFTER, *flags)][BEFORE:]
                for system, to, adam in CASES:
                    if adam != torch_adam or (wanted and system not in wanted):
                        continue
                    out = run / system
                    try:
                        call(program, "convert", run / "checkpoints" / f"step-{BEFORE}", out, "--to", to)
                        peer = run_peer(system, source, out, samples, torch_adam)
                    except RunFailed as failure:
                        problems.append(f"{model} {system}: {failure}")
                        continue
                    off = relative(peer["losses"], losses)
                    print(f"{model} {system}: off by {off:.1e}, lr {peer['lr']}, step {peer['step']}", flush=True)
                    if not off <= ALLOWED:
                        problems.append(f"{model} {system}: losses {peer['losses']}, this program's are {losses}")
                    if peer["lr"] != [JOB["lr"]] * 2 or peer["step"] not in (BEFORE, [BEFORE]):
                        problems.append(f"{model} {system}: went on with lr {peer['lr']} after step {peer['step']}")
                if abs(losses[-1] - losses[0]) < 1e-3 * losses[0]:
                    problems.append(f"{model}: the loss does not move, so the comparison says nothing")
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
