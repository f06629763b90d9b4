#!/bin/bash
# train_resume.sh PROGRAM: a run that was stopped goes on as if it had not been. Run in the repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
# train RUN FLAGS...: in the foreground.
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --ranks 2 --stage 3)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }

steps=80
train whole --steps $steps
check 'the uninterrupted run' test $code -eq 0
check 'a line for each step' test "$(losses "$folder/whole" | wc -l)" -eq $steps
losses "$folder/whole" > "$folder/want"

# stop RUN SIGNAL TEXT COMMAND...: sends the signal to the program when TEXT stands on its standard error; sets `code`.
stop() {
  local signal=$2 text=$3 name=$1
  : > "$folder/messages"
  timeout -k 2 20 "${base[@]}" --out "$folder/$name" --steps $steps --log-every 1 "${@:4}" > /dev/null 2> "$folder/messages" &
  local job=$!
  wait_for "$folder/messages" "$text"
  kill -"$signal" "$(pgrep -P $job | head -1)"
  wait $job
  code=$?
}
stop parts INT 'step 3/'
check 'exit code 75 after Ctrl-C' test $code -eq 75
check 'the message of a stop' grep -q 'stopped and saved at step .*the same command resumes' "$folder/messages"
first=$(losses "$folder/parts" | wc -l)
check 'stopped before the end' test "$first" -lt $steps
check 'saved at the last step' test -e "$folder/parts/checkpoints/step-$first"
stop parts TERM "step $((first + 3))/"
check 'exit code 75 after SIGTERM' test $code -eq 75
check 'resumed where it stopped' grep -q "resumed from .*: step $first," "$folder/messages"
train parts --steps $steps
check 'the second resume ends well' test $code -eq 0
losses "$folder/parts" > "$folder/got"
check 'losses, norms, rates and step numbers of two stops are those of no stop' cmp "$folder/want" "$folder/got"
check 'the same weights' cmp "$folder/whole/model/model.safetensors" "$folder/parts/model/model.safetensors"

# Ended after 25 steps, and after 45: the next one is 46.
for upto in 25 45 46; do train exact --steps $upto; done
check 'the third part begins behind step 45' grep -q 'step-45: step 45' "$folder/stderr"
check 'its steps are 1 to 46, with the losses of no stop' test "$(losses "$folder/exact")" = "$(head -46 "$folder/want")"

# A run that has ended goes on with more --steps; steps after the last checkpoint are done again, not twice.
train longer --steps 10 --save-every 4
check 'a short run' test $code -eq 0
rm -r "$folder/longer/checkpoints/step-10"
train longer --steps 20 --save-every 7 --log-every 5 --keep 3 --backend gloo
check 'flags that change no result may differ' test $code -eq 0
check 'resumed at step 8' grep -q 'step-8: step 8' "$folder/stderr"
check 'no gap and no double' test "$(losses "$folder/longer")" = "$(head -20 "$folder/want")"

# Another learning rate is another run, unless it is allowed.
other=("${base[@]}" --out "$folder/longer" --steps 24 --lr 1e-3)
fails 2 'lr|--resume-with-changes|--overwrite' "${other[@]}"
check 'harmless flags are not listed' test -z "$(grep -E 'log_every|save_every|keep|steps' <<< "$(grep 'error: ' "$folder/stderr" | sed 's/allow them.*//')")"
run "${other[@]}" --resume-with-changes lr
check '--resume-with-changes' test $code -eq 0
check 'it went on' test "$(tail -1 "$folder/longer/metrics.jsonl" | cut -d, -f1)" = '{"step": 24'
fails 2 'seed' "${base[@]}" --out "$folder/longer" --steps 25 --seed 7 --resume-with-changes lr
fails 2 '--fresh|longer|--overwrite' "${base[@]}" --out "$folder/longer" --steps 3 --fresh
check 'and touches nothing' test -n "$(ls "$folder/longer/checkpoints")"
run "${base[@]}" --out "$folder/longer" --steps 3 --overwrite --fresh
check '--overwrite begins again' test $code -eq 0
check 'the metrics of a fresh run are its own' test "$(losses "$folder/longer")" = "$(head -3 "$folder/want")"
run "${base[@]}" --out "$folder/longer" --steps 3 --resume never
check '--resume never begins again' test "$code/$(losses "$folder/longer")" = "0/$(head -3 "$folder/want")"
run "${base[@]}" --out "$folder/branch" --steps $steps --resume "$folder/parts/checkpoints/step-$steps"
check '--resume PATH' test $code -eq 0
check '--resume PATH says so' grep -q "resumed from $folder/parts/checkpoints/step-$steps: step $steps" "$folder/stderr"
fails 2 'step-999|holds no checkpoint' "${base[@]}" --out "$folder/branch2" --steps 3 --resume "$folder/parts/checkpoints/step-999"

# A run that is longer already has nothing to train; a schedule that follows the number of steps is part of the run.
expect 0 "nothing to train: the run has $steps steps" "${base[@]}" --out "$folder/parts" --steps 5
run "${base[@]}" --out "$folder/cosine" --steps 4 --schedule cosine
check 'a cosine' test $code -eq 0
fails 2 'intarsia.steps' "${base[@]}" --out "$folder/cosine" --steps 8 --schedule cosine

# A folder belongs to one run at a time.
"${base[@]}" --out "$folder/busy" --steps 1000000 > /dev/null 2>&1 &
holder=$!
wait_for "$folder/busy/metrics.jsonl" '"step": 3'
fails 2 'another run is writing in' "${base[@]}" --out "$folder/busy" --steps 3
kill -TERM $holder
wait $holder

# The threads of one process compute what processes compute.
run "${base[@]}" --out "$folder/threads" --steps 20 --backend threads
check 'threads' test "$code/$(losses "$folder/threads")" = "0/$(head -20 "$folder/want")"
finish
