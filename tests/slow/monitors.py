#!/usr/bin/env python3
"""TensorBoard's own reader reads what a run writes into RUN/tb, also after a resume that does steps again.

Usage: monitors.py PROGRAM      in the repository's root
"""
import json
import math
import pathlib
import struct
import sys
import tempfile

from runs import FIXTURES, call

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
except ImportError as absent:
    print(f"SKIPPED: {absent}; run ./dev test-slow, which makes an environment that has it and sets INTARSIA_PYTHON")
    sys.exit(77)

# Of RUN/tb, with the keys of metrics.jsonl whose numbers they hold.
TAGS = {"train/loss": "loss", "train/learning_rate": "lr", "train/grad_norm": "grad_norm", "train/loss_scale": "loss_scale",
        "speed/tokens_per_s": "tokens_per_s", "speed/step_seconds": "step_seconds", "memory/peak_bytes": "peak_bytes"}
problems = []


def check(what, good):
    print(f"{'ok    ' if good else 'FAILED'} {what}")
    if not good:
        problems.append(what)


def scalars(folder):
    """All scalars under `folder` as TensorBoard shows them: {tag: [(step, value)]}."""
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]}


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def as_json(value):
    """The number in fp32; None for what metrics.jsonl calls null, such as the norm of an overflow."""
    return as_float32(value) if value is not None and math.isfinite(value) else None


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data, config, run = folder / "t.jsonl", folder / "ds.json", folder / "run"
        data.write_text("".join(json.dumps({"text": f"document {i} of the river, again {i * 7919}"}) + "\n"
                                for i in range(200)))
        config.write_text(json.dumps({
            "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "fp16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
            "tensorboard": {"enabled": True, "output_path": str(folder / "tensorboard"), "job_name": "job"}}))
        train = [program, "train", "--model", FIXTURES / "llama-gqa" / "model", "--data", data, "--config", config,
                 "--seq-len", 32, "--ranks", 2, "--save-every", 2, "--keep", 0, "--eval-fraction", 0.1, "--eval-every", 3,
                 "--out", run]
        call(*train, "--steps", 6)
        first = scalars(run / "tb")
        # From step 2 on once more: what the first file says of steps 3 to 6 is void.
        call(*train, "--steps", 9, "--resume", run / "checkpoints" / "step-2")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        tags = scalars(run / "tb")
        check("the first part has six steps", [step for step, _ in first["train/loss"]] == list(range(1, 7)))
        check("after the resume every step is there once", [step for step, _ in tags["train/loss"]] == list(range(1, 10)))
        for tag, key in TAGS.items():
            wanted = [(line["step"], as_json(line[key])) for line in lines]
            found = [(step, as_json(value)) for step, value in tags.get(tag, [])]
            check(f"{tag} is metrics.jsonl's {key}", found == wanted)
        evaluated = [(line["step"], as_float32(line["eval_loss"])) for line in lines if "eval_loss" in line]
        check("eval/loss where it was evaluated", tags["eval/loss"] == evaluated and len(evaluated) == 3)

        samples = scalars(folder / "tensorboard" / "job")
        names = [f"Train/Samples/{name}" for name in ("loss_scale", "lr", "train_loss")]
        check("DeepSpeed's tags", sorted(samples) == names)
        check("by samples", [step for step, _ in samples[names[1]]] == [4 * step for step in range(1, 10)])

        for path in sorted((run / "tb").glob("events.*")):
            records = list(RawEventFileLoader(str(path)).Load())
            same = all(Event.FromString(record).SerializeToString() == record for record in records)
            check(f"{len(records)} records of {path.name} are the bytes that protobuf writes", same and len(records) > 5)
    return 1 if problems else 0


sys.exit(main())
