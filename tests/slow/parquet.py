#!/usr/bin/env python3
"""The line of docs/data.md that makes JSONL of a Parquet file, as it stands there: chats, texts, dates and bytes go through it.

Usage: parquet.py PROGRAM      in the repository's root
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet

CHATS = [
    [{"role": "user", "content": "Where is the café?"}, {"role": "assistant", "content": "At the\nharbour."}],
    [{"role": "user", "content": "And \"now\"?"}, {"role": "assistant", "content": "雨です"}],
]


def documented_line():
    for line in pathlib.Path("docs/data.md").read_text().splitlines():
        if line.startswith("python3 -c") and "parquet" in line:
            return line.replace("python3", sys.executable, 1)
    sys.exit("FAILED: docs/data.md has no line that converts Parquet")


def convert(folder, table):
    pyarrow.parquet.write_table(table, folder / "FILE.parquet", row_group_size=1)
    subprocess.run(["bash", "-c", documented_line()], cwd=folder, check=True)
    return [json.loads(line) for line in (folder / "FILE.jsonl").read_text(encoding="utf-8").splitlines()]


def main():
    program, problems = pathlib.Path(sys.argv[1]).resolve(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        when = [datetime.datetime(2024, 5, 1), None]
        rows = convert(folder, pyarrow.table({"messages": CHATS, "when": when, "raw": [b"\xff", b""], "score": [0.5, 2.0]}))
        if [row["messages"] for row in rows] != CHATS:
            problems.append(f"messages became {rows}")
        rows = convert(folder, pyarrow.table({"text": ["one\n\ttwo", "caf\u00e9"]}))
        if rows != [{"text": "one\n\ttwo"}, {"text": "caf\u00e9"}]:
            problems.append(f"texts became {rows}")
        model = pathlib.Path("tests/fixtures/hf/llama-gqa/model").resolve()
        said = subprocess.run([program, "tokenize", "--tokenizer", model, "--json", folder / "FILE.jsonl"], check=True, stdout=subprocess.PIPE, text=True)
        if len(said.stdout.splitlines()) != 2:
            problems.append(f"intarsia tokenize printed {said.stdout}")
    for problem in problems:
        print("FAILED:", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
