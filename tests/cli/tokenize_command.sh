#!/bin/bash
# tokenize_command.sh PROGRAM: `intarsia tokenizer train` and `intarsia tokenize`, run in the repository's root.
set -u
program=$1
model=tests/fixtures/hf/llama-gqa/model
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect CODE TEXT COMMAND...: the exit code, and a text in what it prints on either stream.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$@" 2>&1)
  got=$?
  if [ "$got" -ne "$code" ] || ! grep -qF -- "$text" <<< "$output"; then
    printf 'FAILED: %s\n  exit %s, want %s; want "%s" in:\n%s\n' "$*" "$got" "$code" "$text" "$(head -c 2000 <<< "$output")"
    failures=$((failures + 1))
  fi
}
# check WHAT COMMAND...: the command succeeds.
check() {
  local what=$1
  shift
  "$@" || { printf 'FAILED: %s\n' "$what"; failures=$((failures + 1)); }
}

printf '{"text": "a"}\r\n{"text": "a<|eot_id|>"}\n' > "$folder/two.jsonl"
printf 'one\n\ntwo\n' > "$folder/two.txt"

expect 0 'end-of-text' "$program" tokenize --help
expect 0 '--vocab' "$program" tokenizer train --help
expect 2 '--tokenizer' "$program" tokenize "$folder/two.txt"
expect 2 'no file matches' "$program" tokenize --tokenizer $model "$folder/*.none"
expect 2 'byte_fallback' "$program" tokenize --tokenizer tests/fixtures/tokenizers/llama2 "$folder/two.txt"
expect 2 'must end in .bin' "$program" tokenize --tokenizer $model --out "$folder/t" "$folder/two.txt"
expect 5 'tokenizer.json' "$program" tokenize --tokenizer "$folder" "$folder/two.txt"

# The ids of these documents under the fixture: begin 364, "a" 64, end 365, <|eot_id|> 366.
expect 0 "{\"source\": \"$folder/two.jsonl:2\", \"ids\": [364, 64, 366, 365]}" \
  "$program" tokenize --tokenizer $model --json "$folder/two.jsonl"
expect 0 '"ids": [64]}' "$program" tokenize --tokenizer $model --json --plain "$folder/two.jsonl"
expect 0 '2 documents, 7 tokens' "$program" tokenize --tokenizer $model --out "$folder/t.bin" "$folder/two.jsonl"
check 'the ids in t.bin' test "$(od -An -v -tu2 "$folder/t.bin" | tr -s ' \n' ' ')" = ' 364 64 365 364 64 366 365 '
expect 0 '"tokens": 7' cat "$folder/t.bin.json"
expect 0 '2 documents' "$program" tokenize --tokenizer $model --blank-lines "$folder/two.txt"

# A mistake in the data leaves the older file as it was and nothing half done.
printf '{"text": "a"}\n{"text": 3}\n' > "$folder/bad.jsonl"
expect 5 'bad.jsonl:2: "text" must be a string' "$program" tokenize --tokenizer $model --out "$folder/t.bin" "$folder/bad.jsonl"
check 'no part file is left' test ! -e "$folder/t.bin.part"
expect 0 '"tokens": 7' cat "$folder/t.bin.json"

# More threads, the same tokens.
for i in $(seq 400); do printf '{"text": "document %s of the river, again"}\n' "$i"; done > "$folder/many.jsonl"
for threads in 1 5; do
  expect 0 '400 documents' "$program" tokenize --tokenizer $model --threads $threads --out "$folder/many$threads.bin" "$folder/many.jsonl"
done
check 'threads change nothing' cmp "$folder/many1.bin" "$folder/many5.bin"

# Ctrl-C: exit code 130 and no half file. Enough text for a second or more of work.
for i in $(seq 3000); do printf 'word%s %s the lantern, a river; ' "$i" $((i * 7919)); done > "$folder/part.txt"
for i in $(seq 300); do cat "$folder/part.txt"; done > "$folder/large.txt"
"$program" tokenize --tokenizer $model --out "$folder/large.bin" "$folder/large.txt" 2> "$folder/messages" &
job=$!
while [ ! -e "$folder/large.bin.part" ] && kill -0 $job 2> /dev/null; do sleep 0.01; done
sleep 0.1
kill -TERM $job
wait $job
check 'exit code 130 after a signal' test $? -eq 130
check 'no half file after a signal' test ! -e "$folder/large.bin" -a ! -e "$folder/large.bin.part"

# A tokenizer of our own.
expect 0 'tokenizer.json' "$program" tokenizer train --vocab 300 --out "$folder/own" "$folder/many.jsonl"
expect 0 '400 documents' "$program" tokenize --tokenizer "$folder/own" "$folder/many.jsonl"
expect 2 'allowed is 257' "$program" tokenizer train --vocab 100 --out "$folder/small" "$folder/many.jsonl"
: > "$folder/empty.txt"
expect 5 'the data is empty' "$program" tokenizer train --vocab 300 --out "$folder/none" "$folder/empty.txt"

if [ $failures -gt 0 ]; then
  printf '%s failures\n' "$failures"
  exit 1
fi
