#!/bin/bash
# train_report.sh PROGRAM: what a run says about itself: report.html, samples, TensorBoard's events, DeepSpeed's CSV files.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --batch-size 2 --lr 1e-2)
train() { run "${base[@]}" --out "$folder/$1" "${@:2}"; }
events() { find "$1" -maxdepth 1 -name 'events.out.tfevents.*' | wc -l; }

samples=(--sample-prompts 'document 1' 'the <river> & "lantern"' --sample-every 2 --sample-tokens 8)
train with "${samples[@]}" --eval-fraction 0.2 --eval-every 2 --ranks 2 --stage 3 --force-copy --steps 4
check 'a run with samples' test $code -eq 0
check 'two prompts, twice' test "$(wc -l < "$folder/with/samples.jsonl")" -eq 4
check 'they are shown' grep -q 'sample: document 1 >> ' "$folder/stderr"
page="$folder/with/report.html"
check 'the end names the report' grep -qF "$page" "$folder/stderr"
for part in 'done, step 4 of 4' 'Norm of the gradient' 'predicted' '<h2>Evaluations' '&lt;river&gt; &amp; &quot;lantern&quot;' \
  'train_micro_batch_size_per_gpu'; do
  check "the page has $part" grep -qF "$part" "$page"
done
check 'nothing from elsewhere' test -z "$(sed 's|http://www.w3.org/2000/svg||g' "$page" | grep -E 'https?:|src=|<script|@import|url\(')"
check 'a file of events' test "$(events "$folder/with/tb")" -eq 1
train without --eval-fraction 0.2 --eval-every 2 --ranks 2 --stage 3 --force-copy --steps 4
check 'samples change no training' test "$(losses "$folder/with")" = "$(losses "$folder/without")"

train with "${samples[@]}" --eval-fraction 0.2 --eval-every 2 --ranks 2 --stage 3 --steps 6
check 'a resumed run goes on in its files' test "$(wc -l < "$folder/with/samples.jsonl")" -eq 6
check 'a second file of events' test "$(events "$folder/with/tb")" -eq 2
check 'the page knows both parts' grep -qF 'done, step 6 of 6' "$page"

cat > "$folder/ds.json" << JSON
{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
 "tensorboard": {"enabled": true, "output_path": "$folder/tensorboard", "job_name": "job"},
 "csv_monitor": {"enabled": true, "output_path": "$folder/csv", "job_name": "job"}}
JSON
train monitored --config "$folder/ds.json" --ranks 2 --steps 3
check 'monitors of the JSON' test $code -eq 0
check 'are not reported as without effect' test -z "$(grep 'no effect' "$folder/stderr")"
check 'events of DeepSpeed' test "$(events "$folder/tensorboard/job")" -eq 1
check 'and those of the run' test "$(events "$folder/monitored/tb")" -eq 1
check 'a column of rates' test "$(tr -d '\r' < "$folder/csv/job/Train_Samples_lr.csv" | tr '\n' ' ')" = 'step,lr 4,0.01 8,0.01 12,0.01 '
check 'and of losses' test "$(wc -l < "$folder/csv/job/Train_Samples_train_loss.csv")" -eq 4
train monitored --config "$folder/ds.json" --ranks 2 --steps 4
check 'a resumed run adds its rows' test "$(tail -1 "$folder/csv/job/Train_Samples_lr.csv" | tr -d '\r')" = '16,0.01'
check 'once' test "$(wc -l < "$folder/csv/job/Train_Samples_lr.csv")" -eq 5
train off --config "$folder/ds.json" --set tensorboard.enabled=false --steps 1
check 'no events where they are switched off' test ! -e "$folder/off/tb"

mkdir -p "$folder/blocked/report.html/x"
touch "$folder/blocked/tb"
train blocked --steps 2 --save-every 1
check 'a report that cannot be written stops nothing' test $code -eq 0
check 'and is said once' test "$(grep -c 'the report is not written' "$folder/stderr")" -eq 1
check 'as are events' grep -qF 'tb is not written any more' "$folder/stderr"

fails 2 'sample-every|--sample-prompts' "${base[@]}" --steps 1 --sample-every 3
fails 2 'no chat template' "${base[@]}" --steps 1 --sample-prompts a --sample-chat
fails 2 'allowed: fewer than --seq-len 32' "${base[@]}" --steps 1 --sample-prompts "$(printf 'word %.0s' $(seq 40))"
fails 2 'job_name|one folder' "${base[@]}" --steps 1 --config "$folder/ds.json" --set csv_monitor.job_name=../up
finish
