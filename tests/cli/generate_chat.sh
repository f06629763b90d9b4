#!/bin/bash
# generate_chat.sh PROGRAM: `generate --chat` with a prompt and line by line, and what it refuses.
program=$1
. tests/cli/expect.sh
export LC_ALL=C  # ${#x} counts bytes
cp -r $model "$folder/chatty"
cat > "$folder/chatty/chat_template.jinja" << 'JINJA'
<|begin_of_text|>{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|eot_id|>
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}
JINJA
chat=("$program" generate --model "$folder/chatty" --max-new-tokens 6 --chat)
# What a plain continuation of the same text gives, without the text; the tokenizer adds the begin token.
continued() {
  run "$program" generate --model "$folder/chatty" --max-new-tokens 6 --prompt "$1"
  tail -c +$((${#1} + 1)) "$folder/stdout"
}

first=$(continued 'user: the river<|eot_id|>
assistant: ')
run "${chat[@]}" --prompt 'the river'
check 'an answer' test $code -eq 0
check 'it is what the template opens, and only the answer' test "$(cat "$folder/stdout")" = "$first"
run "${chat[@]}" --prompt 'the river' --system 'a lantern'
check 'with a system message' test $code -eq 0
check 'which changes it' test "$(cat "$folder/stdout")" != "$first"

# Line by line: empty lines are no turns, the last one may lack its end.
printf 'the river\r\n\n  \nagain' > "$folder/lines"
run "${chat[@]}" < "$folder/lines"
check 'a conversation' test $code -eq 0
check 'begins in the same way' test "$(head -c ${#first} "$folder/stdout")" = "$first"
second=$(continued "user: the river<|eot_id|>
assistant: $first<|eot_id|>
user: again<|eot_id|>
assistant: ")
check 'and goes on from what was said' test "$(tail -c $((${#second} + 1)) "$folder/stdout")" = "$second"
run "${chat[@]}" < /dev/null
check 'nothing to say' test "$code/$(wc -c < "$folder/stdout")" = 0/0

fails 2 '--prompt is missing|--chat' "$program" generate --model $model
fails 2 '--system without --chat' "$program" generate --model $model --prompt a --system b
fails 2 'has no chat template|chat_template.jinja' "$program" generate --model $model --chat --prompt a
fails 2 '--max-new-tokens 256|up to 255' "$program" generate --model "$folder/chatty" --chat --prompt a --max-new-tokens 256
fails 2 'the question has|allowed: 6' "$program" generate --model "$folder/chatty" --chat --max-new-tokens 250 --prompt 'the river and the lantern and the document'
fails 5 'not UTF-8' "${chat[@]}" --prompt $'\xff'
finish
