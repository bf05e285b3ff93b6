"""The recorded loop IR against the compiler's running program and eager nodes (DESIGN section 6)."""

import copy
import textwrap

import pytest
import torch

from kernelopt import bridge, model_loader
from kernelopt.judge import lowering

MODEL = """
    import torch
    import torch.nn as nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(24, 24)
            self.register_buffer("seen", torch.zeros(24))
        def forward(self, x, ids):
            h = torch.softmax(self.lin(x), 1)
            self.seen.add_(h.sum(0))
            return torch.cat([h[ids], x[ids] * 2], 1), nn.functional.layer_norm(h @ h.t(), (16,))

    def get_inputs():
        return [torch.randn(16, 24), torch.randint(0, 16, (9,))]
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "lowered.py"
    path.write_text(textwrap.dedent(MODEL))
    torch._dynamo.reset()
    loaded = model_loader.LoadedModel(str(path))
    return loaded, bridge.capture(loaded.fresh(), loaded.inputs(0)).programs[0]


def test_every_generated_step_agrees_with_compiler_and_eager(captured):
    loaded, program = captured
    steps = lowering.check(loaded, program, "default")["steps"]
    assert [step["step"] for step in steps] == [step["name"] for step in program["steps"]]
    checked = [step for step in steps if "skipped" not in step]
    generated = [step for step in program["steps"] if step["kind"] == "generated"]
    assert len(checked) >= len(generated) - 1 and len(checked) >= 2
    assert all(step["d"] is None or step["d"] < 1e-5 for step in checked)
    assert all(step.get("eager_d", 0) < 1e-5 for step in checked)
    assert any("eager_d" in step for step in checked) and any(step["checked"] for step in checked)
    # The mutated buffer is among what was compared.
    mutated = {name for name in program["inputs"] for step in generated if name in step["writes"]}
    assert mutated and mutated <= {name for step in checked for name in step["checked"]}
    extern = {step["name"] for step in program["steps"] if step["kind"] == "extern"}
    known = {step["name"] for step in program["steps"] if step["kind"] == "extern" and step.get("bodies")}
    assert extern and {step["step"] for step in steps if step.get("skipped") == "extern step"} == extern - known
    assert known and known <= {step["step"] for step in checked}


def test_a_wrong_body_is_another_schedule_and_shows_in_the_walk(captured):
    loaded, program = captured
    wrong = copy.deepcopy(program)
    target = None
    for step in wrong["steps"]:
        for body in step.get("bodies", []):
            for op in body["ops"]:
                if op["op"] == "sub":
                    op["op"], target = "add", step["name"]
    assert target
    assert all("another schedule" in step["skipped"] for step in lowering.check(loaded, wrong, "default")["steps"])
    session = lowering._OriginSession()
    run = lowering.compile_and_run(loaded.fresh(), loaded.inputs(0), "default", session)
    watcher = lowering.Watcher(run.programs[0])
    with lowering.watching(watcher), torch.no_grad():
        run.callable(*loaded.inputs(0))
    wrong["wrapper"] = run.programs[0]["wrapper"]
    steps = lowering._Walk(wrong, watcher, {}, {}).steps(lambda *_: None)
    assert any(step["step"] == target and step.get("d", 0) > 1e-3 for step in steps)
