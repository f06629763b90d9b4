#!/usr/bin/env bash
# Fails if the program links libtorch: commands that compute nothing must start at once. Usage: links_no_torch.sh PROGRAM
set -euo pipefail
libraries=$(ldd "$1")
if grep -E 'libtorch|libc10' <<<"$libraries"; then
  echo "$1 links the libraries above: a folder without torch, or intarsia/cli/commands, uses one that has torch"
  exit 1
fi
