#!/bin/bash
# train_lora.sh PROGRAM: LoRA as a user meets it: train, resume, evaluate with the adapter, merge, mistakes.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 120
data=(--data "$folder/t.jsonl" --seq-len 32)
base=("$program" train --model $model "${data[@]}" --batch-size 2 --lr 1e-2 --ranks 2 --stage 3)
lora='{"r": 4, "alpha": 8, "targets": ["q_proj", "v_proj", "down_proj"]}'
adapter=$folder/whole/model

run "${base[@]}" --lora "$lora" --steps 4 --out "$folder/whole"
check 'a LoRA run' test $code -eq 0
check 'the banner says so' grep -q 'LoRA of rank 4, alpha 8, on q_proj, v_proj, down_proj: ' "$folder/stderr"
check 'the adapter is written' test -s "$adapter/adapter_model.safetensors"
check 'with its tokenizer' test -s "$adapter/tokenizer.json"
check 'and no model' test ! -e "$adapter/model.safetensors"
check 'it names its base' grep -q "\"base_model_name_or_path\": \"$model\"" "$adapter/adapter_config.json"

# Stopped in the middle and gone on with.
run "${base[@]}" --lora "$lora" --steps 2 --out "$folder/parts"
run "${base[@]}" --lora "$lora" --steps 4 --out "$folder/parts"
check 'resumed, the same losses' test "$(losses "$folder/whole")" = "$(losses "$folder/parts")"
check 'and the same adapter' cmp "$adapter/adapter_model.safetensors" "$folder/parts/model/adapter_model.safetensors"
fails 2 'other settings|intarsia.lora.r' "${base[@]}" --lora '{"r": 8, "alpha": 8}' --steps 5 --out "$folder/parts"

# With dropout, whose choice a resumed run, another number of ranks and recomputation repeat.
dropped='{"r": 4, "alpha": 8, "dropout": 0.2, "targets": ["q_proj", "down_proj"]}'
same=("$program" train --model $model "${data[@]}" --lora "$dropped" --reproducible --lr 1e-2)
run "${same[@]}" --batch-size 2 --accumulation 2 --steps 4 --out "$folder/dropped"
check 'a run with dropout' test $code -eq 0
check 'the banner says so' grep -q 'alpha 8, dropout 0.2, on q_proj' "$folder/stderr"
check 'the adapter, too' grep -q '"lora_dropout": 0.2' "$folder/dropped/model/adapter_config.json"
run "${same[@]}" --batch-size 2 --accumulation 2 --steps 2 --out "$folder/dropped_parts"
run "${same[@]}" --batch-size 2 --ranks 2 --stage 3 --recompute full --steps 4 --out "$folder/dropped_parts"
check 'resumed on two ranks, recomputed' test $code -eq 0
check 'the same adapter' cmp "$folder/dropped/model/adapter_model.safetensors" "$folder/dropped_parts/model/adapter_model.safetensors"

# Held-out loss of the adapter beside its base, and of the two merged.
loss_of() { "$program" eval "${data[@]}" --json "$@" 2> "$folder/stderr" | grep -o '"loss":[^,]*' | cut -d: -f2; }
plain=$(loss_of --model $model)
adapted=$(loss_of --model $model --adapter "$adapter")
check "training lowered the loss ($plain, then $adapted)" awk "BEGIN { exit !($adapted < $plain - 0.01) }"
check 'sharded the same' test "$(loss_of --model $model --adapter "$adapter" --ranks 2)" = "$adapted"
expect 0 'the adapter merged into 6 of them' "$program" convert "$adapter" "$folder/merged" --to hf --model $model
check 'the merged model says the same' test "$(loss_of --model "$folder/merged")" = "$adapted"
check 'it has a tokenizer' test -s "$folder/merged/tokenizer.json"
run "$program" generate --model $model --adapter "$adapter" --prompt 'the' --max-new-tokens 4
check 'generate takes the adapter' test $code -eq 0
run "$program" train --model $model "${data[@]}" --lora "$lora" --steps 3 --dry-run
check 'the resolved configuration has it' grep -q '"lora"' "$folder/stdout"

fails 2 'is a LoRA adapter, not a model' "$program" eval --model "$adapter" "${data[@]}"
fails 2 '--model is missing|a path in a file is not followed' "$program" convert "$adapter" "$folder/none"
fails 2 'has a config.json already' "$program" convert "$adapter" "$folder/merged" --model $model
fails 5 'is no adapter of this model' "$program" convert "$adapter" "$folder/none" --model tests/fixtures/hf/llama-tied/model
fails 2 'there are q_proj, k_proj' "${base[@]}" --steps 1 --lora '{"r": 2, "targets": ["query"]}'
fails 2 '--freeze *norm* with --lora' "${base[@]}" --steps 1 --lora '{"r": 2}' --freeze '*norm*'
expect 2 'lora.dropout|a number from 0 to below 1' "${base[@]}" --steps 1 --lora '{"r": 2, "dropout": 1}'
check 'nothing was written' test ! -e "$folder/none"
finish
