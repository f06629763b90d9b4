#!/bin/bash
# Ranks started by torchrun meet in the store that its agent serves. Usage: torchrun.sh PROBE (INTARSIA_PYTHON: a python
# that has torch)
set -u
probe=$1
if [ -z "${INTARSIA_PYTHON:-}" ]; then
  echo "SKIPPED: INTARSIA_PYTHON is not set; ./dev test-slow sets it"
  exit 77
fi
unset RANK WORLD_SIZE
fail() { echo "FAILED: $*"; exit 1; }
out=$("$INTARSIA_PYTHON" -m torch.distributed.run --no-python --nproc-per-node 2 \
  --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 "$probe" 2>&1) || fail "exit code $?: $out"
grep -q "rank 0 of 2 over gloo: 3" <<<"$out" || fail "$out"
grep -q "rank 1 of 2 over gloo: 3" <<<"$out" || fail "$out"
grep -q "said by torchrun" <<<"$out" || fail "$out"
echo passed
