#!/bin/bash
# tokenize_command.sh PROGRAM: `intarsia tokenizer train`, `intarsia tokenize` and `intarsia convert`, run in the repository's root.
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
expect 0 '1 documents' "$program" tokenize --tokenizer tests/fixtures/tokenizers/llama2 "$folder/two.txt"
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

# Conversations: the model's template, and what of them is trained on.
mkdir "$folder/chat"
cp $model/tokenizer.json "$folder/chat/"
printf '{"eos_token": "<|eot_id|>"}' > "$folder/chat/tokenizer_config.json"
printf '{%% for m in messages %%}{{ m.content }}{{ eos_token }}{%% endfor %%}' > "$folder/chat/chat_template.jinja"
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' > "$folder/chat.jsonl"
expect 0 '"ids": [64, 366, 65, 366], "trained": [0, 0, 1, 1]}' "$program" tokenize --tokenizer "$folder/chat" --json "$folder/chat.jsonl"
expect 0 '[+]      65  "b"' "$program" tokenize --tokenizer "$folder/chat" --chat --show "$folder/chat.jsonl"
expect 0 '2 of 4 tokens are counted' "$program" tokenize --tokenizer "$folder/chat" --chat --show "$folder/chat.jsonl"
expect 0 '4 of 4 tokens are counted' "$program" tokenize --tokenizer "$folder/chat" --train-on all --show "$folder/chat.jsonl"
expect 0 '4 tokens (2 trained on)' "$program" tokenize --tokenizer "$folder/chat" --out "$folder/chat.bin" "$folder/chat.jsonl"
check 'a map of the documents beside the tokens' test -e "$folder/chat.bin.documents"
expect 2 'has no chat template' "$program" tokenize --tokenizer $model "$folder/chat.jsonl"
expect 5 'two.jsonl:1: --chat' "$program" tokenize --tokenizer "$folder/chat" --chat "$folder/two.jsonl"
printf '{"messages": []}\n' >> "$folder/chat.jsonl"
expect 5 'chat.jsonl:2: the conversation has no message' "$program" tokenize --tokenizer "$folder/chat" "$folder/chat.jsonl"
expect 0 '1 bad lines skipped' "$program" tokenize --tokenizer "$folder/chat" --bad-lines skip "$folder/chat.jsonl"
gzip -k "$folder/two.jsonl"
expect 0 '2 documents, 7 tokens' "$program" tokenize --tokenizer $model "$folder/two.jsonl.gz"

# GGUF to a Hugging Face directory.
expect 0 'model.safetensors' "$program" convert --help
expect 0 'wrote' "$program" convert tests/fixtures/gguf/llama.gguf "$folder/hf" --to hf
check 'the weights' test -s "$folder/hf/model.safetensors"
expect 2 'has a config.json already' "$program" convert tests/fixtures/gguf/llama.gguf "$folder/hf"
printf 'no' > "$folder/no.gguf"
expect 5 'no GGUF file' "$program" convert "$folder/no.gguf" "$folder/none"

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
