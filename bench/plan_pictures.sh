#!/usr/bin/env bash
# Renders the pictures of intarsia plan in headless Chromium (Debian: chromium-headless-shell), light and dark, into docs/images.
# Usage: bench/plan_pictures.sh      needs build/bin/intarsia
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
browser=$(command -v chromium-headless-shell chromium | head -1) || { echo 'plan_pictures.sh: apt-get install chromium-headless-shell' >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p docs/images
build/bin/intarsia plan --model llama-110m --ranks 4 --stage 2 --batch-size 2 --seq-len 256 --html "$work/run.html" > /dev/null
build/bin/intarsia plan --params 70e9 --layers 80 --cluster h100 --devices 256 --global-batch 512 --seq-len 4096 --dtype bf16 \
  --html "$work/search.html" > /dev/null
shot() { # NAME PAGE HEIGHT [FLAGS]
  local name=$1 page=$2 height=$3
  shift 3
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=960,"$height" "$@" \
    --screenshot="$work/$name.png" "file://$work/$page" > /dev/null 2>&1
  cp "$work/$name.png" docs/images/
  echo "docs/images/$name.png"
}
shot plan_run run.html 1300
shot plan_run_dark run.html 1300 --blink-settings=preferredColorScheme=0
shot plan_search search.html 2700
