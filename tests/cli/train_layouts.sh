#!/bin/bash
# train_layouts.sh PROGRAM: with --reproducible every layout, backend and precision's run has the bits of one process, also
# when it is stopped and goes on with another number of ranks. Run in the repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 300
echo '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}' > "$folder/ds.json"
base=("$program" train --model $model --data "$folder/t.jsonl" --config "$folder/ds.json" --seq-len 32 --reproducible)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }

for dtype in fp32 fp16; do
  train $dtype --dtype $dtype --ranks 1 --steps 6
  check "$dtype on one rank" test $code -eq 0
  losses "$folder/$dtype" > "$folder/want.$dtype"
done

# same NAME DTYPE FLAGS...: a run in another layout has the same metrics and the same model.
same() {
  train "$1" --dtype "$2" --steps 6 "${@:3}"
  check "$1: exit code" test $code -eq 0
  losses "$folder/$1" > "$folder/got"
  check "$1: losses and norms of one process" cmp "$folder/want.$2" "$folder/got"
  check "$1: the model of one process" cmp "$folder/$2/model/model.safetensors" "$folder/$1/model/model.safetensors"
}
same shm-stage3 fp32 --ranks 2 --stage 3
same threads-stage1 fp32 --ranks 8 --stage 1 --backend threads --recompute full
same gloo-stage2 fp32 --ranks 2 --stage 2 --backend gloo
same hybrid fp32 --ranks 4 --strategy hybrid --shard-size 2
same gloo-hybrid fp32 --ranks 4 --strategy hybrid --shard-size 2 --backend gloo
same gloo-groups-of-one fp32 --ranks 2 --strategy hybrid --shard-size 1 --backend gloo
same hpz fp16 --ranks 4 --stage 3 --set zero_optimization.zero_hpz_partition_size=2
same kept fp16 --ranks 2 --stage 3 --reshard-after-forward off --force-copy

# On with other ranks, and with others again.
train moves --dtype fp16 --ranks 4 --stage 3 --steps 2
check 'a run of two steps' test $code -eq 0
train moves --dtype fp16 --ranks 8 --stage 2 --steps 4 --backend threads
check 'on 8 ranks' test $code -eq 0
same moves fp16 --ranks 1 --stage 0

fails 2 'runs on 1, 2, 4, 8 ranks, not on 3' "${base[@]}" --out "$folder/three" --ranks 3 --set train_batch_size=24 \
  --set train_micro_batch_size_per_gpu=4 --logical-micro-batches 8
fails 2 'power of two' "${base[@]}" --out "$folder/six" --ranks 2 --logical-micro-batches 6
fails 2 'adds up 8 logical micro-batches|--logical-micro-batches 8' "${base[@]}" --out "$folder/moves" --dtype fp16 --ranks 2 --logical-micro-batches 4 --steps 8
fails 2 'shard group' "${base[@]}" --out "$folder/none" --ranks 2 --strategy hybrid
fails 2 'keep one' "${base[@]}" --out "$folder/none" --ranks 4 --stage 3 --shard-size 2 --set zero_optimization.mics_shard_size=4
fails 2 'does not divide' "${base[@]}" --out "$folder/none" --ranks 4 --stage 3 --shard-size 3
finish
