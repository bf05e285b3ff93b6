"""The console script `kernelopt`: runs the engine's executable with this Python as the worker's (DESIGN section 2)."""

import os
import shutil
import sys

_NAME = "kernelopt"


def find_engine():
    """The executable's path, or None: `KERNELOPT_ENGINE`, then the package's own, the source tree's build, `kernelopt-engine`
    on the PATH."""
    named = os.environ.get("KERNELOPT_ENGINE")
    if named:
        return named
    package = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.dirname(os.path.dirname(package))
    for path in (
        os.path.join(package, "bin", _NAME),
        os.path.join(tree, "build", "release", "apps", "kernelopt", _NAME),
    ):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return shutil.which("kernelopt-engine")


def main():
    engine = find_engine()
    if engine is None:
        print("kernelopt: the engine is not built; run make setup, or name it with KERNELOPT_ENGINE", file=sys.stderr)
        return 3
    os.environ.setdefault("KERNELOPT_PYTHON", sys.executable)
    try:
        os.execv(engine, [engine, *sys.argv[1:]])
    except OSError as error:
        print(f"kernelopt: {engine} does not start: {error.strerror}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
