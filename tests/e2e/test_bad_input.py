"""Bad input and a lacking environment: one clear line, exit status 2 or 3, no traceback, no process left behind."""
import os
import resource
import stat
import subprocess
import sys
import textwrap

import pytest

from harness import SMALL, run

GOOD = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.softmax(x * self.width, dim=-1)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [2]
'''


def damaged(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


# name: (source of the model file, exit status, words that the message holds)
MODELS = {
    "no Model": (damaged("class Model(", "class Modell("), 2, ["Model"]),
    "syntax error": (damaged("def forward(self, x):", "def forward(self, x:"), 2, ["model.py"]),
    "import error": ("import no_such_module_of_ours\n" + GOOD, 2, ["no_such_module_of_ours"]),
    "no get_inputs": (damaged("def get_inputs", "def make_inputs"), 2, ["get_inputs"]),
    "constructor raises": (damaged("self.width = width", "raise ValueError('width is wrong')"), 2, ["width is wrong"]),
    "constructor arity": (damaged("return [2]", "return [2, 3]"), 2, ["Model"]),
    "forward raises": (damaged("return torch.softmax(x * self.width, dim=-1)", "raise RuntimeError('forward broke')"),
                       2, ["forward broke"]),
    "forward shapes": (damaged("x * self.width", "x @ x"), 2, ["mat1 and mat2"]),
    "get_inputs arity": (damaged("return [torch.randn(16, 64)]", "return [torch.randn(16, 64), torch.randn(3)]"),
                         2, ["forward"]),
    "get_inputs raises": (damaged("return [torch.randn(16, 64)]", "raise KeyError('no data here')"), 2, ["no data here"]),
    "too large": (damaged("torch.randn(16, 64)", "torch.ones(2**45)"), 2, ["memory"]),
    "exits": (damaged("self.width = width", "import os; os._exit(7)"), 2, []),
}


def check(result, status, words):
    assert result.status == status, result.explain()
    everything = result.stdout + result.stderr
    assert "Traceback" not in everything and "terminate called" not in everything, result.explain()
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert lines, "no message on standard error"
    for word in words:
        assert word.lower() in lines[-1].lower(), f"{word!r} is not in: {lines[-1]}"
    # Progress may stand above it; the message itself is one line.
    messages = [line for line in lines if "error" in line.lower() or line.startswith("kernelopt:")]
    assert len(messages) == 1, result.explain()
    assert result.left_behind == [], result.left_behind


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(GOOD)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_model_file(tmp_path, name):
    source, status, words = MODELS[name]
    path = tmp_path / "model.py"
    path.write_text(source)
    check(run(["optimize", path, "--out", tmp_path / "out", *SMALL], timeout=180), status, words)


def test_no_such_file(tmp_path):
    check(run(["optimize", tmp_path / "absent.py", "--out", tmp_path / "out"], timeout=60), 2, ["absent.py"])


def test_inspect_no_such_file(tmp_path):
    check(run(["inspect", tmp_path / "absent.py"], timeout=60), 2, ["absent.py"])


@pytest.mark.parametrize("command", ["verify", "resume", "report"])
def test_no_such_run(tmp_path, command):
    check(run([command, tmp_path / "absent"], timeout=60), 2, ["absent"])


@pytest.mark.parametrize("options", [["--rounds", "-1"], ["--precision", "sloppy"], ["--device", "abacus"],
                                     ["--minutes", "soon"], ["--no-such-option"]])
def test_bad_option(model, tmp_path, options):
    result = run(["optimize", model, "--out", tmp_path / "out", *options], timeout=60)
    assert result.status == 2, result.explain()
    assert options[0].lstrip("-") in result.stderr, result.explain()
    assert result.left_behind == []


def test_no_command():
    assert run([], timeout=60).status == 2


def test_unwritable_output(model, tmp_path):
    (tmp_path / "file").write_text("")
    check(run(["optimize", model, "--out", tmp_path / "file" / "out"], timeout=60), 2, ["out"])


def test_state_dict_does_not_fit(model, tmp_path):
    (tmp_path / "state.pt").write_bytes(b"this is no state dict")
    check(run(["optimize", model, "--out", tmp_path / "out", "--state-dict", tmp_path / "state.pt"], timeout=180),
          2, ["state.pt"])


def test_inputs_file_missing(model, tmp_path):
    check(run(["optimize", model, "--out", tmp_path / "out", "--inputs", tmp_path / "none.pt"], timeout=180), 2, ["none.pt"])


def test_no_python(model, tmp_path):
    check(run(["optimize", model, "--out", tmp_path / "out", "--python", tmp_path / "nopython"], timeout=60), 3, ["nopython"])


def python_wrapper(tmp_path, lines):
    path = tmp_path / "wrapped-python"
    path.write_text("#!/bin/sh\n" + lines + f'exec {sys.executable} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_python_without_torch(model, tmp_path):
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "torch.py").write_text("raise ImportError('No module named torch')\n")
    wrapper = python_wrapper(tmp_path, f'PYTHONPATH={fake}:$PYTHONPATH\nexport PYTHONPATH\n')
    check(run(["optimize", model, "--out", tmp_path / "out", "--python", wrapper], timeout=60), 3, ["torch"])


def test_unsupported_torch(model, tmp_path):
    """The real torch, renamed: whatever the worker imports first, the version is what refuses."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "sitecustomize.py").write_text(textwrap.dedent('''
        import torch
        torch.__version__ = torch.version.__version__ = torch.torch_version.TorchVersion("2.99.0")
    '''))
    wrapper = python_wrapper(tmp_path, f'PYTHONPATH={fake}:$PYTHONPATH\nexport PYTHONPATH\n')
    check(run(["optimize", model, "--out", tmp_path / "out", "--python", wrapper], timeout=120), 3, ["2.99", "2.13", "2.11"])


def test_no_compiler(model, tmp_path):
    """torch needs a compiler on the CPU as much as we do; PATH without one is an environment that lacks something."""
    empty = tmp_path / "bin"
    empty.mkdir()
    result = run(["optimize", model, "--out", tmp_path / "out", *SMALL], timeout=180,
                 env={"PATH": str(empty), "CXX": None, "CC": None, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"})
    check(result, 3, ["compiler"])


def test_memory_limit(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(damaged("torch.randn(16, 64)", "torch.ones(3 * 2**30)"))
    limit = 8 * 2**30

    def lower():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    check(run(["optimize", path, "--out", tmp_path / "out", *SMALL], timeout=180, preexec_fn=lower), 2, ["memory"])


def test_doctor_is_healthy():
    result = run(["doctor"], timeout=120)
    assert result.status == 0, result.explain()
    assert "torch" in result.stdout
    assert result.left_behind == []


def test_doctor_names_what_is_missing(tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    result = run(["doctor"], timeout=120, env={"PATH": str(empty), "CXX": None, "CC": None})
    assert result.status == 3, result.explain()
    assert "compiler" in (result.stdout + result.stderr).lower()


def test_set_up_without_root_names_packages(tmp_path):
    """scripts/setup.sh without root and without the packages names them and ends with status 3."""
    from harness import ROOT
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "dpkg-query").write_text("#!/bin/sh\necho not-installed\n")
    (bin_folder / "id").write_text("#!/bin/sh\necho 1000\n")
    for tool in bin_folder.iterdir():
        tool.chmod(0o755)
    copy = tmp_path / "copy"
    copy.mkdir()
    subprocess.run(["cp", "-r", str(ROOT / "scripts"), str(copy)], check=True)
    done = subprocess.run(["bash", str(copy / "scripts" / "setup.sh")], capture_output=True, text=True,
                          env=dict(os.environ, PATH=f"{bin_folder}:{os.environ['PATH']}", PYTHON=sys.executable))
    assert done.returncode == 3, done.stderr
    for package in ("cmake", "libspdlog-dev", "libgtest-dev"):
        assert package in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
