#!/bin/bash
# A program of one's own in two shard groups of two ranks (under intarsia launch, over gloo) learns what it learns on one
# rank. Usage: shard_groups.sh INTARSIA PROGRAM CONFIG TABLE
set -u
intarsia=$1 program=$2 config=$3 table=$4
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
fail() { echo "FAILED: $*"; exit 1; }
export OMP_NUM_THREADS=1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed 's/"steps_per_print"/"intarsia": {"shard_size": 2}, "steps_per_print"/' "$config" >"$dir/groups.json"
grep -q shard_size "$dir/groups.json" || fail "$config has no steps_per_print to put the groups before"
one=$("$program" "$config" "$table") || fail "one rank: exit code $?"
four=$("$intarsia" launch --ranks 4 -- "$program" "$dir/groups.json" "$table") || fail "four ranks: exit code $?"
echo "$one"
echo "$four"
awk -v one="$one" -v four="$four" '
  function field(line, name) { match(line, name " [0-9.e+-]+"); return substr(line, RSTART + length(name) + 1, RLENGTH - length(name) - 1) + 0 }
  function far(a, b, limit) { d = a - b; if (d < 0) d = -d; return d > limit }
  BEGIN {
    if (one !~ /^ranks 1 / || four !~ /^ranks 4 /) { print "not what was expected"; exit 1 }
    if (field(one, "accuracy") < 0.85) { print "nothing was learned"; exit 1 }
    if (far(field(one, "training loss"), field(four, "training loss"), 1e-3) || far(field(one, "accuracy"), field(four, "accuracy"), 3e-3)) {
      print "one rank and two groups of two differ"; exit 1
    }
  }' || exit 1
echo passed
