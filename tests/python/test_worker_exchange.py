"""Exchange trees: what crosses between worker and judge keeps values, types and layout."""

import collections
import json
import os

import pytest
import torch

from kernelopt import exchange

Pair = collections.namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELOPT_EXCHANGE", str(tmp_path))
    return tmp_path


def through(value):
    tree = json.loads(json.dumps(exchange.write_tree(value), allow_nan=False))
    return exchange.read_tree(tree), tree


TENSORS = {
    "contiguous": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(3, 4).t(),
    "expanded": lambda: torch.randn(1, 3).expand(5, 3),
    "scalar expanded": lambda: torch.tensor(2.5).expand(2, 2),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "slice with offset and gaps": lambda: torch.randn(40, 50).t()[3:43:2, 1:30:3],
    "overlapping": lambda: torch.arange(10.0).as_strided((4, 3), (1, 2)),
    "0-d": lambda: torch.tensor(1.5),
    "empty": lambda: torch.empty(0, 3),
    "empty in the middle": lambda: torch.empty(2, 0, 3),
    "bfloat16": lambda: torch.randn(7).bfloat16(),
    "float16": lambda: torch.randn(7).half(),
    "float64": lambda: torch.randn(7).double(),
    "bool": lambda: torch.tensor([True, False, True]),
    "int8": lambda: torch.tensor([-128, 127], dtype=torch.int8),
    "uint8": lambda: torch.tensor([0, 255], dtype=torch.uint8),
    "int64": lambda: torch.tensor([-(2**62), 2**62]),
    "complex": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "non-finite": lambda: torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
    "parameter": lambda: torch.nn.Parameter(torch.randn(2)),
    "float8": lambda: torch.randn(4).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_keep_bits_and_layout(name):
    tensor = TENSORS[name]()
    back, tree = through(tensor)
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    plain = tensor.detach().resolve_conj()
    same = (back.contiguous().reshape(-1).view(torch.uint8), plain.contiguous().reshape(-1).view(torch.uint8))
    assert torch.equal(*same)
    assert os.path.getsize(tree["path"]) == exchange.span(tree["size"], tree["stride"]) * tensor.element_size()


def test_nests_keep_structure_types_and_key_order():
    value = {
        "logits": torch.randn(2, 2),
        7: [torch.zeros(0), (None, True, 2, -0.5, float("inf"), "text", 1 + 2j)],
        "top": torch.topk(torch.randn(5), 2),
        "pair": Pair(torch.ones(2), {"a": Pair(1, ())}),
        (1, "x"): collections.OrderedDict(b=1, a=[]),
        None: {},
        "meta": {"extra": {}, "nothing": ()},
    }
    back, _ = through(value)
    (structure, leaves), (back_structure, back_leaves) = exchange.flatten(value), exchange.flatten(back)
    assert structure == back_structure
    assert [path for path, _ in leaves] == [path for path, _ in back_leaves]
    for (_, leaf), (path, other) in zip(leaves, back_leaves):
        if isinstance(leaf, torch.Tensor):
            assert torch.equal(leaf, other), path
        else:
            assert type(leaf) is type(other) and leaf == other, path
    assert type(back["top"]) is torch.return_types.topk
    assert list(back) == list(value)


@pytest.mark.parametrize(
    "a, b",
    [
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: 0}, {"1": 0}),
        (Pair(1, 2), (1, 2)),
        ([[], 1], [1, []]),
        (collections.OrderedDict(a=1), {"a": 1}),
    ],
)
def test_flatten_tells_structures_apart(a, b):
    assert exchange.flatten(a)[0] != exchange.flatten(b)[0]
    assert exchange.flatten(a)[0] == exchange.flatten(through(a)[0])[0]


def test_what_cannot_cross_equals_nothing():
    back, tree = through([object(), torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True)])
    assert [item["kind"] for item in tree["items"]] == ["opaque", "opaque"]
    assert back[0] != back[0]


def test_reading_maps_privately_and_survives_removal():
    back, tree = through(torch.arange(4.0))
    back[0] = 9
    assert exchange.read_tree(tree)[0] == 0
    other = exchange.read_tree(tree)
    assert exchange.remove_files([{"deep": tree}]) == 1
    assert other.tolist() == [0, 1, 2, 3]
    assert exchange.remove_files(tree) == 0


def test_a_file_that_does_not_fit_is_refused():
    _, tree = through(torch.arange(4.0))
    with pytest.raises(ValueError, match="bytes where"):
        exchange.read_tensor({**tree, "size": [5]})
    with pytest.raises(ValueError):
        exchange.read_tensor({**tree, "stride": [1, 1]})


def test_only_files_of_the_folder_are_removed(tmp_path, folder):
    outside = tmp_path.parent / "outside.bin"
    outside.write_bytes(b"1234")
    leaf = {"kind": "tensor", "path": str(outside), "dtype": "float32", "size": [1], "stride": [1]}
    assert exchange.remove_files(leaf) == 0 and outside.exists()
    outside.unlink()


def test_own_files_go_at_exit(folder):
    through([torch.ones(2), torch.ones(3)])
    assert len(list(folder.iterdir())) == 2
    exchange.remove_own_files()
    assert not list(folder.iterdir())
