#!/bin/bash
# fine_tune_page.sh PROGRAM: every command block of docs/fine_tune.md, as a reader pastes them one after another into one terminal,
# with a tenth of the steps.
program=$1
. tests/cli/expect.sh
page=docs/fine_tune.md
bin=$(cd "$(dirname "$program")" && pwd)
awk '/^```/ {inside = !inside; if (inside) print "echo block >> \"$BLOCKS\""; next} inside' "$page" > "$folder/all"
check 'the page has blocks' test "$(grep -c '^echo block' "$folder/all")" -ge 10
awk '{while (match($0, /--steps [0-9]+/)) {n = substr($0, RSTART + 8, RLENGTH - 8) / 10
        $0 = substr($0, 1, RSTART - 1) "--steps_ " n substr($0, RSTART + RLENGTH)} gsub(/--steps_/, "--steps"); print}' \
  "$folder/all" > "$folder/page.sh"
mkdir "$folder/home"
(cd "$folder/home" && BLOCKS=$folder/blocks PATH="$bin:$PATH" timeout 160 bash -eu "$folder/page.sh" < /dev/null) \
  > "$folder/stdout" 2> "$folder/stderr"
code=$?
[ $code -eq 0 ] || failed "$(printf 'block %s ended with %s:\n%s' "$(wc -l < "$folder/blocks")" $code "$(tail -c 2000 "$folder/stderr")")"
at=$folder/home/my-chat
check 'the CSV became conversations' test "$(head -n 2 "$at/mine.jsonl" | grep -c '"messages"')" -eq 2
check 'tokens with marks are shown' grep -q '\[+\]' "$folder/stdout"
check 'the bad line is counted' grep -q '1 bad lines skipped' "$folder/stderr"
check 'the run went on' grep -q 'resumed from' "$folder/stderr"
for file in run/report.html run/model/model.safetensors half/model.safetensors adapter/model/adapter_model.safetensors merged/model.safetensors; do
  check "$file is there" test -s "$at/$file"
done
check 'half of the size' test "$(($(stat -c %s "$at/half/model.safetensors") * 19 / 10))" -lt "$(stat -c %s "$at/run/model/model.safetensors")"
# What the page names in words.
for flag in --too-long --pack --recompute --accumulation --resize-vocab --save-best --early-stopping --bad-lines; do
  check "$flag exists" grep -q -- "$flag" <<< "$("$program" train --help)"
done
finish
