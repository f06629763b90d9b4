#!/usr/bin/env python3
"""Intarsia against FSDP2 on pretended hosts joined by slow links, in turn, on the same weights and batches.

  bench/slow_links.py [--rate 1gbit] [--hosts 2] [--pairs 5] [--stage 3] [--model llama-34m] [--grad-dtype bf16]

Gate: the losses of both agree (bf16: to 2e-3 of the value) before any time counts. Then the ratio of tokens/s of each pair, and
the bytes that the links carried in a step (interface counters of host 0: a long run less a short one) beside what the formulas of
the exchange say. Needs root, iproute2, build/bin/intarsia and the Python environment of tests/python (made at the first call).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MICRO, LENGTH = 4, 256
SHORT, LONG = 4, 8  # updates


def in_hosts(options, command, environment=None):
    """Runs `command` on each host; returns stdout and the bytes that host 0's link has sent."""
    with tempfile.NamedTemporaryFile() as sent:
        # A mount namespace of its own, so that /sys of the host's network namespace is seen.
        line = f'mount -t sysfs sysfs /sys; "$@"; s=$?; [ "$RANK" != 0 ] || cat /sys/class/net/eth0/statistics/tx_bytes > {sent.name}; exit $s'
        hosts = ["tools/hosts", "-n", str(options.hosts), "-r", options.rate, "unshare", "-m", "sh", "-c", line, "sh"]
        done = subprocess.run([*hosts, *map(str, command)], env={**os.environ, **(environment or {})}, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout, int(pathlib.Path(sent.name).read_text())


def theirs(options, python, out=None, steps=SHORT):
    mode = {2: "grad", 3: "full"}[options.stage]
    environment = {"OMP_NUM_THREADS": "1"} | ({"OUT": str(out)} if out else {})
    command = [python, "bench/peers/fsdp2.py", options.model, mode, "bf16", MICRO, LENGTH, steps]
    text, sent = in_hosts(options, command, environment)
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))["tokens_per_s"], sent


def ours(options, peer, steps=SHORT):
    with tempfile.TemporaryDirectory() as out:
        config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": options.stage}}
        if options.grad_dtype != "fp32":
            config["communication_data_type"] = options.grad_dtype
        pathlib.Path(out, "ds.json").write_text(json.dumps(config))
        command = ["build/bin/intarsia", "train", "--model", peer, "--data", peer / "samples.safetensors", "--seq-len", LENGTH,
                   "--config", f"{out}/ds.json", "--backend", "gloo", "--batch-size", MICRO, "--steps", steps, "--threads", 1, "--clip", 1, "--shuffle", "off",
                   "--lr", 3e-4, "--schedule", "constant", "--weight-decay", 0.01, "--out", f"{out}/run"]  # fmt: skip
        _, sent = in_hosts(options, command)
        lines = [json.loads(line) for line in open(f"{out}/run/metrics.jsonl")]
        step = statistics.median(line["step_seconds"] for line in lines[2:])
        return options.hosts * MICRO * LENGTH / step, sent, [line["loss"] for line in lines]


def formula(options, peer):
    """Bytes that one host sends in an update: ring-less exchange, (n - 1) / n of what is reduced and of what is gathered."""
    elements = json.loads(subprocess.run(["build/bin/intarsia", "plan", "--model", str(peer), "--json"], capture_output=True, text=True).stdout)["parameters"]
    share = elements * (options.hosts - 1) / options.hosts
    gathers = {2: 1, 3: 2}[options.stage]  # stage 2: the updated parameters; stage 3: in forward and backward
    return share * (2 * gathers + (4 if options.grad_dtype == "fp32" else 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--stage", type=int, choices=(2, 3), default=3)
    parser.add_argument("--model", default="llama-34m")
    parser.add_argument("--grad-dtype", choices=("fp32", "bf16"), default="fp32")
    options = parser.parse_args()
    python = subprocess.run(["tests/python/environment"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        peer = pathlib.Path(folder)
        theirs(options, python, peer, LONG)
        (peer / "model.safetensors").unlink(missing_ok=True)
        (peer / "weights.safetensors").rename(peer / "model.safetensors")
        wanted = json.loads((peer / "losses.json").read_text())
        _, sent_long, found = ours(options, peer, LONG)
        off = max(abs(a - b) / b for a, b in zip(found, wanted))
        print(f"{options.model}, stage {options.stage}, bf16, gradients on the wire {options.grad_dtype}, {options.hosts} hosts at {options.rate}")
        print(f"losses of {LONG} updates: off by at most {off:.1e} of FSDP2's")
        if off > 2e-3:
            sys.exit("the losses differ: nothing is timed")
        _, sent_short, _ = ours(options, peer)
        _, their_long = theirs(options, python, steps=LONG)
        _, their_short = theirs(options, python)
        said = formula(options, peer)
        for name, sent in (("Intarsia", sent_long - sent_short), ("FSDP2", their_long - their_short)):
            print(f"{name}: host 0 sends {sent / (LONG - SHORT) / 1e6:.2f} MB an update; the formula says {said / 1e6:.2f}")
        print("pair  Intarsia tokens/s  FSDP2 tokens/s  ratio")
        ratios = []
        for pair in range(1, options.pairs + 1):
            a, b = (ours(options, peer)[0], theirs(options, python)[0]) if pair % 2 else reversed((theirs(options, python)[0], ours(options, peer)[0]))
            ratios.append(a / b)
            print(f"{pair:4}  {a:17.0f}  {b:14.0f}  {a / b:.2f}", flush=True)
        print(f"median {statistics.median(ratios):.2f} (lowest {min(ratios):.2f}, highest {max(ratios):.2f}); load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
