#!/bin/bash
# plan_command.sh PROGRAM: intarsia plan as a user meets it. Run in the repository's root.
program=$1
. tests/cli/expect.sh

run "$program" plan --model llama-34m --ranks 4 --stage 2 --batch-size 2 --seq-len 128
check 'plan works without data' test $code -eq 0
check 'the stage that is asked for is marked' grep -q '\*stage 2' "$folder/stdout"
check 'a verdict' grep -q '  fits  .*yes' "$folder/stdout"

run "$program" plan --model $model --ranks 2 --deepspeed tests/fixtures/configs/article/zero3_llama.json --batch-size 2 --lr 2e-5
check 'a Hugging Face directory and a DeepSpeed file' test $code -eq 0
check 'stage 3 of the file' grep -q '\*stage 3' "$folder/stdout"
run "$program" plan --model $model/config.json --seq-len 64
check 'a config.json alone' test $code -eq 0

start=$(date +%s%N)
run "$program" plan --params 70e9 --layers 80 --cluster h100 --devices 1024 --global-batch 1024 --seq-len 4096 --dtype bf16 \
  --html "$folder/r.html" --svg "$folder/r.svg" --csv "$folder/r.csv"
check "1,024 devices in $((($(date +%s%N) - start) / 1000000)) ms" test $((($(date +%s%N) - start) / 1000000)) -lt 2000
check 'layouts are searched' grep -q 'tried' "$folder/stdout"
check 'what does not run here is said' grep -q 'not runnable here yet: tensor parallel' "$folder/stdout"
check 'and what does' grep -q 'runs today' "$folder/stdout"
check 'a page' grep -q '</html>' "$folder/r.html"
check 'a picture' grep -q '</svg>' "$folder/r.svg"
check 'numbers' grep -q '^3,peak,' "$folder/r.csv"

run "$program" plan --model llama-tiny --json
check 'JSON' python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert len(d["stages"]) == 4 and d["train_refuses"] == []' "$folder/stdout"
run "$program" plan --model llama-tiny --stage 2 --set zero_optimization.offload_optimizer.device=cpu --json
check 'what train refuses is said' python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["train_refuses"]' "$folder/stdout"
run "$program" plan --show-cluster a100-80
check 'a cluster as JSON' grep -q '"calibration"' "$folder/stdout"

# What is left to the planner: the same answer in plan, train --dry-run and train.
make_text "$folder/auto.jsonl" 60
printf '{"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "intarsia": {"stage": "auto"}}' > "$folder/auto.json"
auto=(--model $model --deepspeed "$folder/auto.json" --seq-len 32 --ranks 2)
run "$program" plan "${auto[@]}"
chosen=$(sed -n 's/.*the planner chose \(.*\)/\1/p' "$folder/stdout")
check 'plan says what it chose' test -n "$chosen"
run "$program" train "${auto[@]}" --data "$folder/auto.jsonl" --steps 2 --dry-run
check 'the dry run chooses the same' grep -qF "the planner chose $chosen" "$folder/stderr"
run "$program" train "${auto[@]}" --data "$folder/auto.jsonl" --steps 2 --out "$folder/auto"
check 'and so does the run, in its banner' grep -qF "the planner chose $chosen" "$folder/stderr"
check 'which it ends' test $code -eq 0
check 'with the batch that was asked for' grep -q 'batch      24 samples' "$folder/stderr"
expect 2 'the bits would follow it' "$program" train "${auto[@]}" --data "$folder/auto.jsonl" --reproducible --dry-run

fails 2 '--cluster h1000|a100-80' "$program" plan --model llama-tiny --cluster h1000
fails 2 '--params needs --layers' "$program" plan --params 7e9
fails 2 '--devices needs --cluster' "$program" plan --model llama-tiny --devices 8
fails 2 '--margin 1.5' "$program" plan --model llama-tiny --margin 1.5

# train: the same numbers before the start, exit 3 when they cannot be, --force goes on to the next check.
huge=(--model $model --data "$folder/t.jsonl" --seq-len 32 --ranks 1 --batch-size 4000000 --steps 1)
make_text "$folder/t.jsonl" 60
expect 3 'the run needs|--force' "$program" train "${huge[@]}" --out "$folder/huge"
check 'nothing was started' test ! -e "$folder/huge/metrics.jsonl"
expect 3 'the run needs' "$program" train "${huge[@]}" --dry-run
run "$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --batch-size 2 --ranks 2 --steps 4 --out "$folder/tiny"
check 'a small run starts' test $code -eq 0
check 'predicted beside measured' grep -q 'peak: predicted .*measured' "$folder/stderr"
finish
