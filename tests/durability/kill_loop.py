#!/usr/bin/env python3
"""kill_loop.py PROGRAM KILLS [SEED]: kills a reproducible training run again and again, each time one of its processes at a
random moment, and goes on on another number of ranks, in another stage, saving in the foreground or the background. The
weights at the end must be those of a run that nobody disturbed, byte for byte, and nothing may be left beside its
checkpoints. Run in the repository's root."""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

MODEL = "tests/fixtures/hf/llama-gqa/model"
STEPS = 240
LOGICAL = 4  # micro-batches of an update; ranks divide it


def make_text(path):
    with open(path, "w") as file:
        for i in range(200):
            file.write('{"text": "document %d of the river, again a lantern %d"}\n' % (i, i * 7919))


def command(program, data, run, ranks, stage, background):
    return [program, "train", "--model", MODEL, "--data", data, "--out", run, "--seq-len", "32", "--steps", str(STEPS),
            "--reproducible", "--batch-size", "1", "--accumulation", str(LOGICAL // ranks), "--ranks", str(ranks),
            "--stage", str(stage), "--save-every", "3", "--keep", "2", "--async-save", background, "--log-every", "1000"]


def family(pid):
    """The process and all that descend from it."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def being_saved(run):
    try:
        return any(".wip-" in name for name in os.listdir(f"{run}/checkpoints"))
    except OSError:
        return False


def kill_at_random(process, run, chance):
    """True when something was killed before the run ended. Half of the time it waits until a checkpoint is being saved."""
    moment = time.monotonic() + chance.uniform(0.05, 3.0)
    aimed = chance.random() < 0.5
    while process.poll() is None and time.monotonic() < moment:
        time.sleep(0.002)
    while aimed and process.poll() is None and not being_saved(run):
        time.sleep(0.0005)
    if aimed:
        time.sleep(chance.uniform(0, 0.01))
    if process.poll() is not None:
        return None
    victims = family(process.pid)
    victim = chance.choice(victims)
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return "first process" if victim == process.pid else "rank"


def run_out(process, run):
    try:
        return process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit(f"{run}: still running 120 s after the kill")


def debris(run):
    names = os.listdir(f"{run}/checkpoints")
    return [name for name in names if not re.fullmatch(r"step-\d+|latest", name)]


def main():
    program, kills = sys.argv[1], int(sys.argv[2])
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    folder = tempfile.TemporaryDirectory()
    base = pathlib.Path(folder.name)
    data = str(base / "t.jsonl")
    make_text(data)
    whole = str(base / "whole")
    subprocess.run(command(program, data, whole, 1, 0, "off"), check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    want = (base / "whole/model/model.safetensors").read_bytes()

    killed, lives, finished = collections.Counter(), collections.Counter(), 0
    resumed_steps, start = [], time.monotonic()
    run = str(base / "run-0")
    while True:
        ranks = chance.choice([1, 2, 4])
        stage = chance.randrange(4)
        background = chance.choice(["off", "wait", "skip"])
        arguments = command(program, data, run, ranks, stage, background)
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        who = None
        if sum(killed.values()) < kills:
            who = kill_at_random(process, run, chance)
        errors = run_out(process, run)
        code = process.returncode
        if code == 2 and "another run is writing" in errors:  # ranks of a killed first process are still on their way out
            time.sleep(0.05)
            continue
        lives[ranks] += 1
        found = re.search(r"resumed from \S+: step (\d+)", errors)
        if found:
            resumed_steps.append(int(found.group(1)))
        if who:
            killed[who] += 1
        if code == 0:
            finished += 1
            got = (pathlib.Path(run) / "model/model.safetensors").read_bytes()
            if got != want:
                sys.exit(f"run {finished}, killed {sum(killed.values())} times in all: other weights at the end\n{errors}")
            if debris(run):
                sys.exit(f"left over: {debris(run)}")
            if sum(killed.values()) >= kills:
                break
            run = str(base / f"run-{finished}")
        elif not who or code not in (-signal.SIGKILL, 4):
            sys.exit(f"exit code {code}, {ranks} ranks, stage {stage}, --async-save {background}, killed: {who}\n{errors}")
    print(f"{sum(killed.values())} kills ({dict(killed)}) in {time.monotonic() - start:.0f} s, {dict(lives)} lives by number of "
          f"ranks, {len(resumed_steps)} of them resumed; {finished} runs ended with the weights of the undisturbed run")


if __name__ == "__main__":
    main()
