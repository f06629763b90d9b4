#!/bin/bash
# train_mistakes.sh PROGRAM: each mistake ends with its exit code and one line that names it. Run in the repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 60
run_folder=$folder/run
base=("$program" train --data "$folder/t.jsonl" --steps 4)
train=("${base[@]}" --seq-len 32 --out "$run_folder")
good=("${train[@]}" --model $model --ranks 2)

# The command line.
fails 2 'trian|did you mean train?' "$program" trian
fails 2 '--batch-sise|did you mean --batch-size?' "${good[@]}" --batch-sise 3
fails 2 '--model' "${train[@]}"
fails 2 '--ranks|0|at least 1' "${train[@]}" --model $model --ranks 0
fails 2 '1000|256' "${base[@]}" --out "$run_folder" --model $model --ranks 2 --seq-len 1000
printf '{"train_batch_size": 5, "optimizer": {"type": "AdamW"}}' > "$folder/batch.json"
fails 2 'train_batch_size|5' "${good[@]}" --config "$folder/batch.json" --batch-size 2
fails 2 'no_such_model|presets' "${train[@]}" --model "$folder/no_such_model"

# The data.
: > "$folder/empty.jsonl"
fails 5 'empty.jsonl' "$program" train --model $model --data "$folder/empty.jsonl" --ranks 2 --out "$run_folder"
fails 2 'none.jsonl' "$program" train --model $model --data "$folder/none.jsonl" --ranks 2 --out "$run_folder"

# RUN below a file cannot be made.
fails 5 't.jsonl/run' "$program" train --model $model --data "$folder/t.jsonl" --ranks 2 --steps 1 --seq-len 32 --out "$folder/t.jsonl/run"

# Model files. edit_weights INPUT OUTPUT drop|extra|infinite: rewrites a safetensors file with a tensor taken out, one added,
# or the final norm made infinite.
edit_weights() {
  python3 - "$@" << 'PYTHON'
import json, struct, sys
source, target, what = sys.argv[1:]
blob = open(source, "rb").read()
size = struct.unpack("<Q", blob[:8])[0]
header, data = json.loads(blob[8 : 8 + size]), bytearray(blob[8 + size :])
norm = "model.norm.weight"
if what == "infinite":
    begin, end = header[norm]["data_offsets"]
    data[begin:end] = struct.pack("<f", float("inf")) * ((end - begin) // 4)
tensors = [(name, t, bytes(data[slice(*t["data_offsets"])])) for name, t in header.items() if name != "__metadata__"]
if what == "drop":
    tensors = [t for t in tensors if t[0] != norm]
if what == "extra":
    tensors.append(("model.surprise.weight", {"dtype": "F32", "shape": [2]}, bytes(8)))
out, body = {}, b""
for name, t, piece in tensors:
    out[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [len(body), len(body) + len(piece)]}
    body += piece
text = json.dumps(out).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + body)
PYTHON
}
variant() {
  mkdir "$folder/$1"
  cp $model/config.json $model/tokenizer.json "$folder/$1"
}
variant cut
head -c 100000 $model/model.safetensors > "$folder/cut/model.safetensors"
fails 5 'cut/model.safetensors|model.embed_tokens.weight|bytes missing' "${train[@]}" --ranks 2 --model "$folder/cut"
for kind in drop extra infinite; do
  variant $kind
  edit_weights $model/model.safetensors "$folder/$kind/model.safetensors" $kind
done
fails 5 'model.norm.weight' "${train[@]}" --ranks 2 --model "$folder/drop"
fails 5 'model.surprise.weight' "${train[@]}" --ranks 2 --model "$folder/extra"
variant shard
printf '{"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}' > "$folder/shard/model.safetensors.index.json"
fails 5 'model-00001-of-00001.safetensors' "${train[@]}" --ranks 2 --model "$folder/shard"
variant pickle
printf 'x' > "$folder/pickle/pytorch_model.bin"
fails 5 'pytorch_model.bin|no zip archive' "${train[@]}" --ranks 2 --model "$folder/pickle"
variant vocabulary
sed -i 's/"vocab_size": 367/"vocab_size": 300/' "$folder/vocabulary/config.json"
fails 2 'the tokenizer|367|300' "${train[@]}" --ranks 2 --model "$folder/vocabulary"

# Nothing of the above was begun: a mistake in the model is found before or without a checkpoint.
check 'no checkpoint after a mistake' test -z "$(ls "$run_folder/checkpoints" 2> /dev/null)"

# A loss that is not finite for 3 steps in a row ends the run; what was saved before stays as it was.
fails 6 'not finite in 3 steps|--lr' "${train[@]}" --ranks 2 --model "$folder/infinite"
check 'nothing saved after a loss that is not finite' test -z "$(ls "$run_folder/checkpoints")"
finite=("$program" train --data "$folder/t.jsonl" --seq-len 32 --model $model --ranks 2 --out "$folder/finite")
run "${finite[@]}" --steps 2
check 'the run before' test $code -eq 0
before=$(cksum "$folder"/finite/checkpoints/step-2/* "$folder"/finite/model/*)
fails 6 'not finite in 2 steps' "${finite[@]}" --steps 20 --lr 1e30 --resume-with-changes optimizer --max-bad-steps 2
check 'the earlier checkpoint and model stay' test "$before" = "$(cksum "$folder"/finite/checkpoints/step-2/* "$folder"/finite/model/*)"

# MASTER_PORT is taken.
python3 -c '
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(30)' > "$folder/port" &
holder=$!
for _ in $(seq 500); do [ -s "$folder/port" ] && break; sleep 0.01; done
port=$(cat "$folder/port")
fails 2 "$port|is taken by another program|MASTER_PORT" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "${train[@]}" --model $model
kill $holder
finish
