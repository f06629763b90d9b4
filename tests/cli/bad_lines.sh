#!/bin/bash
# bad_lines.sh PROGRAM: JSONL that is not what it should be, in `train` and `tokenize`: exit code 5 with file and line, or left
# out and counted when asked.
program=$1
. tests/cli/expect.sh
chat=$folder/chat
cp -r $model "$chat"
# A template that raises as published ones do, when a turn is out of order.
cat > "$chat/chat_template.jinja" << 'JINJA'
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
<|{{ m.role }}|>{{ m.content }}<|eot_id|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
JINJA
good='{"messages": [{"role": "user", "content": "is it far"}, {"role": "assistant", "content": "no, the river is near"}]}'
train=("$program" train --model "$chat" --seq-len 16 --steps 1 --pack concat)

# bad NAME TEXTS: line 2 of NAME.jsonl is what standard input gives; the message names it with these texts.
bad() {
  local file=$folder/$1.jsonl
  { printf '%s\n' "$good"; cat; printf '\n'; for _ in 1 2 3 4; do printf '%s\n' "$good"; done; } > "$file"
  fails 5 "$1.jsonl:2: |$2" "$program" tokenize --tokenizer "$chat" "$file"
  expect 0 '5 documents|1 bad lines skipped' "$program" tokenize --tokenizer "$chat" --bad-lines skip "$file"
}
# trains_not NAME TEXTS: the same file in train.
trains_not() {
  local file=$folder/$1.jsonl
  fails 5 "$1.jsonl:2: |$2" "${train[@]}" --data "$file" --out "$folder/$1"
  expect 0 '5 documents|1 bad line skipped' "${train[@]}" --bad-lines skip --data "$file" --out "$folder/$1"
}

bad cut 'not valid JSON' <<< '{"messages": [{"role": "user", "con'
bad utf8 'UTF-8' <<< $'{"text": "caf\xe9"}'
bad utf8_key 'UTF-8' <<< $'{"te\xe9xt": "a"}'
bad overlong 'UTF-8' <<< $'{"text": "\xc0\xaf"}'
bad half_pair 'not valid JSON' <<< '{"text": "\ud800"}'
bad list 'a line must be an object' <<< '[1, 2]'
bad fields 'no "text", "messages" or "prompt" on this line; its keys are: question, answer' <<< '{"question": "a", "answer": "b"}'
bad no_fields 'its keys are: none' <<< '{}'
bad half 'no "completion" on this line' <<< '{"prompt": "a"}'
bad number '"text" must be a string, found number' <<< '{"text": 3}'
bad null '"completion" must be a string, found null' <<< '{"prompt": "a", "completion": null}'
bad no_list '"messages" must be a list, found string' <<< '{"messages": "hello"}'
bad empty 'the conversation has no message' <<< '{"messages": []}'
bad no_role 'message 2 must be an object with a text "role"' <<< '{"messages": [{"role": "user", "content": "a"}, {"content": "b"}]}'
bad no_object 'message 1 must be an object' <<< '{"messages": ["a"]}'
bad silent 'the assistant says nothing' <<< '{"messages": [{"role": "user", "content": "a"}]}'
bad raises 'roles must alternate' <<< '{"messages": [{"role": "assistant", "content": "a"}]}'
bad deep 'nested more than 100 deep' < <(printf '{"text": '; printf '%.0s[' $(seq 10000); printf '%.0s]' $(seq 10000); printf '}')
bad deep_message 'nested more than 100 deep' < <(printf '{"messages": [{"role": "user", "content": '; printf '%.0s{"a": ' $(seq 10000); printf '1'; printf '%.0s}' $(seq 10000); printf '}]}')
bad long 'a line of 95.37 MiB, allowed are 64' < <(printf '{"text": "'; head -c 100000000 /dev/zero | tr '\0' 'a'; printf '"}')
bad long_garbage 'a line of 95.37 MiB, allowed are 64' < <(head -c 100000000 /dev/zero | tr '\0' '{')

trains_not utf8 'UTF-8'
trains_not fields 'no "text"'
trains_not empty 'the conversation has no message'
trains_not raises 'roles must alternate'
trains_not deep 'nested more than 100 deep'
trains_not long 'a line of 95.37 MiB, allowed are 64'

# Nothing but bad lines is an error also when they are skipped.
for _ in 1 2 3; do printf '{"messages": []}\n'; done > "$folder/none.jsonl"
fails 5 'the data is empty|3 malformed lines were skipped' "${train[@]}" --bad-lines skip --data "$folder/none.jsonl" --out "$folder/none"
# What the template cannot do at all is the model's mistake, not a line's.
printf '{%% include "x" %%}' > "$chat/chat_template.jinja"
run "${train[@]}" --bad-lines skip --data "$folder/cut.jsonl" --out "$folder/template"
check 'a template that is not known is no bad line' test $code -ne 0
check 'and is named with its line' grep -q 'chat_template.jinja' "$folder/stderr"
finish
