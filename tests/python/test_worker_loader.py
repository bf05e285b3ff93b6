"""The model loader: reproducible draws, layouts and aliasing kept, one clear line for what is wrong with a model."""

import textwrap

import pytest
import torch

from kernelopt import model_loader, state
from kernelopt.model_loader import LoadedModel
from kernelopt.protocol import ProtocolError

GOOD = """
    import random
    import torch
    class Model(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.lin = torch.nn.Linear(width, width)
            self.register_buffer("scale", torch.full((width,), random.random()))
        def forward(self, x, y=None):
            return self.lin(x) * self.scale
    def get_inputs():
        return [torch.randn(4, 8)]
    def get_init_inputs():
        return [8]
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="model.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write_file


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_same_seed_gives_the_same_model_and_inputs(write):
    path = write(GOOD)
    a, b = LoadedModel(path, seed=5), LoadedModel(path, seed=5)
    torch.manual_seed(99)
    assert all(torch.equal(x, y) for x, y in zip(a.pristine.state_dict().values(), b.pristine.state_dict().values()))
    assert torch.equal(a.inputs(7)[0], b.inputs(7)[0])
    assert not torch.equal(a.inputs(7)[0], a.inputs(8)[0])


def test_numpy_and_random_are_seeded(write):
    pytest.importorskip("numpy")
    drawn = "import numpy; return [torch.tensor([[numpy.random.rand(), random.random()] * 4] * 4).float()]"
    path = write(changed("return [torch.randn(4, 8)]", drawn))
    loaded = LoadedModel(path)
    assert torch.equal(loaded.inputs(3)[0], loaded.inputs(3)[0])
    assert not torch.equal(loaded.inputs(3)[0], loaded.inputs(4)[0])


def test_the_mode_stays_as_constructed(write):
    assert LoadedModel(write(GOOD)).fresh().training
    assert not LoadedModel(write(changed("self.lin = ", "self.eval(); self.lin = "), "other.py")).fresh().training


ERRORS = {
    "no Model": (changed("class Model", "class model"), "defines no class Model"),
    "Model is no module": ("class Model: pass\ndef get_inputs(): return []", "defines no class Model"),
    "no get_inputs": (changed("def get_inputs", "def Get_inputs"), "defines no function get_inputs"),
    "syntax": (changed("return [8]", "return [8"), "SyntaxError"),
    "import raises": ("import torch\nimport no_such_module_at_all", "raised ModuleNotFoundError: No module named"),
    "import exits": ("import sys\nsys.exit(4)", "raised SystemExit: 4"),
    "constructor raises": (
        changed("super().__init__()", "raise ValueError('width is odd')"),
        "the constructor of Model raised ValueError: width is odd (model.py, line ",
    ),
    "init arity": (changed("return [8]", "return [8, 9]"), "the constructor of Model raised TypeError"),
    "init inputs": (changed("return [8]", "return 8"), "get_init_inputs returns int, not a list"),
    "get_inputs raises": (changed("[torch.randn(4, 8)]", "[][1]"), "get_inputs raised IndexError"),
    "get_inputs returns a number": (changed("[torch.randn(4, 8)]", "5"), "get_inputs returns int"),
    "too few inputs": (changed("[torch.randn(4, 8)]", "[]"), "get_inputs returns 0 value(s), but Model.forward takes 2"),
    "too many inputs": (changed("[torch.randn(4, 8)]", "[1, 2, 3]"), "get_inputs returns 3 value(s), but Model.forward takes 2"),
    "out of memory": (changed("[torch.randn(4, 8)]", "[torch.empty(1 << 50)]"), "get_inputs ran out of memory"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_user_errors_are_one_clear_line(write, name):
    text, message = ERRORS[name]
    with pytest.raises(ProtocolError) as error:
        LoadedModel(write(text))
    assert error.value.kind == "user"
    assert message in error.value.message and "\n" not in error.value.message


def test_forward_that_raises_or_needs_too_much_is_a_user_error(write):
    for body, message in (("x @ x", "Model.forward raised RuntimeError"), ("torch.empty(1 << 50)", "ran out of memory")):
        loaded = LoadedModel(write(changed("self.lin(x) * self.scale", body), f"{len(body)}.py"))
        with pytest.raises(ProtocolError, match=message) as error:
            model_loader.observe(loaded)
        assert error.value.kind == "user"


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        (("no/such/model.py",), "user", "no such file: no/such/model.py"),
        (("nothing",), "user", "neither a Python file nor module:function"),
        (("no_such_module_at_all:make",), "user", "no such module"),
        (("json:make",), "user", "json defines no function make"),
        (("json:dumps",), "user", "json:dumps raised TypeError"),
    ],
)
def test_specs_that_lead_nowhere(arguments, kind, message):
    with pytest.raises(ProtocolError, match=message) as error:
        LoadedModel(*arguments)
    assert error.value.kind == kind


def test_device_and_dtype_that_do_not_exist(write):
    path = write(GOOD)
    for options, kind in (({"device": "abacus"}, "user"), ({"dtype": "float31"}, "user"), ({"device": "meta"}, "unsupported")):
        with pytest.raises(ProtocolError) as error:
            LoadedModel(path, **options)
        assert error.value.kind == kind
    if not torch.cuda.is_available():
        with pytest.raises(ProtocolError) as error:
            LoadedModel(path, device="cuda")
        assert error.value.kind == "environment"


def test_module_and_function(write, tmp_path, monkeypatch):
    text = "import torch\ndef make():\n    return torch.nn.Linear(3, 3), lambda: (torch.randn(2, 3),)\n"
    write(text, "kernelopt_test_factory.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = LoadedModel("kernelopt_test_factory:make", seed=2)
    assert isinstance(loaded.pristine, torch.nn.Linear)
    assert torch.equal(loaded.inputs(1)[0], loaded.inputs(1)[0])


def test_dtype_casts_floats_and_leaves_integers(write):
    loaded = LoadedModel(write(changed("[torch.randn(4, 8)]", "[torch.randn(8, 4).t(), torch.arange(3)]")), dtype="bfloat16")
    x, y = loaded.inputs(0)
    assert (x.dtype, x.stride(), y.dtype) == (torch.bfloat16, (1, 4), torch.int64)
    assert {tensor.dtype for tensor in loaded.pristine.state_dict().values()} == {torch.bfloat16}


def test_inputs_file_and_state_dict(write, tmp_path):
    path = write(GOOD)
    torch.save([torch.ones(2, 8)], tmp_path / "inputs.pt")
    weights = {key: torch.zeros_like(value) for key, value in LoadedModel(path).pristine.state_dict().items()}
    torch.save(weights, tmp_path / "weights.pt")
    loaded = LoadedModel(path, inputs=str(tmp_path / "inputs.pt"), state_dict=str(tmp_path / "weights.pt"))
    assert torch.equal(loaded.inputs(0)[0], torch.ones(2, 8)) and torch.equal(loaded.inputs(1)[0], torch.ones(2, 8))
    assert not loaded.pristine.lin.weight.any()
    (tmp_path / "bad.pt").write_bytes(b"not a checkpoint")
    torch.save({"lin.weight": torch.zeros(2)}, tmp_path / "wrong.pt")
    for options in ({"inputs": str(tmp_path / "bad.pt")}, {"inputs": "no/file.pt"}, {"state_dict": str(tmp_path / "wrong.pt")}):
        with pytest.raises(ProtocolError) as error:
            LoadedModel(path, **options)
        assert error.value.kind == "user"


def test_copies_keep_layout_and_aliasing():
    whole = torch.randn(40, 50)
    values = {
        "slice": whole.t()[3:43:2, 1:30:3],
        "same storage": (whole[0], whole[:, 1:3]),
        "expanded": torch.randn(1, 3).expand(4, 3),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 2),
        "number": 3,
    }
    copied = state.copy_inputs(values)
    for a, b in zip(state.tensors_of(values), state.tensors_of(copied), strict=True):
        assert torch.equal(a, b)
        assert (a.stride(), a.storage_offset(), a.dtype) == (b.stride(), b.storage_offset(), b.dtype)
        assert a.numel() == 0 or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()
    copied["slice"].zero_()
    copied["same storage"][0].fill_(7)
    assert (copied["same storage"][0] == 7).all() and whole.abs().min() > 0
    one, other = copied["slice"].untyped_storage(), copied["same storage"][1].untyped_storage()
    assert one.data_ptr() == other.data_ptr()


def test_casting_keeps_aliasing():
    x = torch.randn(6)
    a, b = state.copy_inputs([x, x[2:4]], dtype=torch.float64)
    a[2] = 5
    assert b[0] == 5 and b.storage_offset() == 2 and b.dtype == torch.float64


def test_restore_inputs_undoes_mutation_in_place():
    x = torch.randn(4, 4)
    given = [x, {"view": x[1:, ::2]}, torch.arange(3)]
    pristine = state.copy_inputs(given)
    address = x.data_ptr()
    x.mul_(float("inf"))
    given[2].zero_()
    state.restore_inputs(given, pristine)
    assert torch.equal(x, pristine[0]) and torch.equal(given[2], torch.arange(3)) and x.data_ptr() == address


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("total", torch.zeros(()))
        self.calls, self.order = 0, [1, 2]

    def forward(self, x):
        self.calls += 1
        self.order.append(self.calls)
        self.total = self.total + 1
        self.last = x
        return self.norm(x)


def test_state_goes_back_buffers_and_attributes_included():
    model = Counting()
    saved, total = state.ModelState(model), model.total
    assert not saved.changed()
    model(torch.randn(5, 3))
    assert saved.changed()
    saved.restore()
    assert not saved.changed()
    assert (model.calls, model.order, model.total is total) == (0, [1, 2], True)
    assert not hasattr(model, "last")
    assert model.norm.num_batches_tracked == 0 and not model.norm.running_mean.any()


def test_state_can_be_taken_from_a_copy_that_never_ran():
    pristine, model = Counting(), Counting()
    model(torch.randn(5, 3))
    saved = state.ModelState(model)
    saved.take_from(pristine)
    assert (model.calls, int(model.norm.num_batches_tracked)) == (0, 0)
    model(torch.randn(5, 3))
    saved.restore()
    assert (model.calls, int(model.norm.num_batches_tracked)) == (0, 0)


OBSERVED = {
    "nothing": ("self.lin(x)", []),
    "random": ("self.lin(x) + torch.rand(())", ["random"]),
    "python's random": ("self.lin(x) + random.random()", ["random"]),
    "inputs": ("self.lin(x.mul_(2))", ["mutates_inputs"]),
    "buffer": ("self.lin(x) + self.scale.add_(1)", ["mutates_state"]),
    "new attribute": ("setattr(self, 'cache', x) or self.lin(x)", ["mutates_state"]),
    "parameter": ("self.lin.bias.add_(1) + x", ["mutates_parameters"]),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_observed_needs(write, name):
    body, needs = OBSERVED[name]
    loaded = LoadedModel(write(changed("self.lin(x) * self.scale", body)))
    before = {key: value.clone() for key, value in loaded.pristine.state_dict().items()}
    assert model_loader.observe(loaded)[1] == needs
    assert all(torch.equal(value, before[key]) for key, value in loaded.pristine.state_dict().items())


def test_fresh_copies_have_code_of_their_own_and_share_nothing(write):
    loaded = LoadedModel(write(GOOD))
    a, b = loaded.fresh(), loaded.fresh()
    assert a.forward.__func__.__code__ is not b.forward.__func__.__code__
    assert a.lin.weight.data_ptr() != b.lin.weight.data_ptr()
    x = loaded.inputs(0)[0]
    assert torch.equal(a(x), b(x)) and torch.equal(a(x), loaded.pristine(x))
