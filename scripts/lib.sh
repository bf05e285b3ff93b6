# Shared by the scripts of this folder; source it. Sets ROOT (the repository), VENV, JOBS and PYTHON.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
JOBS=${JOBS:-$(nproc)}
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  command -v python3.11 >/dev/null 2>&1 && PYTHON=python3.11
fi

say() { printf '== %s\n' "$*"; }

# die STATUS MESSAGE: one line on standard error; 2 is bad usage, 3 is something that the machine lacks.
die() {
  local status=$1
  shift
  printf 'kernelopt: %s\n' "$*" >&2
  exit "$status"
}
