#!/usr/bin/env bash
# memory_limit.sh with a hundred random configurations.
CASES=${CASES:-100} exec bash "$(dirname "$0")/memory_limit.sh"
