#!/bin/bash
# train_devices.sh PROGRAM: a device that is not there is one line that says what to do, before anything is written.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 20
flags=(--model $model --data "$folder/t.jsonl" --steps 1 --seq-len 16)

fails 2 '--device|gpu|cpu, cuda' "$program" train "${flags[@]}" --device gpu --out "$folder/run"
for ranks in 1 2; do
  INTARSIA_CUDA_PLUGIN=$folder/absent.so fails 2 'device cuda|no CUDA plugin|--device cpu' \
    "$program" train "${flags[@]}" --device cuda --ranks "$ranks" --out "$folder/run"
done
echo 'not a library' > "$folder/broken.so"
INTARSIA_CUDA_PLUGIN=$folder/broken.so fails 2 'device cuda|broken.so cannot be loaded|--device cpu' \
  "$program" train "${flags[@]}" --device cuda --out "$folder/run"
[ ! -e "$folder/run/metrics.jsonl" ] || failed 'a run without its device wrote metrics'
finish
