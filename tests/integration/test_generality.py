"""What is generated or chosen depends on ops, ranges, strides and types only: the modules that decide it hold no operator,
model or file name. Challenges to library calls (CHALLENGES of tools/check_layers.py) are the one exception: they know what a call
computes, and say so."""
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from check_layers import CHALLENGES  # noqa: E402

DECIDING = ("fusion", "plan", "codegen", "search", "analyst")

# Operators of PyTorch that are not at the same time an op of the loop IR, a reduction or a word of everyday English.
OPERATORS = """softmax log_softmax layer_norm rms_norm group_norm batch_norm instance_norm native_layer_norm native_group_norm
max_pool avg_pool adaptive_avg_pool cross_entropy nll_loss logsumexp gelu silu swish hardtanh leaky_relu softplus mish
cumsum cumprod conv convolution conv2d conv_transpose embedding scaled_dot_product attention linear addmm bmm baddbmm
interpolate grid_sample upsample cosine_similarity triplet_margin dropout lstm gru transformer topk kthvalue index_put
masked_fill scatter_add""".split()

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def sources():
    for module in DECIDING:
        for path in sorted((ROOT / "src" / "kernelopt" / module).rglob("*")):
            if path.suffix in (".h", ".cc") and not path.name.endswith("_test.cc"):
                yield path


def challenges(path):
    return any(path.match(pattern) for pattern in CHALLENGES)


# The loop IR has a reduction of its own by this name, in several spellings.
OWN_REDUCTION = re.compile(r"(?i)online[_ ]?softmax(_?reduce)?")


def words(path):
    """A source without comments, include lines and the loop IR's own reduction."""
    text = COMMENT.sub("", path.read_text())
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#include"))
    return OWN_REDUCTION.sub("", text)


def found(names, text):
    return [n for n in names if re.search(rf"(?<![a-z]){re.escape(n)}(?![a-z])", text, re.I)]


def test_there_are_sources():
    assert len(list(sources())) >= 10


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sources() if not challenges(p)])
def test_no_operator_names(path):
    text = words(path)
    names = found(OPERATORS, text)
    assert names == []
    assert not re.search(r"\baten\b", text), "an ATen name"


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sources()])
def test_no_example_names(path):
    stems = {p.stem for p in (ROOT / "examples").rglob("*.py")}
    cases = ROOT.parent / "shared" / "cases"
    stems |= {re.sub(r"^\d+_", "", p.stem) for p in cases.glob("*.py")} if cases.is_dir() else set()
    long_names = [s for s in stems if "_" in s and s not in ("prefix_sum",)]
    assert found(long_names, words(path)) == []
