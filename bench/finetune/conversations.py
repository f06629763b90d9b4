#!/usr/bin/env python3
"""Writes conversations about this host's Debian packages, for fine-tuning: TRAIN.jsonl and HELD_OUT.jsonl ("messages").

Questions are made by rule; answers are words of the packages' descriptions, which have the licences of their packages
(/usr/share/doc/PACKAGE/copyright): the files are for use on the host, not to be passed on. One conversation for each source
package, so that no text is in both files. The same packages give the same bytes.
Usage: conversations.py TRAIN.jsonl HELD_OUT.jsonl [TRAIN_COUNT HELD_OUT_COUNT]"""
import json
import random
import re
import subprocess
import sys

SHORTEST, LONGEST = 60, 320  # characters of a paragraph that can be an answer


def packages():
    """(name, synopsis, paragraphs) of one installed package of each source whose description says enough."""
    record = "${Package}\x1f${source:Package}\x1f${Description}\x1e"
    out = subprocess.run(["dpkg-query", "-W", f"-f={record}"], capture_output=True, text=True, check=True).stdout
    seen = set()
    for entry in sorted(out.split("\x1e")):
        if entry.count("\x1f") != 2:
            continue
        name, source, text = entry.split("\x1f")
        synopsis, _, rest = text.partition("\n")
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n \.\n", rest) if not re.search(r"^  |^ [*-]", part, re.M)]
        paragraphs = [part for part in paragraphs if SHORTEST <= len(part) <= LONGEST]
        if source in seen or not paragraphs or not synopsis:
            continue
        seen.add(source)
        yield name, synopsis, paragraphs


def conversation(rng, name, synopsis, paragraphs):
    more = paragraphs[0]
    kind = rng.randrange(3)
    if kind == 0:
        turns = [(f"What is the Debian package {name}?", more)]
    elif kind == 1:
        turns = [(f"Say in one line what {name} is.", f"{name}: {synopsis}."), ("Tell me more.", more)]
    else:
        turns = [(f"Which Debian package is this? {synopsis}", f"It is {name}. {more}")]
    messages = []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def main():
    train, held_out = sys.argv[1:3]
    counts = [int(count) for count in sys.argv[3:5]] or [200, 20]
    rng = random.Random(11)
    all_packages = list(packages())
    if len(all_packages) < sum(counts):
        sys.exit(f"{len(all_packages)} packages are installed that say enough; {sum(counts)} are asked for: ask for fewer")
    rng.shuffle(all_packages)
    for path, chosen in ((train, all_packages[: counts[0]]), (held_out, all_packages[counts[0] : sum(counts)])):
        with open(path, "w") as file:
            for package in chosen:
                file.write(json.dumps({"messages": conversation(rng, *package)}) + "\n")


if __name__ == "__main__":
    main()
