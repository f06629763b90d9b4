#!/bin/bash
# Installs into an empty prefix, builds each example as a project of its own that finds it there, and runs it on one
# rank and on two. Usage: find_package.sh SOURCE BUILD
set -u
source=$1 build=$2
fail() { echo "FAILED: $*"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
prefix=$dir/prefix
cmake --install "$build" --prefix "$prefix" >"$dir/log" 2>&1 || fail "install: $(cat "$dir/log")"
for file in bin/intarsia libexec/intarsia-rank include/intarsia/intarsia.h; do
  [ -e "$prefix/$file" ] || fail "$file is not in the prefix"
done
"$prefix/bin/intarsia" --version >/dev/null || fail "the installed program does not start"
"$prefix/bin/intarsia" eval --help >/dev/null || fail "the installed program does not find its libexec"

for example in digits transformer; do
  cmake -S "$source/examples/$example" -B "$dir/$example" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-O1 -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$dir/log" 2>&1 || fail "$example: $(cat "$dir/log")"
  cmake --build "$dir/$example" -j1 >"$dir/log" 2>&1 || fail "$example: $(tail -50 "$dir/log")"
done
run() { "$source/tests/install/same_on_two_ranks.sh" "$prefix/bin/intarsia" "$@" || exit 1; }
for program in digits_mlp digits_convolution; do
  run 0.85 "$dir/digits/$program" "$source/examples/digits/zero3.json" "$source/examples/digits/digits.csv"
done
run 0.3 "$dir/transformer/own_transformer" "$source/examples/transformer/zero3.json" "$source/LICENSE"
