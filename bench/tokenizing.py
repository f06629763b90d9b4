#!/usr/bin/env python3
"""Tokenizing text, one thread, beside the `tokenizers` library: CPU time in interleaved pairs, memory at two lengths.

Both read the same JSONL and write the same ids as u16 or u32; the files are compared. What is counted of Intarsia is the whole process,
loading included; of the library encode_batch_fast (no offsets) and the writing, without import and loading. The measure is
user CPU time, which a busy machine disturbs less than the clock.
Usage: tokenize.py PROGRAM [--megabytes 100] [--pairs 3] [--text FILE...] [TOKENIZER-FOLDER...]
       needs the Python package tokenizers; without --text it takes Python's own sources and the texts in /usr/share/doc.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZERS = ["tests/fixtures/hf/gpt2/model", "tests/fixtures/tokenizers/smollm", "tests/fixtures/tokenizers/llama2"]

# The library's side: argv TOKENIZER DATA OUT; prints its user CPU seconds.
PEER = r"""
import json, resource, sys, array
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
wide = tokenizer.get_vocab_size() > 65536
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
def batches(size=1 << 20):
    batch, length = [], 0
    for line in open(sys.argv[2], encoding="utf-8"):
        text = json.loads(line)["text"]
        batch.append(text)
        length += len(text)
        if length > size:
            yield batch
            batch, length = [], 0
    yield batch
with open(sys.argv[3], "wb") as out:
    for batch in batches():
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            array.array("I" if wide else "H", encoding.ids).tofile(out)
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
"""


def sources():
    for folder in (pathlib.Path("/usr/share/doc"), pathlib.Path(os.__file__).parent, pathlib.Path("/usr/lib/python3")):
        yield from sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in (".py", ".txt", ".md", ".rst", ".html", ""))


def write_text(path, megabytes, files):
    """Documents of up to 20,000 characters; the files again, shifted, where they are too few."""
    left, shift, distinct = megabytes * 1_000_000, 0, 0
    with open(path, "w", encoding="utf-8") as out:
        while left > 0:
            before = left
            for file in files:
                try:
                    text = file.read_text(encoding="utf-8")[shift:]
                except (UnicodeDecodeError, OSError):
                    continue
                for begin in range(0, len(text), 20_000):
                    piece = text[begin : begin + 20_000]
                    if left <= 0 or not piece.strip():
                        continue
                    left -= len(piece.encode())
                    out.write(json.dumps({"text": piece}) + "\n")
            distinct = distinct or before - left
            shift += 7
            if before == left:
                sys.exit("no text found; give --text FILE...")
    return distinct


def ours(program, tokenizer, data, out):
    """User CPU seconds and peak resident bytes of one process."""
    process = subprocess.Popen([program, "tokenize", "--tokenizer", tokenizer, "--plain", "--threads", "1", "--out", out, data], stderr=subprocess.DEVNULL)
    # Not ru_maxrss, which begins with what this process had when it started the other.
    peak, done = 0, 0
    while not done:
        try:
            for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]) * 1024)
        except ProcessLookupError:
            pass
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"intarsia tokenize ended with {process.returncode}")
    return usage.ru_utime, peak


def theirs(tokenizer, data, out):
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PEER, f"{tokenizer}/tokenizer.json", data, out], env=environment, check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--text", nargs="+", type=pathlib.Path)
    parser.add_argument("tokenizers", nargs="*")
    flags = parser.parse_intermixed_args()
    import tokenizers

    print(f"tokenizers {tokenizers.__version__}; {flags.megabytes} MB; user CPU seconds, one thread")
    with tempfile.TemporaryDirectory() as folder:
        data, tenth, a, b = (f"{folder}/{name}" for name in ("text.jsonl", "tenth.jsonl", "a.bin", "b.bin"))
        files = flags.text or list(sources())
        distinct = write_text(data, flags.megabytes, files)
        write_text(tenth, max(1, flags.megabytes // 10), files)
        print(f"{distinct / 1e6:.0f} MB of the text are distinct")
        print(f"{'tokenizer':40} {'pair':>4} {'ours s':>8} {'theirs s':>8} {'ratio':>6}  ids")
        for tokenizer in flags.tokenizers or [str(ROOT / name) for name in TOKENIZERS]:
            ratios = []
            for pair in range(flags.pairs):
                mine, peak = ours(flags.program, tokenizer, data, a)
                peer = theirs(tokenizer, data, b)
                same = pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes()
                ratios.append(mine / peer)
                print(f"{tokenizer[-40:]:40} {pair + 1:4} {mine:8.2f} {peer:8.2f} {mine / peer:6.3f}  {'equal' if same else 'DIFFER'}", flush=True)
            _, small = ours(flags.program, tokenizer, tenth, a)
            print(f"{tokenizer[-40:]:40} median ratio {sorted(ratios)[len(ratios) // 2]:.3f}; peak resident {small / 2**20:.0f} MiB at {max(1, flags.megabytes // 10)} MB, {peak / 2**20:.0f} MiB at {flags.megabytes} MB")


if __name__ == "__main__":
    main()
