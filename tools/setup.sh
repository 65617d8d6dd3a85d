#!/usr/bin/env bash
# Installs what a stage needs and is missing; does nothing, quickly, where all is there.
#   tools/setup.sh build    compiler, CMake, libraries, pip (it brings the models)
#   tools/setup.sh test     the same, GoogleTest, clang with its sanitizers, a cross-compiler for ARM with qemu,
#                           and .venv for the Python tests
# Packages come from apt (as root, or through sudo) and from pip as it is configured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly stage="${1:-build}"
packages=(
  ca-certificates cmake g++ libcli11-dev libcurl4-openssl-dev libedit-dev libssl-dev libxxhash-dev
  libzip-dev ninja-build nlohmann-json3-dev pkgconf python3 python3-pip zlib1g-dev
)
case "${stage}" in
  build) ;;
  test)
    packages+=(
      clang-14 clang-format-14 git gzip libclang-rt-14-dev libgmock-dev libgtest-dev python3-venv
    )
    # To test the ARM kernels on another machine; an ARM machine tests them as its own.
    if [[ "$(uname -m)" != aarch64 ]]; then
      packages+=(g++-12-aarch64-linux-gnu googletest qemu-user-static)
    fi
    ;;
  *)
    echo "setup: unknown stage '${stage}'; use: tools/setup.sh build|test" >&2
    exit 2
    ;;
esac

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Prints those of its arguments that dpkg does not know as installed.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Status}' "${package}" 2>/dev/null)" != installed ]]; then
      echo "${package}"
    fi
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: no apt here; using the tools that are installed (see packages in tools/setup.sh)" >&2
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "${packages[@]}")
  if [[ ${#missing[@]} -eq 0 ]]; then return; fi
  local as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "missing packages: ${missing[*]}; install them as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  # A failed update is no reason to stop: the lists at hand may do.
  "${apt[@]}" update </dev/null || echo "setup: apt-get update failed; going on" >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null ||
    fail "apt-get could not install: ${missing[*]}; check the network and the package sources"
}

# Makes .venv, or makes it anew where tests/requirements.txt has changed since.
install_venv() {
  local stamp=.venv/requirements.sha256 wanted
  wanted="$(sha256sum <tests/requirements.txt)"
  if [[ -x .venv/bin/python && -f "${stamp}" && "$(cat "${stamp}")" == "${wanted}" ]]; then return; fi
  echo "setup: making .venv from tests/requirements.txt"
  rm -rf .venv
  python3 -m venv .venv || fail "python3 could not make a virtual environment"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    -r tests/requirements.txt </dev/null ||
    fail "pip could not install tests/requirements.txt; check the network and pip's configuration"
  echo "${wanted}" >"${stamp}"
}

install_packages
if [[ "${stage}" == test ]]; then install_venv; fi
