"""Library products as launches: the call that `bind` makes of loops, against torch."""

import pytest
import torch

from kernelopt.protocol import ProtocolError
from kernelopt.worker import library_calls

M, N, K, BATCH = 5, 7, 6, 3
FLAT = {"p0": M, "p1": N, "p2": K}
BATCHED = {"p0": BATCH, "p1": M, "p2": N, "p3": K}


def kernel(extents, *indices):
    return {"call": "product", "extents": extents, "indices": list(indices)}


def terms(*pairs, offset=0):
    sums = [var if stride == 1 else {"mul": [stride, var]} for var, stride in pairs]
    return {"add": [offset, *sums]} if offset else {"add": sums}


def random(*size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def run(description, *tensors):
    """Called twice: the result must not depend on what `out` held."""
    out = tensors[-1].fill_(float("nan"))
    call = library_calls.bind(description, list(tensors))
    call()
    first = out.clone()
    call()
    assert torch.equal(first, out)
    return out


A_ROWS = terms(("p0", K), ("p2", 1))
B_ROWS = terms(("p2", N), ("p1", 1))
OUT = terms(("p0", N), ("p1", 1))


def test_plain():
    a, b = random(M, K), random(K, N)
    torch.testing.assert_close(run(kernel(FLAT, A_ROWS, B_ROWS, OUT), a, b, torch.empty(M, N)), a @ b)


def test_second_operand_transposed():
    a, b = random(M, K), random(N, K)
    got = run(kernel(FLAT, A_ROWS, terms(("p1", K), ("p2", 1)), OUT), a, b, torch.empty(M, N))
    torch.testing.assert_close(got, a @ b.t())


def test_an_offset_counts_from_the_buffer():
    a, b = random(M + 2, K), random(K, N)
    got = run(kernel(FLAT, terms(("p0", K), ("p2", 1), offset=2 * K), B_ROWS, OUT), a, b, torch.empty(M, N))
    torch.testing.assert_close(got, a[2:] @ b)


def test_batched_with_a_shared_operand():
    a, b = random(BATCH, M, K), random(K, N)
    got = run(kernel(BATCHED, terms(("p0", M * K), ("p1", K), ("p3", 1)), terms(("p3", N), ("p2", 1)),
                     terms(("p0", M * N), ("p1", N), ("p2", 1))), a, b, torch.empty(BATCH, M, N))
    torch.testing.assert_close(got, a @ b)


@pytest.mark.parametrize("size, index", [((N,), "p1"), ((M, N), OUT), ((M, 1), "p0")])
def test_bias(size, index):
    a, b, bias = random(M, K), random(K, N), random(*size)
    got = run(kernel(FLAT, A_ROWS, B_ROWS, index, OUT), a, b, bias, torch.empty(M, N))
    torch.testing.assert_close(got, a @ b + bias)


def test_batched_bias():
    a, b, bias = random(BATCH, M, K), random(BATCH, K, N), random(BATCH, M, N)
    out = terms(("p0", M * N), ("p1", N), ("p2", 1))
    got = run(kernel(BATCHED, terms(("p0", M * K), ("p1", K), ("p3", 1)), terms(("p0", K * N), ("p3", N), ("p2", 1)), out, out),
              a, b, bias, torch.empty(BATCH, M, N))
    torch.testing.assert_close(got, a @ b + bias)


def test_another_call_is_refused():
    with pytest.raises(ProtocolError):
        library_calls.bind({"call": "attention"}, [])


def operand(*size, offset=0):
    return {"size": list(size), "stride": list(torch.empty(size).stride()), "offset": offset}


def test_a_transposed_and_a_depthwise_convolution():
    numbers = {"stride": [2], "padding": [1], "dilation": [1], "transposed": True, "x": operand(2, 3, 5), "w": operand(3, 4, 3),
               "out": operand(2, 4, 10)}
    x, w = random(2, 3, 5), random(3, 4, 3)
    got = run({"call": "convolution", "numbers": numbers}, x, w, torch.empty(2, 4, 10))
    torch.testing.assert_close(got, torch.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1))
    numbers = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 3, "x": operand(2, 3, 5, 4), "w": operand(6, 1, 3, 3),
               "out": operand(2, 6, 5, 4)}
    x, w = random(2, 3, 5, 4), random(6, 1, 3, 3)
    got = run({"call": "convolution", "numbers": numbers}, x, w, torch.empty(2, 6, 5, 4))
    torch.testing.assert_close(got, torch.conv2d(x, w, padding=1, groups=3))


def test_a_returned_result_in_another_memory_order_is_an_error():
    numbers = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "x": operand(1, 2, 4, 4), "w": operand(3, 2, 1, 1), "out": operand(1, 3, 4, 4)}
    x, w = random(1, 2, 4, 4), random(3, 2, 1, 1)
    returned = library_calls.Returned()
    kernel = {"name": "convolve", "call": "convolution", "numbers": numbers}
    library_calls.bind_returning(kernel, x.flatten(), w.flatten(), returned)()
    torch.testing.assert_close(returned.tensor, torch.conv2d(x, w))
    assert returned.data_ptr() == returned.tensor.data_ptr()
    numbers["out"]["stride"] = [48, 1, 12, 3]
    with pytest.raises(RuntimeError, match="strides"):
        library_calls.bind_returning(kernel, x.flatten(), w.flatten(), returned)()
    with pytest.raises(ProtocolError):
        library_calls.bind_returning({**kernel, "call": "product"}, x, w, returned)
