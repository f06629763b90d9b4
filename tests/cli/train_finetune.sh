#!/bin/bash
# train_finetune.sh PROGRAM: what fine-tuning adds to training: frozen parameters, the best evaluation, an early end.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --batch-size 2)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }
# tensor FILE NAME: the bytes of one tensor of a safetensors file.
tensor() {
  python3 - "$1" "$2" << 'PYTHON'
import json, sys
raw = open(sys.argv[1], "rb").read()
size = int.from_bytes(raw[:8], "little")
begin, end = json.loads(raw[8:8 + size])[sys.argv[2]]["data_offsets"]
print(raw[8 + size + begin:8 + size + end].hex())
PYTHON
}
trained="$folder/frozen/model/model.safetensors"

train frozen --freeze 'model.embed_tokens.*' '*mlp*' --steps 3 --lr 1e-2 --ranks 2 --stage 3
check 'a run with frozen parameters' test $code -eq 0
for name in model.embed_tokens.weight model.layers.1.mlp.up_proj.weight; do
  check "$name is as it was" test "$(tensor "$trained" $name)" = "$(tensor $model/model.safetensors $name)"
done
moved() { test "$(tensor "$trained" "$1")" != "$(tensor $model/model.safetensors "$1")"; }
check 'the others moved' moved model.layers.1.self_attn.q_proj.weight
check 'and norms' moved model.norm.weight
fails 2 '--freeze layers matches no parameter' "${base[@]}" --steps 1 --freeze layers
fails 2 'leaves nothing to train' "${base[@]}" --steps 1 --freeze '*'

# At this rate the loss rises after some steps.
early=(--eval-fraction 0.2 --eval-every 2 --early-stopping 2 --save-best --lr 0.3 --seed 3)
train early "${early[@]}" --steps 40 --ranks 2 --stage 2
check 'a run that ends early' test $code -eq 0
check 'it says so' grep -q 'ended early at step' "$folder/stderr"
steps=$(wc -l < "$folder/early/metrics.jsonl")
check 'before its steps' test "$steps" -lt 40
best=$(grep -o '"eval_loss": [^,}]*' "$folder/early/metrics.jsonl" | cut -d' ' -f2 | sort -g | head -1)
check 'two evaluations after the best' test "$(grep -n "\"eval_loss\": $best" "$folder/early/metrics.jsonl" | head -1 | cut -d: -f1)" -eq $((steps - 4))
check 'the best model is kept' test -e "$folder/early/best/model.safetensors"
train early "${early[@]}" --steps 40 --ranks 2 --stage 2
check 'and again nothing to do' test "$(wc -l < "$folder/early/metrics.jsonl")" -eq "$steps"
# Stopped in the middle and gone on with, it ends at the same step.
train parts "${early[@]}" --steps $((steps - 2)) --ranks 2 --stage 2
train parts "${early[@]}" --steps 40 --ranks 2 --stage 2
check 'the same end after a stop' test "$(losses "$folder/early")" = "$(losses "$folder/parts")"
fails 2 'early-stopping|without evaluations' "${base[@]}" --steps 1 --early-stopping 2
fails 2 'save-best|--eval-every N' "${base[@]}" --steps 1 --save-best --eval-fraction 0.2
finish
