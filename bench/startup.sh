#!/usr/bin/env bash
# From the command to the end of the first optimizer step: Intarsia against FSDP2 and DeepSpeed, in turn, on the same weights and
# batches, with warm and, as root, with cold file caches; and how long `intarsia config check` takes, which links no torch.
# Usage: bench/startup.sh [PAIRS] [MODEL] [PRECISION]    in a built checkout; default 5 llama-34m fp32. MODEL as in bench/peers/run;
#        llama-350m is a directory of 1.4 GB. Needs build/bin and the Python environment of tests/python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pairs=${1:-5} model=${2:-llama-34m} precision=${3:-fp32}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
OUT="$work" bench/peers/run "$model" "$precision" 1 256 4 fsdp2-full > /dev/null
mv "$work/weights.safetensors" "$work/model.safetensors"
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
ours() {
  rm -rf "$work/run"
  local start; start=$(date +%s.%N)
  build/bin/intarsia train --model "$work" --data "$work/samples.safetensors" --seq-len 256 --ranks 2 --stage 3 --batch-size 1 --steps 4 \
    --dtype "$precision" --threads 1 --out "$work/run" > /dev/null 2>&1
  python3 -c 'import json, sys; print(round(json.loads(open(sys.argv[1]).readline())["time"] - float(sys.argv[2]), 3))' \
    "$work/run/metrics.jsonl" "$start"
}
# The better of the two.
theirs() { for system in fsdp2-full ds-3; do bench/peers/run "$work" "$precision" 1 256 4 "$system" | field first_step_s; done | sort -n | head -1; }
forget() { sync; echo 3 > /proc/sys/vm/drop_caches; }
compare() {  # compare NAME BEFORE_EACH
  local ratios=() a b
  for ((pair = 1; pair <= pairs; pair++)); do
    $2; a=$(ours); $2; b=$(theirs)
    ratios+=("$(python3 -c 'import sys; print(float(sys.argv[1]) / float(sys.argv[2]))' "$a" "$b")")
    printf '%s  %4d  %10s  %6s  %.4f\n' "$1" "$pair" "$a" "$b" "${ratios[-1]}"
  done
  printf '%s\n' "${ratios[@]}" | sort -n | awk -v n="$1" '{r[NR] = $1} END {printf "%s: median ratio %.4f (lowest %.4f, highest %.4f)\n", n, r[int((NR + 1) / 2)], r[1], r[NR]}'
}
printf '%s, %s, 2 ranks, stage 3, %s bytes of weights\ncaches pair  intarsia s  peer s  ratio\n' "$model" "$precision" "$(stat -c %s "$work/model.safetensors")"
compare warm :
if [ -w /proc/sys/vm/drop_caches ]; then compare cold forget; else echo "cold: not root, not tried"; fi
config=$(for _ in 1 2 3 4 5; do s=$(date +%s%N); build/bin/intarsia config check examples/deepspeed/zero3_llama.json --hidden-size 64 --batch-size 2 --lr 2e-5 >/dev/null || exit 1; echo $((($(date +%s%N) - s) / 1000000)); done | sort -n | sed -n 3p)
printf 'intarsia config check: %s ms (median of 5); load average %s\n' "$config" "$(cut -d' ' -f1 /proc/loadavg)"
