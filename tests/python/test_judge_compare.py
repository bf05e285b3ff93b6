"""Leaf comparisons of the judge on crafted cases (DESIGN section 6)."""

import collections

import pytest
import torch

from kernelopt.judge.compare import compare_tensor, compare_trees

TIGHT = {"rtol": 1e-4, "atol": 1e-4, "rms_scaled": True, "error_factor": 4}
LOOSE = {"rtol": 1e-3, "atol": 1e-3, "rms_scaled": True, "error_factor": 4}
PLAIN = {"rtol": 1e-3, "atol": 1e-3}


def sides(*size, seed=0):
    """(eager in float32, float64) of one computation with ordinary rounding."""
    exact = torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return exact.float(), exact


def compare(got, eager, exact, *tolerances):
    return compare_tensor("outputs/0", got, eager, exact, list(tolerances or (TIGHT, LOOSE)))


def test_equal_tensors_have_no_distance_of_their_own():
    eager, exact = sides(300, 40)
    leaf = compare(eager.clone(), eager, exact)
    assert leaf["equal"] and leaf["violations"] == [0, 0] and leaf["max_abs"] == 0 and leaf["elements"] == 12000
    assert leaf["d_opt"] == leaf["d_ref"] and 0 < leaf["d_ref"] < 1e-7 and leaf["d_opt_rows"] >= leaf["d_opt"]
    assert abs(leaf["rms"] - 1) < 0.05 and 0 < leaf["ref_error"] < 1e-6


def test_one_wrong_element_is_one_violation_and_shows_in_its_row():
    eager, exact = sides(1000, 64)
    got = eager.clone()
    got[500, 7] += 0.01
    leaf = compare(got, eager, exact)
    assert leaf["violations"] == [1, 1] and not leaf["equal"] and leaf["nonfinite_equal"]
    assert leaf["max_abs"] == pytest.approx(0.01, rel=1e-3)
    assert leaf["d_opt_rows"] == pytest.approx(0.01 / float(exact[500].norm()), rel=1e-2)
    assert leaf["d_opt"] == pytest.approx(0.01 / float(exact.norm()), rel=1e-2)
    assert leaf["d_ref_rows"] < 1e-6


def test_moved_nan_and_wrong_sign_of_inf_are_violations():
    eager, exact = sides(50, 8)
    for value, other in ((float("nan"), 1.0), (float("inf"), float("-inf")), (float("inf"), 3e38), (float("nan"), float("inf"))):
        reference = eager.clone()
        reference[3, 2] = value
        same = compare(reference.clone(), reference, exact)
        assert same["equal"] and same["nonfinite_equal"] and same["violations"] == [0, 0]
        got = reference.clone()
        got[3, 2] = other
        leaf = compare(got, reference, exact)
        assert not leaf["nonfinite_equal"] and leaf["violations"] == [1, 1]
        moved = eager.clone()
        moved[4, 2] = value
        assert compare(moved, reference, exact)["violations"] == [2, 2]
    got = eager.clone()
    got[0, 0] = float("nan")
    assert not compare(got, eager, exact)["nonfinite_equal"]


def test_an_all_zeros_softmax_fails_although_every_value_is_tiny():
    logits = torch.randn(2, 393216, generator=torch.Generator().manual_seed(1))
    eager, exact = torch.softmax(logits, 1), torch.softmax(logits.double(), 1)
    zeros = torch.zeros_like(eager)
    leaf = compare(zeros, eager, exact, TIGHT, LOOSE, PLAIN)
    assert leaf["violations"][2] == 0, "a plain tolerance lets it through"
    assert leaf["violations"][0] > 0.9 * eager.numel() and leaf["violations"][1] > 0.9 * eager.numel()
    assert leaf["d_opt"] == pytest.approx(1.0) and leaf["d_ref"] < 1e-6
    honest = compare(torch.exp(logits - logits.amax(1, True)) / torch.exp(logits - logits.amax(1, True)).sum(1, True), eager, exact)
    assert honest["violations"] == [0, 0]


def test_tolerance_is_at_least_four_times_eagers_own_error():
    exact = torch.zeros(100, dtype=torch.float64)
    eager = torch.full((100,), 1e-8)
    assert compare(-eager, eager, exact)["violations"] == [0, 0]
    assert compare(eager * 6, eager, exact)["violations"] == [100, 100]
    assert compare(eager * 6, eager, exact, PLAIN)["violations"] == [0]
    leaf = compare(eager * 6, eager, exact)
    assert leaf["d_opt"] / leaf["d_ref"] == pytest.approx(6, rel=1e-5)


def test_integers_and_booleans_must_be_equal_one_off_is_a_violation():
    eager = torch.arange(2**53, 2**53 + 20)
    got = eager.clone()
    got[11] += 1
    leaf = compare(got, eager, None)
    assert leaf["violations"] == [1, 1] and not leaf["equal"] and leaf["max_abs"] == 1 and leaf["d_opt"] is None
    assert compare(eager.clone(), eager, None)["equal"]
    flags = torch.tensor([True, False, True])
    assert compare(~flags, flags, None)["violations"] == [3, 3]


def test_type_shape_and_strides():
    eager, exact = sides(4, 6)
    assert not compare(eager.double(), eager, exact)["dtype_equal"]
    reshaped = compare(eager.reshape(24), eager, exact)
    assert not reshaped["shape_equal"] and reshaped["violations"][0] > 0
    transposed = compare(eager.t().contiguous().t(), eager, exact)
    assert not transposed["stride_equal"] and transposed["equal"] and transposed["violations"] == [0, 0]
    # The stride of a dimension of one element says nothing.
    one = torch.zeros(1, 6).as_strided((1, 6), (99, 1))
    assert compare(one, torch.zeros(1, 6), torch.zeros(1, 6).double())["stride_equal"]
    scalar = torch.tensor(2.0)
    assert not compare(scalar.reshape(1), scalar, scalar.double())["shape_equal"]
    assert compare(scalar.clone(), scalar, scalar.double())["equal"]


def test_signed_zeros_are_equal_and_empty_tensors_too():
    assert compare(torch.tensor([-0.0, 0.0]), torch.tensor([0.0, -0.0]), torch.zeros(2).double())["equal"]
    leaf = compare(torch.zeros(0, 5), torch.zeros(0, 5), torch.zeros(0, 5).double())
    assert leaf["equal"] and leaf["violations"] == [0, 0] and leaf["d_opt"] == 0


def test_half_overflow_is_judged_against_eager_and_left_out_of_the_distance():
    exact = torch.tensor([1e5, 2.0, 3.0], dtype=torch.float64)
    eager = exact.half()
    assert eager[0].isinf()
    leaf = compare(eager.clone(), eager, exact)
    assert leaf["nonfinite_equal"] and leaf["d_opt"] < 1e-3 and leaf["ref_error"] == 0


def test_without_float64_the_rms_is_eagers_and_distances_are_null():
    eager, _ = sides(30, 30)
    leaf = compare(eager + 1e-3, eager, None)
    assert leaf["d_opt"] is None and leaf["d_ref"] is None and not leaf["float64"]
    assert leaf["rms"] == pytest.approx(1, rel=0.1) and leaf["violations"][0] > 0


Pair = collections.namedtuple("Pair", "first second")


def test_trees_need_the_same_structure_and_every_leaf_is_looked_at():
    eager = {"a": [torch.ones(3), (None, 2, "text")], 7: Pair(torch.zeros(2), 0.5), "nothing": ()}

    def tree():
        return {"a": [torch.ones(3), (None, 2, "text")], 7: Pair(torch.zeros(2), 0.5), "nothing": ()}

    equal, why, leaves = compare_trees("outputs", tree(), eager, None, [TIGHT])
    assert equal and why is None and all(leaf["equal"] for leaf in leaves)
    assert [leaf["path"] for leaf in leaves] == [f"outputs/{path}" for path in ("a/0", "a/1/0", "a/1/1", "a/1/2", "7/0", "7/1")]

    deep = tree()
    deep[7] = Pair(torch.ones(2), 0.5)
    _, _, leaves = compare_trees("outputs", deep, eager, None, [TIGHT])
    assert [leaf["path"] for leaf in leaves if not leaf["equal"]] == ["outputs/7/0"]

    for wrong in (
        {**tree(), "a": tuple(tree()["a"])},
        {**tree(), "nothing": []},
        {**tree(), 7: (torch.zeros(2), 0.5)},
        {key: tree()[key] for key in (7, "a", "nothing")},
        {key: tree()[key] for key in ("a", 7)},
    ):
        equal, why, leaves = compare_trees("outputs", wrong, eager, None, [TIGHT])
        assert not equal and why and not leaves

    for number, value in ((1, 2.0), (1, True), (2, "other")):
        changed = tree()
        items = list(changed["a"][1])
        items[number] = value
        changed["a"][1] = tuple(items)
        equal, _, leaves = compare_trees("outputs", changed, eager, None, [TIGHT])
        assert equal and [leaf["violations"] for leaf in leaves if not leaf["equal"]] == [[1]]


def test_the_float64_tree_is_used_leaf_by_leaf():
    eager, exact = sides(20, 3)
    _, _, leaves = compare_trees("outputs", (eager, 1), (eager, 1), (exact, 1), [TIGHT])
    assert leaves[0]["d_ref"] > 0 and leaves[1]["kind"] == "value"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_equal_bits_are_equal_and_others_are_not(dtype):
    eager = torch.randn(3, 5, dtype=dtype)
    cache = {}
    for value, equal in ((eager.clone(), True), (eager + 1, False), (eager.clone(), True)):
        leaf = compare_tensor("outputs", value, eager, None, [TIGHT], cache)
        assert leaf["equal"] == equal and (leaf["violations"] == [0]) == equal
    assert list(cache) == ["outputs"]


def test_lazily_conjugated_values_compare_by_value():
    eager = torch.randn(4, dtype=torch.complex64)
    assert compare_tensor("outputs", eager.conj().conj(), eager, None, [TIGHT])["equal"]
    assert not compare_tensor("outputs", eager.conj(), eager, None, [TIGHT])["equal"]
    assert compare_tensor("outputs", eager.conj().resolve_conj(), eager.conj(), None, [TIGHT])["equal"]


def test_cached_reference_keeps_the_distances():
    eager = torch.randn(64)
    ideal, cache = eager.double() + 1e-6, {}
    first = compare_tensor("outputs", eager + 1e-3, eager, ideal, [LOOSE], cache)
    again = compare_tensor("outputs", eager + 1e-3, eager, ideal, [LOOSE], cache)
    assert first == again == compare_tensor("outputs", eager + 1e-3, eager, ideal, [LOOSE])
    same = compare_tensor("outputs", eager.clone(), eager, ideal, [LOOSE], cache)
    assert same["d_opt"] == same["d_ref"] == first["d_ref"] and 0 < same["d_ref"] < first["d_opt"]
