#!/bin/bash
# train_optimizers.sh PROGRAM: optimizers, groups, the moving average and schedules by epochs, from flag to model files.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --batch-size 2 --lr 1e-3)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }

# Muon with everything, stopped by its steps and gone on with.
all=(--optimizer muon --ema '{"decay": 0.9}' --param-groups '[{"params": "*norm*", "lr": 1e-4, "weight_decay": 0}]')
train whole "${all[@]}" --steps 6 --ranks 2 --stage 3
check 'a run with Muon' test $code -eq 0
check 'the banner names it' grep -q 'Muon, momentum 0.95' "$folder/stderr"
check 'the average is a model' test -e "$folder/whole/model-ema/model.safetensors"
check 'the average is not the model' test "$(cmp "$folder/whole/model/model.safetensors" "$folder/whole/model-ema/model.safetensors" > /dev/null; echo $?)" -eq 1
train parts "${all[@]}" --steps 3 --ranks 2 --stage 3
train parts "${all[@]}" --steps 6 --ranks 2 --stage 3
check 'it goes on' grep -q 'resumed from' "$folder/stderr"
check 'the same losses' test "$(losses "$folder/whole")" = "$(losses "$folder/parts")"
check 'the same average' cmp "$folder/whole/model-ema/model.safetensors" "$folder/parts/model-ema/model.safetensors"
fails 2 'param_groups|matches no trainable parameter' "${base[@]}" --steps 1 --param-groups '[{"params": "norm", "lr": 1}]'
fails 2 'optimizer' "${base[@]}" --out "$folder/parts" --steps 7 --ranks 2 --stage 3 --optimizer lion

# A schedule that ends with the run, whose length follows from the epochs.
train epochs --optimizer adafactor --epochs 0.5 --schedule linear --warmup 0.25
check 'a linear schedule by epochs' test $code -eq 0
total=$(losses "$folder/epochs" | wc -l)
lr() { sed -n "$1p" "$folder/epochs/metrics.jsonl" | sed 's/.*"lr": \([^,]*\),.*/\1/'; }
check 'the first update of a warm-up uses 0' test "$(lr 1)" = 0
check 'the rate ends near 0' awk -v last="$(lr "$total")" -v n="$total" 'BEGIN { exit !(last > 0 && last < 2e-3 / (0.7 * n)) }'
fails 2 'epochs' "${base[@]}" --out "$folder/epochs" --optimizer adafactor --epochs 1 --schedule linear --warmup 0.25

for optimizer in sgd lion adagrad lamb; do
  train $optimizer --optimizer $optimizer --steps 2 --backend threads --ranks 2 --stage 2
  check "a run with $optimizer" test $code -eq 0
done
finish
