#!/bin/bash
# Runs a program on one rank and on two (under intarsia launch, over gloo): both must print the same loss and accuracy
# up to rounding, and an accuracy above LEAST. Usage: same_on_two_ranks.sh INTARSIA LEAST PROGRAM ARGUMENTS
set -u
intarsia=$1 least=$2
shift 2
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
fail() { echo "FAILED: $*"; exit 1; }
export OMP_NUM_THREADS=1
one=$("$@") || fail "one rank: exit code $?"
two=$("$intarsia" launch --ranks 2 -- "$@") || fail "two ranks: exit code $?"
echo "$one"
echo "$two"
awk -v least="$least" -v one="$one" -v two="$two" '
  function field(line, name) { match(line, name " [0-9.e+-]+"); return substr(line, RSTART + length(name) + 1, RLENGTH - length(name) - 1) + 0 }
  function far(a, b, limit) { d = a - b; if (d < 0) d = -d; return d > limit }
  BEGIN {
    if (one !~ /^ranks 1 / || two !~ /^ranks 2 /) { print "not what was expected"; exit 1 }
    if (field(one, "accuracy") < least) { print "accuracy below " least; exit 1 }
    if (far(field(one, "training loss"), field(two, "training loss"), 1e-3) || far(field(one, "  loss"), field(two, "  loss"), 1e-3) ||
        far(field(one, "accuracy"), field(two, "accuracy"), 3e-3)) { print "one rank and two differ"; exit 1 }
  }' || fail "$*"
echo passed
