#!/bin/bash
# examples.sh PROGRAM: each job of `intarsia example` is copied and its README's commands are run, with a twentieth of the
# steps.
program=$1
. tests/cli/expect.sh
run "$program" example ls
check 'the list' test $code -eq 0
list=$(grep -E '^[a-z]+ +[A-Z]' "$folder/stdout")
check 'has five jobs' test "$(wc -l <<< "$list")" -ge 5
fails 2 'no example pretrian; did you mean pretrain?' "$program" example cp pretrian "$folder/x"
fails 2 'no example ../jobs' "$program" example cp ../jobs "$folder/x"
fails 2 'is not an empty folder' "$program" example cp pretrain tests
bin=$(cd "$(dirname "$program")" && pwd)
while read -r name _; do
  run "$program" example cp "$name" "$folder/$name"
  check "$name is copied" test $code -eq 0
  # The lines between the fences, as a reader would paste them.
  awk '/^```/ {inside = !inside; next} inside' "$folder/$name/README.md" > "$folder/$name.commands"
  awk '{while (match($0, /--steps [0-9]+/)) {n = substr($0, RSTART + 8, RLENGTH - 8) / 20
          $0 = substr($0, 1, RSTART - 1) "--steps_ " n substr($0, RSTART + RLENGTH)} gsub(/--steps_/, "--steps"); print}' \
    "$folder/$name.commands" > "$folder/$name.sh"
  check "$name has commands" grep -q 'intarsia train .*--steps [0-9]*$' "$folder/$name.sh"
  (cd "$folder/$name" && PATH="$bin:$PATH" timeout 120 bash -e "$folder/$name.sh") > "$folder/stdout" 2> "$folder/stderr"
  code=$?
  [ $code -eq 0 ] || failed "$(printf 'the commands of %s ended with %s:\n%s' "$name" $code "$(tail -c 2000 "$folder/stderr")")"
  check "$name wrote a report" test -n "$(find "$folder/$name" -name report.html)"
  [ "$name" != resume ] || check 'the moved run has the bits of the other' grep -q equal "$folder/stdout"
done <<< "$list"
finish
