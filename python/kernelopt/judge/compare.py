"""Leaf comparisons of gates 2 and 3 (DESIGN section 6, docs/protocol.md). Numbers only: the engine decides.

A leaf has up to three sides: the value under test, the reference in the model's own types (eager, or the loop IR in
float32), and the float64 reference. All of it is blockwise, so that large outputs need little memory beside them.
"""

import math

import torch

from kernelopt.exchange import flatten

# Elements compared at a time. On the CPU a block's float64 temporaries stay in the cache and in memory that malloc reuses.
_BLOCK = {"cpu": 1 << 16, "cuda": 1 << 25}
_TINY = 2.0**-126


def same_strides(a, b):
    """Whether two tensors of one size lie alike in memory; strides of dimensions of one element do not count."""
    return all(x == y for x, y, n in zip(a.stride(), b.stride(), a.shape) if n > 1)


def _rows(tensor):
    """A two-dimensional view or copy: rows of the last dimension."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj()).flatten(-2)
    return tensor.reshape(1, 1) if tensor.dim() == 0 else tensor.reshape(-1, tensor.shape[-1])


def same_bits(a, b):
    """Whether two tensors of one type, size and layout hold the same bits; False where that cannot be told cheaply."""
    if a.is_conj() or b.is_conj() or a.is_neg() or b.is_neg():
        return False
    if a.dtype != b.dtype or a.shape != b.shape or not (a.is_contiguous() and b.is_contiguous()) or a.device != b.device:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _blocks(*tensors):
    """Equal row blocks of tensors of one size, on the first one's device. Long rows are not cut."""
    rows = [_rows(tensor) for tensor in tensors if tensor is not None]
    if rows[0].numel() == 0:
        return
    step = max(1, _BLOCK[rows[0].device.type] // rows[0].shape[1])
    for start in range(0, rows[0].shape[0], step):
        block = iter([row[start : start + step].to(rows[0].device) for row in rows])
        yield [None if tensor is None else next(block) for tensor in tensors]


class Reference:
    """What both sides of one leaf's reference say, computed once: RMS, eager's error and its distances."""

    def __init__(self, eager, ideal):
        self.eager = eager
        self.ideal = ideal
        self.rms = 0.0
        self.error = 0.0
        self.d = self.d_rows = None
        base = eager if ideal is None else ideal
        squares, count = 0.0, 0
        for (block,) in _blocks(base):
            block = block.to(torch.float64)
            block = block[torch.isfinite(block)]
            squares += float((block * block).sum())
            count += block.numel()
        self.rms = math.sqrt(squares / count) if count else 0.0
        self.norm = math.sqrt(squares)
        if ideal is not None:
            self.d, self.d_rows, self.error = self.distance(eager)

    def distance(self, value):
        """(relative L2 distance to float64, its maximum over rows, largest difference), over entries finite in both."""
        total, worst_row, worst = 0.0, 0.0, 0.0
        for got, ideal in _blocks(value, self.ideal):
            got, ideal = got.to(torch.float64), ideal.to(torch.float64)
            usable = torch.isfinite(got) & torch.isfinite(ideal)
            ideal = torch.where(usable, ideal, 0.0)
            difference = torch.where(usable, got, 0.0) - ideal
            worst = max(worst, float(difference.abs().amax()))
            squares = (difference * difference).sum(dim=1)
            total += float(squares.sum())
            # A row that is zero in float64 would make any rounding noise infinite: it counts as a row of noise of the
            # whole tensor's size.
            floor = max(_TINY, self._unit(value) * self.rms * math.sqrt(ideal.shape[1]))
            norms = torch.linalg.vector_norm(ideal, dim=1).clamp(min=floor)
            worst_row = max(worst_row, float((squares.sqrt() / norms).amax()))
        return math.sqrt(total) / max(self.norm, _TINY), worst_row, worst

    @staticmethod
    def _unit(value):
        return torch.finfo(value.dtype).eps / 2 if value.dtype.is_floating_point or value.dtype.is_complex else 0.0


def tolerance_of(tolerance, reference):
    """(rtol, absolute tolerance used) for one entry of `tolerances`."""
    atol = tolerance["atol"]
    if tolerance.get("rms_scaled"):
        atol = max(atol * min(1.0, reference.rms), tolerance.get("error_factor", 4) * reference.error)
    return tolerance["rtol"], atol


def compare_tensor(path, got, eager, ideal, tolerances, cache=None):
    """The leaf comparison of one tensor; `ideal` is None where there is no float64 reference. `cache` is a dict that keeps what
    depends on the references alone, by path.

    Non-finite values that differ count as violations at every tolerance. Without a float64 reference the RMS is
    eager's and the distances are null; for integers and booleans a violation is any difference.
    """
    floating = eager.dtype.is_floating_point or eager.dtype.is_complex
    leaf = {
        "path": path, "kind": "tensor", "dtype": str(got.dtype).removeprefix("torch."), "equal": False,
        "shape_equal": got.shape == eager.shape, "dtype_equal": got.dtype == eager.dtype,
        "stride_equal": got.shape == eager.shape and same_strides(got, eager),
        "nonfinite_equal": True, "elements": got.numel(), "max_abs": 0.0, "max_rel": 0.0,
        "violations": [0] * len(tolerances), "d_opt": None, "d_ref": None, "d_opt_rows": None, "d_ref_rows": None,
        "rms": 0.0, "ref_error": 0.0, "float64": False,
    }
    if got.device != eager.device:  # the reference's side is the one with the memory and the speed
        got = got.to(eager.device)
    if not (leaf["shape_equal"] and leaf["dtype_equal"]):
        leaf["violations"] = [max(1, got.numel())] * len(tolerances)
        leaf["nonfinite_equal"] = False
        return leaf
    if not floating:
        return _compare_exact(leaf, got, eager)
    if ideal is not None and ideal.shape != eager.shape:
        ideal = None
    reference = None if cache is None else cache.get(path)
    if reference is None:
        reference = Reference(eager, ideal)
        if cache is not None:
            cache[path] = reference
    leaf["rms"], leaf["ref_error"] = reference.rms, reference.error
    if ideal is not None:
        leaf["float64"] = True
        leaf["d_ref"], leaf["d_ref_rows"] = reference.d, reference.d_rows
    if same_bits(got, eager):
        leaf["equal"] = True
        leaf["d_opt"], leaf["d_opt_rows"] = leaf["d_ref"], leaf["d_ref_rows"]
        return leaf
    if ideal is not None:
        leaf["d_opt"], leaf["d_opt_rows"], _ = reference.distance(got)
    limits = [tolerance_of(tolerance, reference) for tolerance in tolerances]
    equal = True
    for a, e in _blocks(got, eager):
        a, e = a.to(torch.float64), e.to(torch.float64)
        same = (a == e) | (torch.isnan(a) & torch.isnan(e))
        equal = equal and bool(same.all())
        finite = torch.isfinite(a) & torch.isfinite(e)
        wrong = ~finite & ~same
        nonfinite_wrong = int(wrong.sum())
        leaf["nonfinite_equal"] = leaf["nonfinite_equal"] and nonfinite_wrong == 0
        size = torch.where(finite, e, 0.0).abs()
        difference = (torch.where(finite, a, 0.0) - torch.where(finite, e, 0.0)).abs()
        leaf["max_abs"] = max(leaf["max_abs"], float(difference.amax()))
        ratio = torch.where(difference == 0, 0.0, difference / size.clamp(min=_TINY))
        leaf["max_rel"] = max(leaf["max_rel"], float(ratio.amax()))
        for number, (rtol, atol) in enumerate(limits):
            leaf["violations"][number] += nonfinite_wrong + int((difference > atol + rtol * size).sum())
    leaf["equal"] = equal
    return leaf


def _compare_exact(leaf, got, eager):
    different = 0
    for a, e in _blocks(got, eager):
        unequal = a != e
        count = int(unequal.sum())
        different += count
        if count:
            # In int64, since float64 does not tell neighbours above 2^53 apart.
            gap = (a[unequal].to(torch.int64) - e[unequal].to(torch.int64)).to(torch.float64).abs()
            leaf["max_abs"] = max(leaf["max_abs"], float(gap.amax()))
            ratio = gap / e[unequal].to(torch.float64).abs().clamp(min=1.0)
            leaf["max_rel"] = max(leaf["max_rel"], float(ratio.amax()))
    leaf["equal"] = different == 0
    leaf["violations"] = [different] * len(leaf["violations"])
    return leaf


def equal_values(a, b):
    """Equality of non-tensor leaves: same type, and == or both NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and a != a:
        return b != b
    try:
        return bool(a == b)
    except Exception:
        return False


def compare_value(path, got, eager, tolerances):
    """The leaf comparison of something that is not a tensor (or of a tensor with something else)."""
    equal = equal_values(got, eager)
    return {
        "path": path, "kind": "value", "dtype": type(got).__name__, "equal": equal, "shape_equal": True,
        "dtype_equal": type(got) is type(eager), "stride_equal": True, "nonfinite_equal": True, "elements": 1,
        "max_abs": 0.0, "max_rel": 0.0, "violations": [int(not equal)] * len(tolerances), "d_opt": None, "d_ref": None,
        "d_opt_rows": None, "d_ref_rows": None, "rms": 0.0, "ref_error": 0.0, "float64": False,
    }


def compare_leaf(path, got, eager, ideal, tolerances):
    """`compare_tensor` where both sides are tensors, else `compare_value`."""
    if isinstance(got, torch.Tensor) and isinstance(eager, torch.Tensor):
        if not isinstance(ideal, torch.Tensor):
            ideal = None
        return compare_tensor(path, got, eager, ideal, tolerances)
    return compare_value(path, got, eager, tolerances)


def _first_difference(a, b, path=""):
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return _first_difference(x, y, f"{path}/{number}")
    return f"{str(a)[:120]} where eager has {str(b)[:120]}"


def compare_trees(prefix, got, eager, ideal, tolerances):
    """`(structure_equal, difference or None, leaves)` of two trees. With unequal structures there are no leaves.

    `ideal` is the float64 run's tree or None; it is used leaf by leaf as long as its structure is eager's.
    """
    structure, leaves = flatten(got)
    wanted, references = flatten(eager)
    if structure != wanted or len(leaves) != len(references):
        return False, f"{prefix}: {_first_difference(structure, wanted)}", []
    ideals = [None] * len(leaves)
    if ideal is not None:
        ideal_structure, ideal_leaves = flatten(ideal)
        if ideal_structure == wanted:
            ideals = [leaf for _, leaf in ideal_leaves]
    results = []
    for (path, value), (_, reference), exact in zip(leaves, references, ideals):
        full = f"{prefix}/{path}" if path else prefix
        results.append(compare_leaf(full, value, reference, exact, tolerances))
    return True, None, results
