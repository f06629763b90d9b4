#!/bin/bash
# run_commands.sh PROGRAM: train with a DeepSpeed file and with a preset, eval, generate, doctor. Run in the repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 60
reference=tests/fixtures/hf/llama-gqa/reference.safetensors

# The article's file as it is.
run "$program" train --model $model --data "$folder/t.jsonl" --deepspeed tests/fixtures/configs/article/zero3_llama.json \
  --batch-size 2 --lr 2e-5 --ranks 2 --steps 4 --out "$folder/article"
check "the article's file trains" test $code -eq 0
check 'four steps' test "$(losses "$folder/article" | wc -l)" -eq 4
check 'stage 3' grep -q 'ZeRO stage 3' "$folder/stderr"
for file in config.json tokenizer.json model.safetensors; do
  check "the exported $file" test -s "$folder/article/model/$file"
done

# Logits and loss of the fixture. The samples are input_ids and labels of its reference file.
cat > "$folder/tensors.py" << 'PYTHON'
import json, struct, sys

def read(path):
    blob = open(path, "rb").read()
    size = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], blob[8 + size :][slice(*t["data_offsets"])]) for name, t in header.items()}

def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, piece) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(piece)]}
        body += piece
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)

command, one, two = sys.argv[1:]
if command == "samples":
    write(two, {name: read(one)[name] for name in ("input_ids", "labels")})
if command == "fold":  # the same samples in a vocabulary of 256
    ids = read(one)["input_ids"]
    values = struct.unpack(f"<{len(ids[2]) // 4}i", ids[2])
    write(two, {"input_ids": (ids[0], ids[1], struct.pack(f"<{len(values)}i", *(v % 256 for v in values)))})
if command == "compare":
    (_, shape, a), (_, other, b) = read(one)["logits"], read(two)["logits"]
    floats = [struct.unpack(f"<{len(x) // 4}f", x) for x in (a, b)]
    worst = max(abs(x - y) for x, y in zip(*floats))
    print(f"logits {shape}: largest difference {worst}")
    sys.exit(shape != other or not worst < 1e-4)
PYTHON
python3 "$folder/tensors.py" samples $reference "$folder/samples.safetensors"
for ranks in 1 2; do
  run "$program" eval --model $model --data "$folder/samples.safetensors" --ranks $ranks --json --logits "$folder/logits$ranks.safetensors"
  check "eval on $ranks ranks" test $code -eq 0
  cp "$folder/stdout" "$folder/eval$ranks"
  check "logits on $ranks ranks" python3 "$folder/tensors.py" compare $reference "$folder/logits$ranks.safetensors"
  check "loss on $ranks ranks" grep -q '"loss":6.39940' "$folder/eval$ranks"
done
check 'eval says the same on 1 and 2 ranks' cmp "$folder/eval1" "$folder/eval2"
run "$program" eval --model $model --data "$folder/t.jsonl" --seq-len 64
check 'eval on text' grep -q 'bits_per_byte: [0-9]' "$folder/stdout"

# Random weights, to compare with: the vocabulary's 367 tokens are about equally likely.
run "$program" eval --model $model --data "$folder/samples.safetensors" --init random --json
check 'eval of random weights' grep -q '"loss":5.[89]' "$folder/stdout"

# Generation repeats the prompt, and itself.
greedy() { run "$program" generate --model $model --prompt 'the river' --max-new-tokens 8 "$@"; }
greedy
check 'generate' test $code -eq 0
check 'the prompt comes first' test "$(head -c 9 "$folder/stdout")" = 'the river'
check 'and more' test "$(wc -c < "$folder/stdout")" -gt 10
cp "$folder/stdout" "$folder/first"
greedy
check 'greedy generation is deterministic' cmp "$folder/first" "$folder/stdout"
greedy --temperature 1 --top-p 0.9 --seed 5
cp "$folder/stdout" "$folder/first"
greedy --temperature 1 --top-p 0.9 --seed 5
check 'sampling follows the seed' cmp "$folder/first" "$folder/stdout"
fails 2 '--max-new-tokens 0' "$program" generate --model $model --prompt a --max-new-tokens 0
fails 2 'llama-tiny|tokenizer.json' "$program" generate --model llama-tiny --prompt a

run "$program" doctor
check 'doctor' test $code -eq 0
for word in torch cores vectors memory 'disk here' openmp launcher 'shared memory'; do
  check "doctor says $word" grep -q "^$word " "$folder/stdout"
done

python3 "$folder/tensors.py" fold $reference "$folder/folded.safetensors"

# A dry run prints the configuration and starts nothing.
run "$program" train --model llama-350m --data "$folder/folded.safetensors" --ranks 2 --batch-size 1 --dry-run
check 'a dry run' test $code -eq 0
check 'a dry run prints JSON' python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$folder/stdout"
( ulimit -v 1500000 && "$program" train --model llama-350m --data "$folder/folded.safetensors" --ranks 2 --dry-run ) > /dev/null 2>&1
dry=$?
check 'a dry run takes no memory for the model' test $dry -eq 0

# A preset with ready samples.
run "$program" train --model llama-tiny --data "$folder/folded.safetensors" --ranks 2 --stage 3 --steps 2 --out "$folder/preset"
check 'a preset trains on samples' test "$code/$(losses "$folder/preset" | wc -l)" = 0/2
fails 5 'samples.safetensors|vocabulary of 256' "$program" train --model llama-tiny --data "$folder/samples.safetensors" --steps 2 --out "$folder/wrong"
finish
