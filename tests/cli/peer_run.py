#!/usr/bin/env python3
"""Helps tests/cli/peers.sh with a case of tests/fixtures/checkpoints.

peer_run.py prepare CASE OUT    OUT/samples.safetensors (input_ids of steps 0 to 5, in order) and OUT/ds.json
peer_run.py compare CASE METRICS TOLERANCE    whether the losses and rates of METRICS are those that the peer went on with
"""
import json
import pathlib
import struct
import sys


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    return {n: (t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]]) for n, t in header.items() if n != "__metadata__"}


def prepare(case, out):
    expected = json.loads((case / "expected.json").read_text())
    batches = read(case / "batches.safetensors")
    body, rows = b"", 0
    for step in range(6):
        for micro in range(expected["gradient_accumulation_steps"]):
            for rank in range(expected["world"]):
                shape, values = batches[f"step{step}.micro{micro}.rank{rank}"]
                body += values
                rows += shape[0]
    tensor = {"dtype": "I64", "shape": [rows, expected["sequence"]], "data_offsets": [0, len(body)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "input_ids": tensor}).encode()
    header += b" " * (-len(header) % 8)
    (out / "samples.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    (out / "ds.json").write_text(json.dumps(expected.get("ds_config", {})))


def compare(case, metrics, tolerance):
    expected = json.loads((case / "expected.json").read_text())
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    rates = expected["lr"][:1] + [step["lr_after"][0] for step in expected["next"]]
    assert [step["step"] for step in steps[:3]] == [4, 5, 6], steps
    for step, want, rate in zip(steps, expected["next"], rates):
        assert abs(step["loss"] - want["mean_loss"]) < tolerance, (step["loss"], want["mean_loss"])
        assert abs(step["lr"] - rate) < 1e-9, (step["lr"], rate)


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
else:
    compare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), float(sys.argv[4]))
