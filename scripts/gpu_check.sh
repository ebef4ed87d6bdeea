#!/usr/bin/env bash
# Builds with a LibTorch that has CUDA and runs the device checks (tests/gpu) on the GPUs of this
# machine, all in under 8 minutes.
#
# usage: gpu_check.sh [--build-only]      --build-only needs no GPU
#
# The LibTorch is found as always: CMAKE_PREFIX_PATH, TORCH_HOME, or the wheel in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly LIMIT=480

fail() { printf 'gpu_check: %s\n' "$*" >&2; exit 1; }
left() {
  local seconds=$((LIMIT - SECONDS))
  [ "$seconds" -gt 0 ] || fail "the $LIMIT s are used up"
  echo "$seconds"
}

build_only=
case "${1:-}" in
  "") ;;
  --build-only) build_only=yes ;;
  *) fail "unknown argument $1; usage: gpu_check.sh [--build-only]" ;;
esac
[ -n "$build_only" ] || nvidia-smi -L || fail "no GPU here (nvidia-smi lists none); --build-only needs none"

timeout "$(left)" cmake --preset cuda >/dev/null || fail "cannot configure"
timeout "$(left)" cmake --build build/cuda --target gpu_checks || fail "cannot build in time"
[ -z "$build_only" ] || exit 0
timeout "$(left)" build/cuda/bin/gpu_checks --gtest_brief=1
