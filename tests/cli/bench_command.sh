#!/bin/bash
# bench_command.sh PROGRAM: where a run's step spends its time, by bench and by train. Run in the repository's root.
program=$1
. tests/cli/expect.sh

run "$program" bench --model llama-tiny --seq-len 32 --batch-size 2 --ranks 2 --stage 3 --force-copy --recompute full \
  --timed-steps 2 --trace "$folder/trace.json"
check 'steps are timed' test $code -eq 0
for part in 'mean of 2' 'of it recomputed' 'model.layers.0' 'GFLOP/s' 'all_gather' 'written: '; do
  check "the table has $part" grep -qF "$part" "$folder/stdout"
done
check 'a trace of both ranks' python3 - "$folder/trace.json" <<'PY'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
assert {e["pid"] for e in events} == {0, 1} and {e["cat"] for e in events} == {"phase", "forward", "backward", "collective"}
PY
fails 2 '--trace is of a run|--model' "$program" bench --trace "$folder/t.json"
fails 2 '--timed-steps 0' "$program" bench --model llama-tiny --timed-steps 0

make_text "$folder/t.jsonl" 60
printf '{"train_micro_batch_size_per_gpu": 2, "wall_clock_breakdown": true, "flops_profiler": {"enabled": true,
  "profile_step": 2, "output_file": "%s"}, "comms_logger": {"enabled": true}}' "$folder/flops.txt" > "$folder/timed.json"
printf '{"train_micro_batch_size_per_gpu": 2}' > "$folder/plain.json"
train=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --ranks 2 --stage 2 --steps 3 --log-every 1)
run "${train[@]}" --deepspeed "$folder/timed.json" --out "$folder/timed"
check 'a run that is timed' test $code -eq 0
check 'phases beside each step' test "$(grep -c '^time, ms .*forward .*update' "$folder/stderr")" -eq 3
check 'the profile of a step' grep -q 'GFLOP a step' "$folder/flops.txt"
check 'collectives at the end' grep -q 'reduce_scatter' "$folder/stderr"
run "${train[@]}" --deepspeed "$folder/plain.json" --out "$folder/plain"
check 'the same losses as without' test "$(losses "$folder/timed")" = "$(losses "$folder/plain")"
check 'and no times' test "$(grep -c '^time, ms' "$folder/stderr")" -eq 0
printf '{"train_micro_batch_size_per_gpu": 2, "comms_logger": {"enabled": true, "prof_all": false, "prof_ops": ["gather_all"]}}' > "$folder/ops.json"
fails 2 'gather_all|no operation that is counted' "${train[@]}" --deepspeed "$folder/ops.json"
finish
