#!/bin/bash
# `intarsia train` under somebody else's launcher: the same losses as with --ranks 2, to the last bit. Run in the
# repository's root. Usage: train_launched.sh mpirun|hosts|torchrun PROGRAM
set -u
how=$1 program=$2
skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
case $how in
  mpirun)
    command -v mpirun >/dev/null || skip "mpirun is not installed (Debian: openmpi-bin)"
    launcher=(mpirun --allow-run-as-root --oversubscribe -n 2)
    ;;
  hosts)
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    command -v ip >/dev/null || skip "ip is not installed (Debian: iproute2)"
    # In a mount namespace of its own, so that what `ip netns` mounts is gone with the test.
    unshare -m sh -c "ip netns add probe-$$ && ip netns exec probe-$$ true; code=\$?; ip netns del probe-$$; exit \$code" 2>/dev/null ||
      skip "network namespaces cannot be made or entered here (a container without CAP_SYS_ADMIN, or a chroot?)"
    launcher=(unshare -m tools/hosts -n 2)
    ;;
  torchrun)
    [ -n "${INTARSIA_PYTHON:-}" ] || skip "INTARSIA_PYTHON is not set; ./dev test-slow sets it"
    launcher=("$INTARSIA_PYTHON" -m torch.distributed.run --no-python --nproc-per-node 2
      --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0)
    ;;
  *) fail "$how: mpirun, hosts or torchrun" ;;
esac
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Text is data enough: six updates of two ranks on this very file.
train=("$program" train --model tests/fixtures/hf/llama-gqa/model --data "$0" --seq-len 16 --steps 6 --batch-size 2
  --stage 3 --lr 1e-3 --threads 1)
losses() { sed -E 's/.*"loss": ([^,]*), "grad_norm": ([^,]*),.*/\1 \2/' "$dir/$1/metrics.jsonl"; }
"${train[@]}" --ranks 2 --backend gloo --out "$dir/own" >"$dir/log" 2>&1 || fail "--ranks 2: exit code $?: $(cat "$dir/log")"
"${launcher[@]}" "${train[@]}" --out "$dir/launched" >"$dir/log" 2>&1 || fail "$how: exit code $?: $(cat "$dir/log")"
[ "$(losses own | wc -l)" = 6 ] || fail "--ranks 2 wrote $(losses own)"
diff <(losses own) <(losses launched) || fail "$how: losses and gradient norms (>) differ from --ranks 2 (<)"
grep -qE "2 ranks \(gloo" "$dir/log" || fail "$how: the banner does not say that there are two ranks over gloo: $(cat "$dir/log")"
[ -s "$dir/launched/model/model.safetensors" ] || fail "$how: no model was exported"
cmp "$dir/own/model/model.safetensors" "$dir/launched/model/model.safetensors" || fail "$how: the models differ"
echo passed
