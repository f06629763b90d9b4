#!/bin/bash
# with_python.sh SCRIPT ARGUMENTS...: runs a Python script with the interpreter of the slow tests.
if [ -z "${INTARSIA_PYTHON:-}" ]; then
  echo "SKIPPED: INTARSIA_PYTHON is not set; ./dev test-slow sets it"
  exit 77
fi
exec "$INTARSIA_PYTHON" "$@"
