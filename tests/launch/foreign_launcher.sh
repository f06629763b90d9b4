#!/bin/bash
# Ranks started by hand with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as a launcher that does not watch them would:
# when one is killed, the others say rank, host and operation, and exit with 4. Usage: foreign_launcher.sh PROBE
set -u
probe=$1
fail() { echo "FAILED: $*"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1
# A port that was free a moment ago; below the range from which systems choose.
for ((MASTER_PORT = 20000 + $$ % 9000; ; MASTER_PORT++)); do
  (exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT) 2>/dev/null || break
done
export MASTER_PORT

for victim in 0 2; do
  pids=()
  for rank in 0 1 2; do
    RANK=$rank LOCAL_RANK=$rank "$probe" --kill $victim >"$dir/$rank" 2>&1 &
    pids[rank]=$!
  done
  for rank in 0 1 2; do
    wait "${pids[rank]}"
    code=$?
    if [ $rank = $victim ]; then
      [ $code = 137 ] || fail "rank $rank was not killed: $code"
    else
      [ $code = 4 ] || fail "rank $rank exits with $code, not 4: $(cat "$dir/$rank")"
      grep -q "host $(hostname): rank $victim closed its connection.*all_reduce.*probe.unit" "$dir/$rank" ||
        fail "rank $rank: $(cat "$dir/$rank")"
    fi
  done
  MASTER_PORT=$((MASTER_PORT + 1))
done

# A port that somebody else holds: a usage error that names it.
RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "$probe" >"$dir/0" 2>&1 &
holder=$!
for ((i = 0; i < 100; i++)); do (exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT) 2>/dev/null && break; sleep 0.05; done
out=$(RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "$probe" 2>&1)
[ $? = 2 ] || fail "taken port: $out"
grep -q "port $MASTER_PORT.*taken" <<<"$out" || fail "$out"
kill -9 $holder
wait $holder 2>/dev/null
echo passed
