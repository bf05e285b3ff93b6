"""The comparison itself: eager against itself passes, and each kind of damage is seen. Runs without the engine."""
import json
import textwrap

import pytest

from harness import check_optimized

MODEL = textwrap.dedent('''
    import torch
    import torch.nn as nn


    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.BatchNorm1d(width)

        def forward(self, x, cache):
            cache.add_(1.0)
            top = torch.topk(x, 3, dim=1)
            y = torch.log(x)
            return {"y": self.norm(y.nan_to_num() ), "raw": y, "top": top, "n": [x.shape[0], None], "t": x.t() * 2.0}


    def get_inputs():
        return [torch.randn(8, 16), torch.zeros(4)]


    def get_init_inputs():
        return [16]
''')

IDENTITY = '''
import importlib.util
spec = importlib.util.spec_from_file_location("m", {model!r})
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
torch = m.torch


class ModelNew(m.Model):
    def forward(self, x, cache):
        out = super().forward(x, cache)
        {damage}
        return out
'''

DAMAGE = {
    "none": ("pass", None),
    "one element": ("out['y'][3, 5] += 0.01", "out['y']"),
    "finite for NaN": ("out['raw'] = out['raw'].nan_to_num()", "NaN in other places"),
    "integer off by one": ("out['top'].indices[0, 0] += 1", "elements differ"),
    "container type": ("out['n'] = tuple(out['n'])", "structure"),
    "key order": ("out = dict(reversed(out.items()))", "structure"),
    "Python value": ("out['n'][0] = 9", "instead of 8"),
    "dtype": ("out['t'] = out['t'].double()", "float64"),
    "strides": ("out['t'] = out['t'].contiguous()", "strides"),
    "no mutation": ("cache.sub_(1.0)", "inputs afterwards"),
    "extra call": ("super().forward(x, cache.clone())", "buffers afterwards"),
    "narrowed": ("out['y'] = out['y'].bfloat16().float()", "distance"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen(tmp_path, name):
    damage, words = DAMAGE[name]
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    (tmp_path / "optimized.py").write_text(IDENTITY.format(model=str(model), damage=damage))
    (tmp_path / "report.json").write_text(json.dumps({"outcome": "optimized"}))
    failures = check_optimized(model, tmp_path)["failures"]
    if words is None:
        assert failures == []
    else:
        assert any(words in failure for failure in failures), failures
