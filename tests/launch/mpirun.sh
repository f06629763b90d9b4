#!/bin/bash
# Ranks started by Open MPI meet over gloo. Usage: mpirun.sh PROBE
set -u
probe=$1
if ! command -v mpirun >/dev/null; then
  echo "SKIPPED: mpirun is not installed (Debian: openmpi-bin)"
  exit 77
fi
unset RANK WORLD_SIZE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail() { echo "FAILED: $*"; exit 1; }

out=$(mpirun --oversubscribe -n 2 "$probe" 2>&1) || fail "exit code $?: $out"
grep -q "rank 0 of 2 over gloo: 3" <<<"$out" || fail "$out"
grep -q "rank 1 of 2 over gloo: 3" <<<"$out" || fail "$out"
grep -q "said by Open MPI" <<<"$out" || fail "$out"

# Three ranks, one is killed: a foreign launcher ends the others; a rank that it leaves alone says whom it missed.
out=$(mpirun --oversubscribe -n 3 "$probe" --kill 1 2>&1) && fail "a killed rank went unnoticed: $out"
grep -q "signal 9" <<<"$out" || fail "$out"
echo passed
