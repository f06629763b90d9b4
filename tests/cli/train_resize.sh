#!/bin/bash
# train_resize.sh PROGRAM: a tokenizer with more tokens than the model has rows: told, then resized, trained, resumed, exported.
program=$1
. tests/cli/expect.sh
# Three tokens more than the model's 367 rows, as somebody who adds markers of their own makes them.
more=$folder/more
cp -r $model "$more"
python3 - "$more/tokenizer.json" << 'PYTHON'
import json, sys
tokenizer = json.load(open(sys.argv[1]))
for id, text in enumerate(("<|question|>", "<|answer|>", "<|done|>"), 367):
    tokenizer["added_tokens"].append({"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": False, "special": True})
json.dump(tokenizer, open(sys.argv[1], "w"))
PYTHON
for i in $(seq 120); do printf '{"text": "<|question|>is the river %s far<|answer|>no, lantern %s<|done|>"}\n' "$i" $((i * 7919)); done > "$folder/t.jsonl"
data=(--data "$folder/t.jsonl" --seq-len 32)
base=("$program" train --model "$more" "${data[@]}" --batch-size 2 --lr 1e-2 --ranks 2 --stage 3)
rows() { python3 - "$1/model.safetensors" << 'PYTHON'
import json, sys
raw = open(sys.argv[1], "rb").read()
size = int.from_bytes(raw[:8], "little")
print({name: tensor["shape"][0] for name, tensor in json.loads(raw[8:8 + size]).items() if name in ("model.embed_tokens.weight", "lm_head.weight")})
PYTHON
}

fails 2 'has 370 tokens, the model'"'"'s embedding only vocab_size = 367 rows|--resize-vocab tokenizer' "${base[@]}" --steps 1
fails 2 'has 370 tokens|--resize-vocab tokenizer' "$program" eval --model "$more" "${data[@]}"
run "${base[@]}" --resize-vocab tokenizer --steps 4 --out "$folder/whole"
check 'a run with more rows' test $code -eq 0
check 'the banner tells it' grep -q 'vocabulary 370 rows, 367 in the files' "$folder/stderr"
check 'config.json has the new size' grep -q '"vocab_size": 370' "$folder/whole/model/config.json"
check 'and both tensors' test "$(rows "$folder/whole/model")" = "{'lm_head.weight': 370, 'model.embed_tokens.weight': 370}"
check 'with the tokenizer' cmp "$more/tokenizer.json" "$folder/whole/model/tokenizer.json"

# Stopped in the middle and gone on with, moments of the new rows too.
run "${base[@]}" --resize-vocab tokenizer --steps 2 --out "$folder/parts"
run "${base[@]}" --resize-vocab tokenizer --steps 4 --out "$folder/parts"
check 'resumed, the same losses' test "$(losses "$folder/whole")" = "$(losses "$folder/parts")"
check 'and the same model' cmp "$folder/whole/model/model.safetensors" "$folder/parts/model/model.safetensors"
fails 2 'other settings|intarsia.resize_vocab' "${base[@]}" --resize-vocab 384 --steps 5 --out "$folder/parts"
fails 5 'has shape [370, 36], the model'"'"'s is [384, 36]' "${base[@]}" --resize-vocab 384 --steps 5 --out "$folder/parts" --resume-with-changes resize_vocab

# What comes out is a model like any other.
run "$program" eval --model "$folder/whole/model" "${data[@]}" --json
check 'it is evaluated' grep -q '"loss":' "$folder/stdout"
run "$program" generate --model "$folder/whole/model" --prompt '<|question|>is' --max-new-tokens 4
check 'it continues a text' test $code -eq 0
run "$program" train --model "$folder/whole/model" "${data[@]}" --steps 1 --out "$folder/next"
check 'and trains on without the flag' test $code -eq 0

run "${base[@]}" --resize-vocab tokenizer --resize-vocab-multiple 64 --steps 1 --out "$folder/padded"
check 'rounded up' grep -q '"vocab_size": 384' "$folder/padded/model/config.json"
run "${base[@]}" --resize-vocab 400 --steps 1 --out "$folder/number" --init random
check 'from nothing' grep -q '"vocab_size": 400' "$folder/number/model/config.json"
run "$program" plan --model "$more" --seq-len 32 --resize-vocab 1000000 --json
check 'plan counts the rows' grep -qE '"parameters": *7[0-9]{7}' "$folder/stdout"
run "$program" plan --model "$more" --seq-len 32 --resize-vocab tokenizer
check 'plan opens the tokenizer' test $code -eq 0
run "$program" train --model "$more" "${data[@]}" --resize-vocab tokenizer --steps 1 --dry-run
check 'the resolved configuration has it' grep -q '"resize_vocab": "tokenizer"' "$folder/stdout"
printf '{"train_batch_size": 2, "intarsia": {"resize_vocab": 380}}' > "$folder/c.json"
run "$program" train --model "$more" "${data[@]}" --config "$folder/c.json" --steps 1 --out "$folder/json"
check 'as a key' grep -q '"vocab_size": 380' "$folder/json/model/config.json"

fails 2 '--resize-vocab 368: the tokenizer has 370 tokens' "${base[@]}" --steps 1 --resize-vocab 368
fails 2 'resize-vocab-multiple|without a new size' "${base[@]}" --steps 1 --resize-vocab-multiple 64
fails 2 '--resize-vocab with --lora' "${base[@]}" --steps 1 --resize-vocab tokenizer --lora '{"r": 2}'
expect 2 'resize-vocab|tokenizer|whole number' "${base[@]}" --steps 1 --resize-vocab auto
rm "$more/tokenizer.json"
fails 2 'there is no tokenizer.json beside the model' "${base[@]}" --steps 1 --resize-vocab tokenizer
finish
