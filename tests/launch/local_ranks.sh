#!/bin/bash
# Region or socket, fork, mesh in each rank: values, and what a killed rank leaves. Usage: local_ranks.sh PROBE
set -u
probe=$1
unset RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }

for backend in shm gloo; do
  out=$("$probe" --ranks 3 --backend $backend 2>&1) || fail "$backend exits with $?: $out"
  for rank in 0 1 2; do
    grep -q "^rank $rank of 3 over $backend: 6$" <<<"$out" || fail "$backend rank $rank: $out"
  done

  start=$(date +%s%N)
  out=$("$probe" --ranks 4 --backend $backend --kill 2 2>&1)
  code=$?
  took=$((($(date +%s%N) - start) / 1000000))
  [ $code = 4 ] || fail "$backend, killed rank: exit code $code, not 4: $out"
  grep -q "rank 2 of 4 (host $(hostname), pid [0-9]*) was killed by signal 9 .*memory" <<<"$out" || fail "$backend: $out"
  # Loading torch takes a part of it.
  [ $took -lt 4000 ] || fail "$backend: $took ms until all had ended"
done

out=$("$probe" --ranks 0 2>&1)
out=$(RANK=0 WORLD_SIZE=1 "$probe" --ranks 3 2>&1)
[ $? = 2 ] || fail "--ranks 3 inside of a world of 1 is not refused: $out"
echo passed
