#!/usr/bin/env bash
# Seconds from the command to the end of the first optimizer step, next to FSDP2 on the same work, in turn, on this host.
# Usage: bench/startup.sh [PAIRS]   needs build/ and the Python environment of tests/python (./dev test-slow makes it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pairs=${1:-5}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 - "$work/samples.safetensors" <<'PYTHON'
import json, random, struct, sys
random.seed(0)
rows, length = 64, 32
body = struct.pack(f"<{rows * length}i", *(random.randrange(256) for _ in range(rows * length)))
head = json.dumps({"input_ids": {"dtype": "I32", "shape": [rows, length], "data_offsets": [0, len(body)]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + body)
PYTHON
ours() {
  rm -rf "$work/run"
  local start; start=$(date +%s.%N)
  build/bin/intarsia train --model llama-tiny --data "$work/samples.safetensors" --ranks 2 --stage 3 --batch-size 2 --steps 4 \
    --threads 1 --out "$work/run" 2>/dev/null
  python3 -c 'import json, sys; print(round(json.loads(open(sys.argv[1]).readline())["time"] - float(sys.argv[2]), 3))' \
    "$work/run/metrics.jsonl" "$start"
}
theirs() { bench/peers/run llama-tiny fp32 2 32 4 fsdp2-full | python3 -c 'import json, sys; print(json.load(sys.stdin)["first_step_s"])'; }
ratios=()
printf 'pair  intarsia s  FSDP2 s  ratio\n'
for ((pair = 1; pair <= pairs; pair++)); do
  a=$(ours); b=$(theirs)
  ratios+=("$(python3 -c 'import sys; print(float(sys.argv[1]) / float(sys.argv[2]))' "$a" "$b")")
  printf '%4d  %10s  %7s  %.4f\n' "$pair" "$a" "$b" "${ratios[-1]}"
done
printf '%s\n' "${ratios[@]}" | sort -n | awk '{r[NR] = $1} END {printf "median ratio %.4f (lowest %.4f, highest %.4f)\n", r[int((NR + 1) / 2)], r[1], r[NR]}'
config=$(for _ in 1 2 3 4 5; do s=$(date +%s%N); build/bin/intarsia config check examples/deepspeed/zero3_llama.json --hidden-size 64 --batch-size 2 --lr 2e-5 >/dev/null || exit 1; echo $((($(date +%s%N) - s) / 1000000)); done | sort -n | sed -n 3p)
printf 'intarsia config check: %s ms (median of 5)\n' "$config"
