"""One finished run of an example, for every test that looks at what a run leaves."""
import pytest

from harness import ROOT, optimize

MODEL = ROOT / "examples" / "softmax_strided.py"
SEARCH = ["--rounds", "2", "--plans", "3", "--chains", "2", "--beam", "2", "--seed", "5", "--minutes", "4"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Nobody writes into its folder."""
    result = optimize(MODEL, tmp_path_factory.mktemp("example") / "out", *SEARCH)
    assert result.status == 0, result.explain()
    return result
