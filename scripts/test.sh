#!/usr/bin/env bash
# Every test that needs no GPU, after scripts/setup.sh. --long runs the long forms. All steps run even if one fails; the
# exit status is 1 if any failed.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
long=()
case ${1:-} in
  "") ;;
  --long) long=(--long) ;;
  *) die 2 "usage: scripts/test.sh [--long]" ;;
esac

failed=()
step() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  "$@" || failed+=("$name")
  say "$name: $((SECONDS - start)) s"
}

sanitized_tests() {
  [ -f build/asan-ubsan/build.ninja ] || cmake --preset asan-ubsan >build/configure-asan.log 2>&1 ||
    { tail -n 15 build/configure-asan.log; return 1; }
  cmake --build build/asan-ubsan -j "$JOBS" -- --quiet || return 1
  # Left out is what spends its time in kernels that g++ compiles without sanitizers; printing is tested apart from that.
  ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/asan-ubsan --output-on-failure --no-tests=error -j "$JOBS" -E '^codegen\.(Compiled|LongSums)\.'
}

step "layers" "$VENV/bin/python" tools/check_layers.py
step "C++ tests, release" ctest --test-dir build/release --output-on-failure --no-tests=error -j "$JOBS"
step "C++ tests, ASan + UBSan" sanitized_tests
step "Python and end-to-end tests" "$VENV/bin/python" -m pytest -q -rs --durations=8 "${long[@]}" tests/python tests/integration tests/e2e

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
say "all passed"
