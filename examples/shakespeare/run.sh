#!/usr/bin/env bash
# From nothing to a model that writes: fetches Shakespeare's plays, trains a tokenizer and a Llama of 5.8 million parameters
# from scratch on 2 ranks with ZeRO-3, is interrupted, goes on, and says how well a play it never saw is predicted.
# Usage: run.sh BUILD_DIR   (./dev demo calls it). Everything it writes is in runs/shakespeare.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
intarsia=${1:?which build folder?}/bin/intarsia
example=examples/shakespeare
out=runs/shakespeare
heldout=$out/data/heldout/tempest.txt
steps=300 interrupt_after=120

say() { printf '\n== %s\n' "$*"; }
# show COMMAND...: prints the command, then runs it.
show() {
  printf '$ %s\n' "$*"
  "$@"
}

mkdir -p "$out"
say "1. The text"
python3 "$example/fetch.py" "$out/data"

say "2. A tokenizer of 4096 entries, learned from the text"
if [ ! -e "$out/model/tokenizer.json" ]; then
  printf '$ %s\n' "intarsia tokenizer train --vocab 4096 --out $out/model $out/data/train/*.txt"
  "$intarsia" tokenizer train --vocab 4096 --out "$out/model" "$out"/data/train/*.txt
fi
cp "$example/model/config.json" "$out/model/config.json"

say "3. Training on 2 ranks: $example/ds_zero3_bf16.json"
precision=()
if ! grep -qwE 'amx_bf16|avx512_bf16' /proc/cpuinfo; then
  echo "This processor has no bf16 arithmetic (AMX or AVX512-BF16): training in fp32 instead, which takes longer."
  precision=(--set bf16.enabled=false)
fi
# A run that was left here by an earlier demo would be resumed, at its end.
rm -rf "$out/run"
train=("$intarsia" train --model "$out/model" --init random --data "$out/data/train/*.txt" --pack concat --seq-len 256
  --deepspeed "$example/ds_zero3_bf16.json" "${precision[@]}" --steps "$steps" --ranks 2
  --eval-data "$heldout" --eval-every 50 --save-every 100 --out "$out/run")
printf '$ %s\n' "${train[*]}"

# Job control gives the run a process group of its own, in which Ctrl-C is not ignored.
set -m
"${train[@]}" &
run=$!
set +m
trap 'kill -TERM $run 2>/dev/null || true' EXIT
while kill -0 $run 2>/dev/null; do
  [ ! -e "$out/run/metrics.jsonl" ] || [ "$(wc -l <"$out/run/metrics.jsonl")" -lt $interrupt_after ] || break
  sleep 0.2
done
say "4. Interrupting it, as Ctrl-C does"
kill -INT $run 2>/dev/null || true
status=0
wait $run || status=$?
trap - EXIT
[ $status = 75 ] || { echo "demo: the interrupted run ended with status $status, not 75 (stopped and saved)" >&2; exit 1; }

say "5. The same command again: it goes on where it stopped"
show "${train[@]}"

say "6. How well the held-out play is predicted, in bits per byte"
evaluate=("$intarsia" eval --model "$out/run/model" --data "$heldout" --seq-len 256 --batch-size 8 --ranks 2)
printf '$ %s\n' "${evaluate[*]}"
"${evaluate[@]}" --json >"$out/evaluation.json"
# metrics.jsonl has the loss per token; the final evaluation says how many bits of a byte that is for this text.
python3 - "$out/run/metrics.jsonl" "$out/evaluation.json" <<'PYTHON'
import json, sys
final = json.load(open(sys.argv[2]))
lines = [json.loads(line) for line in open(sys.argv[1])]
scale = final["bits_per_byte"] / final["loss"]
curve = [(line["step"], line["eval_loss"] * scale) for line in lines if line.get("eval_loss") is not None]
for step, bits in curve:
    print(f"  step {step:4d}   {bits:.3f}   {'#' * round(bits * 12)}")
print(f"  exported    {final['bits_per_byte']:.3f}")
if not curve or curve[-1][1] >= curve[0][1] or final["bits_per_byte"] > 2.9:
    sys.exit("demo: expected the bits per byte to fall, to at most 2.9")
PYTHON

say "7. The exported model, $out/run/model, is a Hugging Face directory. It writes:"
show "$intarsia" generate --model "$out/run/model" --prompt $'HAMLET.\nTo be' --temperature 0.8 --top-p 0.95 --max-new-tokens 120 --seed 1

cat <<TEXT

== Done
The plot of the loss:     $out/run/loss.svg
Every step in numbers:    $out/run/metrics.jsonl
What the JSON amounts to: $intarsia config show $example/ds_zero3_bf16.json --ranks 2

To try next:
  another stage           ... train ... --set zero_optimization.stage=1 --out $out/stage1    (the same curve)
  your own text           $intarsia train --model $out/model --init random --data YOUR.txt --ranks 2
  go on from this model   $intarsia train --model $out/run/model --data YOUR.txt --ranks 2 --lr 1e-4
TEXT
