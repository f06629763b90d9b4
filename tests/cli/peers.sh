#!/bin/bash
# peers.sh PROGRAM: convert, inspect, diff and train on the checkpoints of DeepSpeed and PyTorch, as docs/checkpoints.md says. Run in the
# repository's root.
program=$1
. tests/cli/expect.sh
peers=tests/fixtures/checkpoints

# converted CASE CHECKPOINT: its weights and moments in fp32 are the expected ones.
converted() {
  local case=$peers/$1 out=$folder/model-${1//\//-}
  run "$program" convert "$case/$2" "$out" --to hf --dtype fp32 --optimizer-state "$out.adam.safetensors" --model "$case/config.json"
  check "convert $1" test $code -eq 0
  check "the weights of $1" "$program" diff "$out" "$case/expected.safetensors" > /dev/null
  check "the moments of $1" "$program" diff "$out.adam.safetensors" "$case/expected_moments.safetensors" > /dev/null
}
converted deepspeed/z1-w3-bf16-grad32-tied ckpt
converted deepspeed/z2-w2-gas-decay universal
converted deepspeed/z3-w3-frozen-tied ckpt
converted dcp/fsdp2-w3-bf16-tied ckpt
converted dcp/accelerate-fsdp2-w2 ckpt

zero2=$peers/deepspeed/z2-w2-gas-decay
run "$program" convert $zero2/ckpt "$folder/bf16" --dtype bf16
check 'config.json is found above the checkpoint' test -e "$folder/bf16/config.json"
run "$program" diff "$folder/bf16" $zero2/ckpt
check 'diff says what rounding changed' test $code -eq 1
check 'by how much' grep -q 'model.norm.weight: .* elements differ, the most by' "$folder/stdout"
cp -r $zero2/ckpt "$folder/alone"
expect 0 'without config.json' "$program" convert "$folder/alone" "$folder/no-config"
fails 2 'has a model.safetensors already' "$program" convert $zero2/ckpt "$folder/bf16/../no-config"
fails 2 'no state of the optimizer' "$program" convert $peers/dcp/hf-storage-w2/ckpt "$folder/m" --optimizer-state "$folder/s"
fails 2 'no such file' "$program" convert "$folder/nowhere" "$folder/m"
run "$program" convert $peers/deepspeed/z1-w3-bf16-grad32-tied/ckpt "$folder/untied" --model $zero2
check 'a model whose config does not tie gets both' grep -q lm_head.weight "$folder/untied/model.safetensors"
fails 5 "are not this model's|lm_head.weight" "$program" convert $zero2/ckpt "$folder/m" --model $peers/deepspeed/z1-w3-bf16-grad32-tied

run "$program" inspect $peers/deepspeed/z3-w2-fp16-subgroups/ckpt --verify
check 'inspect' test $code -eq 0
for text in 'DeepSpeed ZeRO-3, written by 2 ranks' 'verified: yes' 'step: 3' '"scale":256' '"lr":0.004' 'exp_avg_sq'; do
  check "inspect says $text" grep -qF -- "$text" "$folder/stdout"
done
run "$program" inspect $zero2/ckpt --json
check 'inspect --json' python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["state"]["step"] == 3 and len(d["tensors"]) == 63, d' "$folder/stdout"
for bad in deepspeed-rank-missing dcp-chunk-hole dcp-path-escape os-system.pt dcp-metadata-os-system; do
  run "$program" inspect $peers/malformed/$bad --verify
  check "$bad is refused" test $code -eq 5 -o $code -eq 2
  check "$bad in one line" test "$(grep -c 'error: ' "$folder/stderr")" -eq 1
done
check 'nothing was executed' test -z "$(find . -maxdepth 1 -name PWNED)"

# back CASE CHECKPOINT TO: written in a peer's format and read again it is the same, weights and moments.
back() {
  local out=$folder/back-$3-${1//\//-}
  expect 0 "$3|optimizer's state after 3 updates" "$program" convert "$peers/$1/$2" "$out" --to "$3" --model "$peers/$1/config.json"
  run "$program" diff "$peers/$1/$2" "$out"
  check "$1 as $3 is the same" test $code -eq 0
  check "its state was compared" test -z "$(grep 'not compared' "$folder/stdout")"
}
for to in dcp accelerate universal native; do
  back deepspeed/z2-w2-gas-decay ckpt $to
  back deepspeed/z3-w3-frozen-tied ckpt $to
  # Ours has a tied weight under one name, which diff would tell.
  [ $to = native ] || back dcp/fsdp2-w3-bf16-tied ckpt $to
done
back deepspeed/z2-w2-fp16 ckpt universal
run "$program" inspect "$folder/back-universal-deepspeed-z2-w2-fp16" --json
check 'the loss scale goes back' grep -qE '"scale": ?256' "$folder/stdout"
fails 2 'has a universal checkpoint already' "$program" convert $zero2/ckpt "$folder/back-universal-deepspeed-z2-w2-gas-decay" --to universal
fails 2 'has a DCP checkpoint already' "$program" convert $zero2/ckpt "$folder/back-dcp-deepspeed-z2-w2-gas-decay" --to dcp
fails 2 'holds checkpoints already' "$program" convert $zero2/ckpt "$folder/back-native-deepspeed-z2-w2-gas-decay" --to native
fails 2 'no state of the optimizer|--to hf' "$program" convert $peers/dcp/hf-storage-w2/ckpt "$folder/w" --to universal
expect 0 'no state of the optimizer' "$program" convert $peers/dcp/hf-storage-w2/ckpt "$folder/w" --to dcp
fails 2 '--dtype bf16 is for --to hf' "$program" convert $zero2/ckpt "$folder/w2" --to dcp --dtype bf16
fails 2 '--max-shard-size|5GB' "$program" convert $zero2/ckpt "$folder/w2" --max-shard-size 5XB
fails 2 '--max-shard-size is for' "$program" convert $zero2/ckpt "$folder/w2" --to dcp --max-shard-size 5GB
expect 0 'wrote' "$program" convert $zero2/ckpt "$folder/shards" --to hf --max-shard-size 8KB
check 'several files and their index' test -e "$folder/shards/model.safetensors.index.json" -a -e "$folder/shards/model-00002-of-00005.safetensors"
check 'the same weights' "$program" diff "$folder/shards" $zero2/ckpt > /dev/null
mkdir "$folder/unlisted" && chmod 0 "$folder/unlisted"
if ! ls "$folder/unlisted" > /dev/null 2>&1; then fails 5 'list the folder|unlisted' "$program" inspect "$folder/unlisted"; fi
chmod 700 "$folder/unlisted"

# A run of DeepSpeed goes on: its next losses, its schedule's rates.
python3 tests/cli/peer_run.py prepare $zero2 "$folder"
train=("$program" train --config "$folder/ds.json" --data "$folder/samples.safetensors" --shuffle off --no-decay-1d)
run "${train[@]}" --model $zero2 --resume $zero2/ckpt --set zero_optimization.stage=3 --ranks 2 --steps 12 --out "$folder/run" --save-every 5
check 'train --resume' test $code -eq 0
check 'it says where it goes on' grep -q 'DeepSpeed ZeRO-2.*step 3, 3 updates' "$folder/stderr"
check 'the losses and rates are the next ones of DeepSpeed' python3 tests/cli/peer_run.py compare $zero2 "$folder/run/metrics.jsonl" 1e-5
run "$program" inspect "$folder/run" --verify
check 'inspect of a RUN' grep -q 'Intarsia, stage 3, written by 2 ranks' "$folder/stdout"
check 'its checksums' grep -q 'verified: yes' "$folder/stdout"
run "$program" convert "$folder/run" "$folder/run-model" --optimizer-state "$folder/run.adam.safetensors"
check 'convert of a RUN' test $code -eq 0
check 'it is the model that the run exported' "$program" diff "$folder/run-model" "$folder/run/model" > /dev/null
check 'diff of a RUN with itself' "$program" diff "$folder/run" "$folder/run/checkpoints/step-12" > /dev/null
expect 0 'next learning rate is 0.0022' "${train[@]}" --model $zero2 --resume $zero2/ckpt --ranks 2 --steps 12 --set optimizer.params.lr=0.003 --set scheduler.params.warmup_max_lr=0.003 --out "$folder/other"
# The newest of a run's checkpoints; and the same in our format, by the folder of the run.
mkdir "$folder/ds-run" && cp -r $zero2/ckpt/global_step3 "$folder/ds-run/global_step3" && cp -r $zero2/ckpt/global_step3 "$folder/ds-run/global_step2"
native=$folder/back-native-deepspeed-z2-w2-gas-decay
for from in "$folder/ds-run" "$native"; do
  run "${train[@]}" --model $zero2 --init random --resume "$from" --ranks 2 --steps 12 --out "$folder/newest"
  check "train --resume $from" test $code -eq 0
  check 'its losses are the next ones, too' python3 tests/cli/peer_run.py compare $zero2 "$folder/newest/metrics.jsonl" 1e-5
  rm -r "$folder/newest"
done
run "${train[@]}" --model $zero2 --init random --ranks 2 --steps 12 --out "$native"
check 'train --out of a RUN that convert wrote goes on' grep -q 'step-3: step 3' "$folder/stderr"
fails 2 '--fresh' "${train[@]}" --model $zero2 --init random --ranks 2 --steps 12 --out "$native" --fresh
# A RUN of ours goes back: the groups and the rate of its configuration.
expect 0 "updates" "$program" convert "$folder/run/checkpoints/step-10" "$folder/run-dcp" --to dcp
run "$program" diff "$folder/run/checkpoints/step-10" "$folder/run-dcp"
check 'a RUN as DCP is the same' test $code -eq 0
run "$program" inspect "$folder/run-dcp" --json
check 'two groups, with the rate of the next update' python3 -c 'import json, sys
groups = json.load(open(sys.argv[1]))["state"]["groups"]
rates = {json.loads(line)["step"]: json.loads(line)["lr"] for line in open(sys.argv[2])}
assert [(g["weight_decay"], g["lr"], g["beta2"]) for g in groups] == [(0.1, rates[11], 0.98), (0, rates[11], 0.98)], (groups, rates[11])' "$folder/stdout" "$folder/run/metrics.jsonl"

# Only the weights: a new run.
run "${train[@]}" --model $zero2/ckpt --ranks 2 --steps 12 --out "$folder/new"
check 'train --model' test $code -eq 0
check 'from the first step on' test "$(losses "$folder/new" | wc -l)" -eq 12
fails 2 'no state of the optimizer|--model' "${train[@]}" --model $zero2 --resume $peers/dcp/hf-storage-w2/ckpt --ranks 2 --steps 12 --out "$folder/none"
finish
