#!/usr/bin/env bash
# What gathering ahead and reducing behind the backward save on slow links: the same step with and without overlap_comm, in
# turn, on two pretended hosts. Seconds that a rank waits in communication, and seconds a step.
# Usage: bench/overlap.sh [RATE] [PAIRS] [MODEL] [STAGE]   as root; needs build/ and iproute2. Default: 1gbit 5 llama-34m 3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rate=${1:-1gbit} pairs=${2:-5} model=${3:-llama-34m} stage=${4:-3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 - "$work/samples.safetensors" <<'PYTHON'
import json, random, struct, sys
random.seed(0)
rows, length = 64, 256
body = struct.pack(f"<{rows * length}i", *(random.randrange(256) for _ in range(rows * length)))
head = json.dumps({"input_ids": {"dtype": "I32", "shape": [rows, length], "data_offsets": [0, len(body)]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + body)
PYTHON
# Prints seconds waited and seconds of the median step; the losses go to a file, which must not depend on overlap.
step() {
  printf '{"bf16": {"enabled": true}, "zero_optimization": {"stage": %s, "overlap_comm": %s}}' "$stage" "$1" > "$work/ds.json"
  rm -rf "$work/run"
  unshare -m tools/hosts -n 2 -r "$rate" build/bin/intarsia train --model "$model" --init random --data "$work/samples.safetensors" \
    --config "$work/ds.json" --backend gloo --batch-size 4 --steps 6 --threads 1 --out "$work/run" > "$work/log" 2>&1 ||
    { tail -5 "$work/log" >&2; exit 1; }
  python3 - "$work/run/metrics.jsonl" "$work/losses.$1" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
open(sys.argv[2], "w").write("\n".join(repr(line["loss"]) for line in lines))
steady = lines[2:]
print(*(round(statistics.median(line[key] for line in steady), 4) for key in ("comm_exposed_seconds", "step_seconds")))
PYTHON
}
printf '%s, stage %s, bf16, 2 hosts at %s, %s processors\npair   waited: ahead / on the spot   step: ahead / on the spot\n' "$model" "$stage" "$rate" "$(nproc)"
waits=() steps=()
for ((pair = 1; pair <= pairs; pair++)); do
  read -r wait_ahead step_ahead <<< "$(step true)"
  read -r wait_spot step_spot <<< "$(step false)"
  cmp -s "$work/losses.true" "$work/losses.false" || { echo "the losses differ"; exit 1; }
  waits+=("$(awk -v a="$wait_ahead" -v b="$wait_spot" 'BEGIN {print a / b}')") steps+=("$(awk -v a="$step_ahead" -v b="$step_spot" 'BEGIN {print a / b}')")
  printf '%4d   %s / %s s = %.3f   %s / %s s = %.3f\n' "$pair" "$wait_ahead" "$wait_spot" "${waits[-1]}" "$step_ahead" "$step_spot" "${steps[-1]}"
done
median() { printf '%s\n' "$@" | sort -n | awk '{r[NR] = $1} END {printf "median %.3f (lowest %.3f, highest %.3f)", r[int((NR + 1) / 2)], r[1], r[NR]}'; }
printf 'waited: %s\nstep:   %s\nload average %s\n' "$(median "${waits[@]}")" "$(median "${steps[@]}")" "$(cut -d' ' -f1 /proc/loadavg)"
