#!/bin/bash
# checkpoints_page.sh PROGRAM: every command of docs/checkpoints.md, in order and in one folder, as a reader pastes them, for a checkpoint
# of DeepSpeed: it comes here, trains, and goes back. Instead of `t.jsonl` its own batches, 12 steps instead of 2000. The page's Python is run by
# tests/slow/go_back.py.
program=$1
. tests/cli/expect.sh
page=docs/checkpoints.md
case=$PWD/tests/fixtures/checkpoints/deepspeed/z2-w2-gas-decay
bin=$(cd "$(dirname "$program")" && pwd)
home=$folder/home
mkdir -p "$home/model"
cp -r "$case/ckpt" "$home/ckpt"
cp "$case/config.json" "$home/"
cp "$case/config.json" "$home/model/"
cp tests/fixtures/configs/accelerate/fsdp2_sharded.yaml "$home/accelerate.yaml"
python3 tests/cli/peer_run.py prepare "$case" "$home"
awk '/^```/ {kind = inside ? "" : $0; inside = !inside; next} kind == "```"' "$page" |
  sed 's/t\.jsonl/samples.safetensors --shuffle off --no-decay-1d/; s/--steps 2000/--steps 12/' > "$folder/page.sh"
check 'the page has commands' test "$(grep -c '^intarsia ' "$folder/page.sh")" -ge 15
check 'and the test runs nothing else' test -z "$(grep -v '^intarsia ' "$folder/page.sh")"
(cd "$home" && PATH="$bin:$PATH" timeout 160 bash -eux "$folder/page.sh" < /dev/null) > "$folder/stdout" 2> "$folder/stderr"
code=$?
[ $code -eq 0 ] || failed "$(printf 'it ended with %s:\n%s' $code "$(tail -c 2000 "$folder/stderr")")"
for run in run kept; do
  check "$run goes on with the losses and rates of DeepSpeed" python3 tests/cli/peer_run.py compare "$case" "$home/$run/metrics.jsonl" 1e-5
done
for back in back-deepspeed back-dcp back-accelerate; do
  run "$program" diff "$home/run" "$home/$back"
  check "nothing is lost in $back" test $code -eq 0
  expect 0 'goes on from|step 12, 12 updates' "$program" train --model "$home/model" --resume "$home/$back" --config "$home/ds.json" \
    --set scheduler.params.total_num_steps=13 --no-decay-1d --ranks 2 --data "$home/samples.safetensors" --shuffle off --steps 13 --out "$home/again-$back"
done
for file in half/model.safetensors full/model.safetensors adam.safetensors weights/model.safetensors from-fsdp.json to-fsdp.yaml; do
  check "$file is there" test -s "$home/$file"
done
finish
