#!/bin/bash
# train_failures.sh PROGRAM: what a run does when a rank is killed, the disk is full, or somebody is in a hurry. Run in the
# repository's root.
program=$1
. tests/cli/expect.sh
make_text "$folder/t.jsonl" 200
base=("$program" train --model $model --data "$folder/t.jsonl" --seq-len 32 --ranks 2 --log-every 1)

# start RUN FLAGS...: a long run in the background that has done 3 steps. Sets job, watch (its process) and ranks.
start() {
  : > "$folder/messages"
  timeout -k 2 30 "${base[@]}" --out "$folder/$1" --steps 1000000 "${@:2}" > /dev/null 2> "$folder/messages" &
  job=$!
  wait_for "$folder/messages" 'step 3/'
  watch=$(pgrep -P $job | head -1)
  mapfile -t ranks < <(pgrep -P "$watch")
}

# gone PID...: none of them runs, whether or not somebody has collected its exit code.
gone() {
  local pid
  for pid in "$@"; do
    case $(ps -o stat= -p "$pid") in '' | Z*) ;; *) return 1 ;; esac
  done
}

# A killed rank: the others are gone within 2 s, and the message says which rank, where, how and what may be the reason.
for backend in shm gloo; do
  start "killed-$backend" --backend $backend
  check "two ranks over $backend" test ${#ranks[@]} -eq 2
  begin=$(date +%s%N)
  kill -KILL "${ranks[1]}"
  wait $job
  code=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  check "$backend: exit code 4, not $code" test $code -eq 4
  check "$backend: ended within 2 s, not $took ms" test $took -lt 2000
  check "$backend: no rank is left" gone "${ranks[@]}"
  grep -qE "rank 1 of 2 \(host $(hostname), pid ${ranks[1]}\) was killed by signal 9 .*memory" "$folder/messages" \
    || failed "$(printf '%s: the message:\n%s' $backend "$(grep 'error: ' "$folder/messages")")"
  # A survivor that noticed it first may say in which operation it waited for the killed rank; nobody says more.
  check "$backend: two error lines at the most" test "$(grep -c 'error: ' "$folder/messages")" -le 2
  check "$backend: all about the killed rank" test -z "$(grep 'error: ' "$folder/messages" | grep -v 'rank 1 ')"
done

# The program itself killed: its ranks die with it.
start orphans
kill -KILL "$watch"
wait $job
sleep 0.5
check 'no rank outlives the program' gone "${ranks[@]}"

# A second Ctrl-C does not wait for anything. The ranks are held so that the first one cannot be answered.
start hurry
kill -STOP "${ranks[@]}"
kill -INT "$watch"
sleep 0.2
kill -INT "$watch"
wait $job
code=$?
check "exit code 130 after a second Ctrl-C, not $code" test $code -eq 130
check 'no rank is left after a second Ctrl-C' gone "${ranks[@]}"

# Ctrl-C and SIGTERM while ranks wait for each other: a rank of a launcher whose other rank never comes.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for signal in INT TERM; do
  # A shell starts background programs with SIGINT ignored; env gives it back.
  env --default-signal=INT RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$program" train --model $model \
    --data "$folder/t.jsonl" --seq-len 32 --steps 3 --out "$folder/alone" > /dev/null 2> "$folder/messages" &
  job=$!
  wait_for "$folder/messages" 'rank 0 of 2'
  sleep 0.5
  kill -$signal $job
  for _ in $(seq 200); do
    gone $job && break
    sleep 0.01
  done
  check "$signal ends a rank that waits for the others" gone $job
  kill -KILL $job 2> /dev/null
  wait $job 2> /dev/null
done

# A full disk. A checkpoint of this model takes about 540 KiB, a small file system holds one but not two.
mkdir "$folder/small"
if mount -t tmpfs -o size=1000k none "$folder/small" 2> /dev/null; then
  trap 'umount -l "$folder/small"; rm -rf "$folder"' EXIT
  full=("${base[@]}" --out "$folder/small/run" --keep 2)
  run "${full[@]}" --steps 2 --save-every 2
  first=$(cksum "$folder"/small/run/checkpoints/step-2/* 2> /dev/null)
  check 'the first checkpoint fits' test -n "$first"
  # Whatever the first run left free is taken up to a little.
  free=$(df --output=avail -k "$folder/small" | tail -1)
  [ "$free" -gt 100 ] && head -c $(((free - 100) * 1024)) /dev/zero > "$folder/small/ballast"
  for mode in off wait; do
    fails 5 "$folder/small/run|free" "${full[@]}" --steps 6 --save-every 3 --async-save $mode
    grep -qE 'warning: checkpoint of step 3 not saved: .*small/run.*training goes on' "$folder/stderr" \
      || failed "$(printf 'the warning of a checkpoint that does not fit:\n%s' "$(grep 'warning: ' "$folder/stderr")")"
    check 'training went on after a checkpoint that does not fit' grep -q 'step 6/6' "$folder/stderr"
    check 'the earlier checkpoint stays' test "$first" = "$(cksum "$folder"/small/run/checkpoints/step-2/*)"
    check 'no half checkpoint stays' test "$(ls "$folder/small/run/checkpoints")" = "$(printf 'latest\nstep-2')"
  done
  rm -f "$folder/small/ballast"
  umount "$folder/small"
  trap 'rm -rf "$folder"' EXIT
else
  echo 'SKIPPED: a full disk (mounting a tmpfs is not allowed here)'
fi
finish
