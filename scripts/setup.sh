#!/usr/bin/env bash
# Installs what is missing (Debian packages, .venv with PyTorch and this package) and builds the engine in build/release.
# Running it again is fast: every step looks at what is there first.
#
#   PYTHON=/path/to/python     the Python whose minor version (and, on a GPU machine, whose torch) is used
#   KERNELOPT_KEEP_TORCH=1|0   use PYTHON's own torch instead of installing one (default: 1 if there is an NVIDIA GPU)
#
# Exit status 3: something is missing that this script may not or cannot install; the message names it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

has_gpu() { [ -e /dev/nvidia0 ] || { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; }; }
KEEP_TORCH=${KERNELOPT_KEEP_TORCH:-$(has_gpu && echo 1 || echo 0)}

# What the chosen Python lacks of its own packaging: venv to make .venv, headers to compile kernel bindings.
python_needs() {
  if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo python3 python3-venv python3-dev
    return
  fi
  "$PYTHON" - <<'PY'
import importlib.util, os, sys, sysconfig
need = []
if any(importlib.util.find_spec(m) is None for m in ("venv", "ensurepip")):
    need.append("venv")
if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    need.append("dev")
system = os.path.realpath(sys.executable).startswith("/usr/bin/")
print(" ".join(("python%d.%d-" % sys.version_info[:2] if system else "headers-or-venv-of-PYTHON:") + n for n in need))
PY
}

install_debian_packages() {
  local missing=() package
  if command -v dpkg-query >/dev/null 2>&1; then
    while read -r package; do
      [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done < scripts/packages-debian.txt
  else
    command -v cmake >/dev/null && command -v ninja >/dev/null && command -v c++ >/dev/null ||
      die 3 "this is not a Debian system; install the equivalents of: $(tr '\n' ' ' < scripts/packages-debian.txt)"
  fi
  for package in $(python_needs); do
    case $package in headers-or-venv-of-PYTHON:*)
      die 3 "$PYTHON has no '${package#*:}' part (venv: module venv with ensurepip; dev: Python.h)" ;;
    esac
    missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die 3 "missing Debian packages, and installing them needs root: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
    >"$ROOT/build/apt.log" 2>&1 || { tail -n 5 "$ROOT/build/apt.log" >&2; die 3 "apt-get could not install: ${missing[*]}"; }
}

# Makes $VENV and fills it. The stamp holds everything that decides what is inside.
make_venv() {
  local stamp want
  "$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    die 3 "$PYTHON is not Python 3.11 to 3.13; name one with PYTHON="
  stamp=$VENV/kernelopt-setup.stamp
  want="$("$PYTHON" -c 'import sys; print(sys.executable, sys.version)') keep=$KEEP_TORCH root=$ROOT $(cat scripts/requirements-*.txt | sha256sum)"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$want" ]; then
    say "making .venv with $("$PYTHON" --version)"
    rm -rf "$VENV"
    if [ "$KEEP_TORCH" = 1 ]; then
      "$PYTHON" -c 'import torch' >/dev/null 2>&1 ||
        die 3 "$PYTHON has no torch; install the one for this machine's GPU, or set KERNELOPT_KEEP_TORCH=0 for CPU use"
      "$PYTHON" -m venv --system-site-packages "$VENV"
      # PYTHON may itself be a virtual environment, which --system-site-packages does not look into.
      "$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$("$VENV/bin/python" -c \
        'import sysconfig; print(sysconfig.get_paths()["purelib"])')/kernelopt_own_torch.pth"
      "$VENV/bin/python" -c 'import torch' || die 3 "the torch of $PYTHON does not import from .venv"
    else
      "$PYTHON" -m venv "$VENV"
      say "installing PyTorch and numpy (the first time this takes minutes)"
      "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r scripts/requirements-cpu.txt 2>"$ROOT/build/pip.log" ||
        { tail -n 5 "$ROOT/build/pip.log" >&2; false; } || die 3 "pip could not install scripts/requirements-cpu.txt"
    fi
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r scripts/requirements-test.txt 2>>"$ROOT/build/pip.log" ||
      { tail -n 5 "$ROOT/build/pip.log" >&2; false; } || die 3 "pip could not install scripts/requirements-test.txt"
    # The package is used in place: a path file needs no build step and no network.
    echo "$ROOT/python" > "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/kernelopt.pth"
    echo "$want" > "$stamp"
  fi
  # What pip would make of the console script in pyproject.toml.
  printf '#!/bin/sh\nexec "%s" -m kernelopt "$@"\n' "$VENV/bin/python" > "$VENV/bin/kernelopt.new"
  chmod +x "$VENV/bin/kernelopt.new"
  mv "$VENV/bin/kernelopt.new" "$VENV/bin/kernelopt"
}

build_engine() {
  [ -f build/release/build.ninja ] || cmake --preset release >build/configure.log 2>&1 ||
    { tail -n 15 build/configure.log >&2; die 3 "cmake could not configure the build (build/configure.log)"; }
  say "building"
  cmake --build build/release -j "$JOBS" -- --quiet 2>&1 || die 4 "the build failed"
}

mkdir -p build
install_debian_packages
make_venv
build_engine
