#!/usr/bin/env bash
# Leaves out every wait between streams of a training step in turn, under every setting, and lists those
# that no result shows, each with the reason why it cannot:
#   setting | waiting stream <- recorded stream | where the host is told to wait | since where | reason
# Usage: tests/comm/fsdp/survivors.sh [BUILD]
set -euo pipefail
build=${1:-build}
output=$(FSDP_TEST_SURVIVORS=1 "$build/test_comm" --no-colors=1 --source-file='*/removed_waits_test.cpp') || {
  echo "$output" >&2
  exit 1
}
grep ' <- ' <<<"$output"
