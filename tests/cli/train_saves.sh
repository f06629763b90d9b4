#!/bin/bash
# train_saves.sh PROGRAM: checkpoints while a run goes on, which ones stay, and leaving reproducible mode. Run in the
# repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --stage 3)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }
checkpoints() { (cd "$folder/$1/checkpoints" && printf '%s ' step-*); }

# In the background: the same weights, the same names, nothing left over.
train front --ranks 2 --steps 20 --save-every 4 --keep 2 --keep-every 8
check 'saves that stop training' test $code -eq 0
for mode in wait skip; do
  train $mode --ranks 2 --steps 20 --save-every 4 --keep 2 --keep-every 8 --async-save $mode
  check "--async-save $mode" test $code -eq 0
  check "the weights of --async-save $mode" cmp "$folder/front/model/model.safetensors" "$folder/$mode/model/model.safetensors"
  check "no leftovers of --async-save $mode" test -z "$(ls "$folder/$mode/checkpoints" | grep -vE '^(step-[0-9]+|latest)$')"
done
check 'the two newest, and every eighth' test "$(checkpoints front)" = 'step-16 step-20 step-8 '
check 'the same of saves in the background' test "$(checkpoints wait)" = 'step-16 step-20 step-8 '
cut -d, -f1 "$folder/wait/metrics.jsonl" > "$folder/steps"
check 'a body is the same whoever wrote it' cmp "$folder/front/checkpoints/step-16/rank-00001.safetensors" \
  "$folder/wait/checkpoints/step-16/rank-00001.safetensors"
train wait --ranks 2 --steps 24 --async-save skip
check 'a run that saved in the background is resumed' grep -q 'step-20: step 20' "$folder/stderr"

# Ctrl-C waits for a save under way.
timeout -k 2 20 "${base[@]}" --ranks 2 --out "$folder/stopped" --steps 100000 --save-every 1 --async-save wait --log-every 1 \
  > /dev/null 2> "$folder/messages" &
job=$!
wait_for "$folder/messages" 'step 3/'
kill -INT "$(pgrep -P $job | head -1)"
wait $job
check 'stopped while a checkpoint was being written' test $? -eq 75
check 'nothing is left half written' test -z "$(ls "$folder/stopped/checkpoints" | grep -F .)"

# Reproducible runs keep their chain of ranks unless told otherwise.
chain=(--reproducible --logical-micro-batches 4)
train chain --ranks 2 --batch-size 6 --steps 4 "${chain[@]}"
check 'a reproducible run' test $code -eq 0
chain_on() { printf '%s\n' "${base[@]}" --out "$folder/chain" --steps 8 "$@"; }
mapfile -t three < <(chain_on --ranks 3 --batch-size 4)
fails 2 '4 logical micro-batches runs on 1, 2, 4 ranks, not on 3|--not-reproducible' "${three[@]}" "${chain[@]}"
fails 2 'intarsia.reproducible|--not-reproducible goes on' "${three[@]}"
fails 2 'contradicts' "${three[@]}" "${chain[@]}" --not-reproducible
run "${three[@]}" --not-reproducible
check '--not-reproducible goes on on 3 ranks' test $code -eq 0
check 'and says so' grep -q 'was reproducible up to step 4 and is not from here on' "$folder/stderr"
check 'and the manifest says so' grep -q '"not_reproducible_since": 4' "$folder/chain/checkpoints/step-8/manifest.json"
train chain --ranks 3 --batch-size 4 --steps 10
check 'which later resumes keep' grep -q '"not_reproducible_since": 4' "$folder/chain/checkpoints/step-10/manifest.json"
fails 2 'intarsia.reproducible' "${base[@]}" --out "$folder/chain" --steps 12 --ranks 2 --batch-size 6 "${chain[@]}"

# Killed after the first file of the second save: the first checkpoint is used, and it says why not the second.
train killed --ranks 2 --steps 20 --save-every 10
at=$folder/killed/checkpoints
mv "$at/step-20" "$at/step-20.wip-0123456789abcdef"
rm "$at/step-20.wip-0123456789abcdef/"{manifest.json,rank-00001.safetensors}
expect 0 'step-20.wip-0123456789abcdef: its save did not finish' "${base[@]}" --out "$folder/killed" --steps 21 --ranks 2
check 'step 10 is used' grep -q 'step-10: step 10' "$folder/stderr"

# Damage: one file of the newest is passed over by all ranks; of all, the run does not start from nothing.
train rot --ranks 2 --steps 8 --save-every 4
printf x | dd of="$folder/rot/checkpoints/step-8/rank-00001.safetensors" bs=1 seek=5000 conv=notrunc status=none
expect 0 'step-8 is passed over: |rank-00001.safetensors is damaged: its bytes 0 to ' "${base[@]}" --out "$folder/rot" --steps 10 --ranks 2
check 'the step before was taken' grep -q 'step-4: step 4' "$folder/stderr"
for step in "$folder"/rot/checkpoints/step-*; do printf x >> "$step/rank-00000.safetensors"; done
fails 5 'no checkpoint in|can be used|--overwrite' "${base[@]}" --out "$folder/rot" --steps 12 --ranks 2
finish
