# expect.sh: what the tests of the command line share; sourced, with `program` set.
# shellcheck shell=bash disable=SC2034
set -u
model=tests/fixtures/hf/llama-gqa/model
folder=$(mktemp -d)
# A script that forgets `finish` fails all the same.
trap 'status=$?; rm -rf "$folder"; [ "$failures" -eq 0 ] || status=1; exit $status' EXIT
failures=0
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

failed() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

# run COMMAND...: never hangs; the streams go to $folder/stdout and $folder/stderr, the exit code to `code`.
run() {
  timeout -k 2 20 "$@" > "$folder/stdout" 2> "$folder/stderr"
  code=$?
}

# expect CODE TEXTS COMMAND...: the exit code, and on standard error one line with all the texts, divided by |.
expect() {
  local want=$1 texts=$2 lines text
  shift 2
  run "$@"
  lines=$(cat "$folder/stderr")
  while IFS= read -r text; do lines=$(grep -F -- "$text" <<< "$lines"); done < <(tr '|' '\n' <<< "$texts")
  if [ "$code" -ne "$want" ] || [ -z "$lines" ]; then
    failed "$(printf '%s\n  exit %s, want %s; want a line with "%s" in:\n%s' "$*" "$code" "$want" "$texts" "$(tail -c 2000 "$folder/stderr")")"
  fi
}

# fails CODE TEXTS COMMAND...: as expect, and that line is the only error: ranks that share a reason say it once.
fails() {
  expect "$@"
  local count
  count=$(grep -c 'error: ' "$folder/stderr")
  [ "$count" -eq 1 ] || failed "$(printf '%s\n  %s error lines, want one:\n%s' "${*:3}" "$count" "$(grep 'error: ' "$folder/stderr")")"
}

# check WHAT COMMAND...: the command succeeds.
check() {
  local what=$1
  shift
  "$@" || failed "$what"
}

# wait_for FILE TEXT: until the text stands in the file, 15 seconds at the most.
wait_for() {
  for _ in $(seq 1500); do
    grep -qsF -- "$2" "$1" && return
    sleep 0.01
  done
  failed "$1 never had: $2"
}

# losses RUN: step, loss, gradient norm and rate of each line of metrics.jsonl, in full precision.
losses() {
  sed -E 's/, "(epoch|time|clip_factor)": [^,]*//g; s/, "loss_scale".*//' "$1/metrics.jsonl"
}

# make_text FILE COUNT: a small JSONL file.
make_text() {
  for i in $(seq "$2"); do printf '{"text": "document %s of the river, again a lantern %s"}\n' "$i" $((i * 7919)); done > "$1"
}

# finish: the exit code of the test.
finish() {
  [ $failures -eq 0 ] || printf '%s failures\n' "$failures"
  exit $((failures > 0))
}
