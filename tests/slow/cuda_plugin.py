#!/usr/bin/env python3
"""The CUDA plugin compiles and links against the CUDA libraries of torch's wheel, and the program loads it.

The environment of the slow tests has torch with everything that it depends on: headers of the CUDA toolkit and of NCCL, and the
libraries. No compiler of CUDA's is needed. On a host without a device the program must say so; with one it trains on it, and
the losses are compared with the CPU's. Usage: cuda_plugin.py PROGRAM      in the repository's root
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from runs import RunFailed, np, relative, train, write_samples

STEPS = 5


def shell(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RunFailed(f"{' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def build(torch, folder):
    """Configures an empty build tree and makes the plugin alone; returns its path."""
    shell("cmake", "-S", ".", "-B", folder, "-G", "Ninja", f"-DINTARSIA_TORCH_DIR={torch}", "-DINTARSIA_CUDA=ON",
          "-DINTARSIA_BUILD_TESTS=OFF", "-DINTARSIA_BUILD_BENCH=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    shell("cmake", "--build", folder, "--target", "intarsia_cuda")
    plugin = folder / "libexec" / "libintarsia_cuda.so"
    needed = shell("readelf", "-d", plugin)
    for library in ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so"):
        if f"[{library}]" not in needed:
            raise RunFailed(f"{plugin} does not need {library}:\n{needed}")
    offered = shell("nm", "-D", "--defined-only", plugin)
    for name in ("intarsia_cuda_check", "intarsia_cuda_communicator"):
        if name not in offered:
            raise RunFailed(f"{plugin} does not offer {name}:\n{offered}")
    return plugin


def check_run(program, plugin, folder):
    """What `train --device cuda` does with the plugin; a line for the report."""
    os.environ["INTARSIA_CUDA_PLUGIN"] = str(plugin)
    rows = np.random.default_rng(1).integers(256, size=(STEPS * 2, 32))
    data = folder / "samples.safetensors"
    write_samples(data, rows, rows)
    flags = ["--model", "llama-tiny", "--init", "random", "--data", data, "--seq-len", 32, "--steps", STEPS, "--batch-size", 2]
    try:
        on_cuda = train(program, folder / "cuda", *flags, "--device", "cuda")
    except RunFailed as failure:
        if "this host offers no CUDA device" not in str(failure) or "exit code 2" not in str(failure):
            raise
        return "compiled, linked and loaded; this host has no CUDA device, which the program says: nothing was run on one"
    on_cpu = train(program, folder / "cpu", *flags)
    off = relative([step["loss"] for step in on_cuda], [step["loss"] for step in on_cpu])
    if not off <= 1e-4:
        raise RunFailed(f"losses on the CUDA device are off by {off:.1e}, 1e-4 is allowed")
    return f"compiled, linked, loaded and run on a CUDA device: losses within {off:.1e} of the CPU's"


def main():
    program, begin = sys.argv[1], time.monotonic()
    torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    if not (torch / "lib" / "libtorch_cuda.so").exists():
        print("SKIPPED: this environment's torch is built without CUDA")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            said = check_run(program, build(torch, folder / "build"), folder)
        except RunFailed as failure:
            print(f"FAILED: {failure}")
            return 1
    print(f"{said}; {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
