"""Options and fixtures that the test folders share."""
import os
import sys
from pathlib import Path

import pytest

# Tests neither read nor change what the user's own runs have learned.
os.environ.pop("KERNELOPT_MEMORY", None)

ROOT = Path(__file__).resolve().parent.parent
# The harness of the end-to-end tests is also used by tests/integration and tests/long.
sys.path.insert(0, str(ROOT / "tests" / "e2e"))


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the long forms: every case, 20 kills")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --long")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="long form: make test-long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def long_form(request):
    return request.config.getoption("--long")
