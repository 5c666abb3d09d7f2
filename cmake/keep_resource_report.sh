#!/bin/sh
# Runs a compiler and keeps what ptxas says of each kernel (registers, shared memory, spills) beside the object, as
# OBJECT.resources: the build stays quiet, and tests/test_cuda_library.py reads it. Outside ccache, which repeats a
# compiler's messages with the object that it kept.
object=
previous=
for argument; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done
if [ -z "$object" ]; then exec "$@"; fi
"$@" 2>"$object.messages"
status=$?
grep -E '^ptxas info|^ +[0-9]+ bytes stack frame|^$' "$object.messages" >"$object.resources"
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame|^$' "$object.messages" >&2
rm -f "$object.messages"
exit $status
