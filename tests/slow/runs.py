"""What the slow tests share: running the program, writing samples, comparing numbers."""
import json
import os
import pathlib
import subprocess
import sys

try:
    import numpy as np
    from safetensors.numpy import save_file
except ImportError as absent:
    print(f"SKIPPED: {absent}; run ./dev test-slow, which makes an environment that has it and sets INTARSIA_PYTHON")
    sys.exit(77)

FIXTURES = pathlib.Path("tests/fixtures/hf")
# A launcher's variables would make every run below a rank of that launcher's job.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RunFailed(Exception):
    """The program exited with an error; the message has its command line and what it printed."""


def call(program, *arguments, timeout=300):
    """Runs the program and returns its standard output; RunFailed where it exits with an error."""
    command = [str(program), *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in LAUNCHER}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{' '.join(command)}\n  did not end within {timeout} s") from None
    if done.returncode != 0:
        raise RunFailed(f"{' '.join(command)}\n  exit code {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def train(program, out, *flags):
    """Trains into `out`, which is emptied first; returns metrics.jsonl as a list of dicts, one an update."""
    call(program, "train", "--out", out, "--overwrite", "--shuffle", "off", *flags)
    return [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]


def write_samples(path, input_ids, labels):
    """Writes int32 arrays [N, S] as ready samples."""
    save_file({"input_ids": np.ascontiguousarray(input_ids, np.int32), "labels": np.ascontiguousarray(labels, np.int32)}, str(path))


def relative(found, wanted):
    """Largest |found - wanted| / |wanted| over two equally long sequences; infinite where any number is not finite."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.max(np.abs(found - wanted) / np.abs(wanted), initial=0.0))
