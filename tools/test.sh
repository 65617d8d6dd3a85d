#!/usr/bin/env bash
# Builds and runs one stage of the tests, or all of them (the release stage last):
#   tools/test.sh all|release|fuzz|tsan|asan|aarch64
# FUZZ_SECONDS  seconds of fuzzing per target after its kept corpus (default 15)
# JOBS          parallel compilations and tests (default: all cores)
# POCKETLM_REQUIRE_DATA=1  missing shared data or models fail instead of skipping (as in .ci/run)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly jobs="${JOBS:-$(nproc)}"
readonly fuzz_seconds="${FUZZ_SECONDS:-15}"
export CTEST_OUTPUT_ON_FAILURE=1

stage() {
  printf '\n=== %s (%d s since the start)\n' "$*" "${SECONDS}"
}

configure() {
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake --preset "$1" -DPOCKETLM_BUILD_TESTS=ON "-DPOCKETLM_PYTHON=${PWD}/.venv/bin/python" \
    "${launcher[@]}" "${@:2}"
}

# The sanitizers of these compilers fail where the kernel randomizes addresses by more than 28 bits.
fixed_addresses() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# The models take minutes under a sanitizer, so these stages run without them; the release stage runs
# every test with them.
ctest_without_models() {
  fixed_addresses env -u POCKETLM_REQUIRE_DATA "POCKETLM_HOME=${PWD}/$1/no-models" \
    ctest --test-dir "$1" -j "${jobs}" "${@:2}"
}

pull_models() {
  local model
  for model in smollm2-135m gemma3-270m; do
    if ! build/pocketlm pull "${model}"; then
      if [[ "${POCKETLM_REQUIRE_DATA:-0}" == 1 ]]; then
        echo "test: ${model} could not be fetched, and POCKETLM_REQUIRE_DATA=1" >&2
        exit 1
      fi
      echo "test: ${model} could not be fetched; its tests will be skipped" >&2
    fi
  done
}

run_release() {
  stage "release build"
  configure release
  cmake --build build -j "${jobs}"
  stage "models"
  pull_models
  stage "release tests"
  ctest --test-dir build -j "${jobs}"
}

run_fuzz() {
  stage "build with clang, ASan + UBSan and libFuzzer"
  configure fuzz "-DPOCKETLM_FUZZ_SECONDS=${fuzz_seconds}"
  fixed_addresses cmake --build build-fuzz -j "${jobs}"
  stage "unit tests and fuzz targets under ASan + UBSan"
  ctest_without_models build-fuzz
}

run_tsan() {
  stage "build with TSan"
  configure tsan
  fixed_addresses cmake --build build-tsan -j "${jobs}"
  stage "threaded tests under TSan"
  ctest_without_models build-tsan
}

run_asan() {
  stage "build with ASan + UBSan"
  configure asan
  fixed_addresses cmake --build build-asan -j "${jobs}"
  stage "unit tests under ASan + UBSan"
  ctest_without_models build-asan
}

# The kernels and the models on the emulated CPU; the same logits, bit for bit, as the other stages.
run_aarch64() {
  if [[ "$(uname -m)" == aarch64 ]]; then
    stage "aarch64: this machine's own, tested by the release stage"
    return
  fi
  stage "cross build for aarch64"
  configure aarch64
  cmake --build build-aarch64 -j "${jobs}" --target isa_test backend_test model_test
  stage "ARM kernels and models under qemu-user"
  # The examples need more of the library than is built here.
  ctest_without_models build-aarch64 -E '^examples'
}

case "${1:-all}" in
  all)
    run_fuzz
    run_tsan
    run_aarch64
    run_release
    ;;
  release) run_release ;;
  fuzz) run_fuzz ;;
  tsan) run_tsan ;;
  asan) run_asan ;;
  aarch64) run_aarch64 ;;
  *)
    echo "test: unknown stage '$1'; use: tools/test.sh all|release|fuzz|tsan|asan|aarch64" >&2
    exit 2
    ;;
esac
