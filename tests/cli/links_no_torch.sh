#!/bin/bash
# links_no_torch.sh PROGRAM: fails when the program would load libtorch, which costs a third of a second at every start.
set -eu
libraries=$(ldd "$1")
if grep -E 'libtorch|libc10' <<< "$libraries"; then
  echo "$1 links torch" >&2
  exit 1
fi
