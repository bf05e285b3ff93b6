"""What single models of the shared cases demand beyond "equal to eager": one class a case, keyed by file name.

`check(pair, report)` returns failures; `deterministic` says whether eager agrees with itself.
"""
import json

import torch

from check_optimized import compare_leaf, compare_trees, distance


def said(report, *words):
    """Whether the report holds one of the words in any of its texts."""
    text = json.dumps(report).lower()
    return any(word in text for word in words)


class Case:
    deterministic = True

    def check(self, pair, report):
        return []

    def both(self, pair, seed, change=lambda inputs: inputs):
        """(optimized outputs, eager outputs) on the same, possibly changed, inputs."""
        mine, theirs = change(pair.inputs(seed)), change(pair.inputs(seed))
        return pair.call(pair.new, mine, seed), pair.call(pair.eager, theirs, seed)

    def same_on(self, pair, seed, change, label, **how):
        got, want = self.both(pair, seed, change)
        return compare_trees(got, want, None, label, **how)


class SoftmaxNegInf(Case):
    def check(self, pair, report):
        (probs, log_probs, _), _ = self.both(pair, 5)
        failures = []
        if not (probs[0].isnan().all() and probs[2].isnan().all() and log_probs[0].isnan().all()):
            failures.append("rows 0 and 2 are not all NaN")
        if not (probs[1, 1499] == 1.0 and probs[1].sum() == 1.0):
            failures.append("row 1 is not one-hot")
        if not probs[3].isfinite().all():
            failures.append("row 3 is not finite")
        return failures


class LogSumExp(Case):
    def check(self, pair, report):
        (lse, both, empty, as_float, half, pair_), _ = self.both(pair, 5)
        failures = []
        if any(t.isnan().any() for t in (lse, both, empty, as_float, half, pair_)):
            failures.append("NaN in an output")
        if as_float.dtype != torch.float32 or half.dtype != torch.float16:
            failures.append("integer input does not give float32, or half input not half")
        if not (lse[0].eq(float("-inf")).all() and lse[1].eq(float("inf")).all() and empty.eq(float("-inf")).all()):
            failures.append("infinite rows are not as eager's")
        return failures


class Welford(Case):
    def check(self, pair, report):
        failures = []
        exact = pair.float64(pair.eager, pair.inputs(5), 5)
        got, want = self.both(pair, 5)
        for index in (0, 2, 3, 4, 5):  # 1 holds the rows near the float limit: equal to eager, not to float64
            d_got, d_want = distance(got[index], exact[index]), distance(want[index], exact[index])
            if d_got > 4 * max(d_want, 1e-8):
                failures.append(f"output {index}: error {d_got:.3g} against float64, eager's {d_want:.3g}")
        return failures


class InplaceMutation(Case):
    def check(self, pair, report):
        mine, before = pair.inputs(5), pair.inputs(5)
        pair.call(pair.new, mine, 5)
        failures = []
        if torch.equal(mine[0], before[0]) or torch.equal(mine[1], before[1]):
            failures.append("inputs 0 and 1 were not mutated")
        if not torch.equal(mine[2], before[2]):
            failures.append("input 2 was changed")
        return failures


class BatchNormBuffers(Case):
    def check(self, pair, report):
        torch.manual_seed(7)
        fresh = pair.optimized.ModelNew(*pair.source.get_init_inputs())
        failures = []
        for name, buffer in fresh.named_buffers():
            if name.endswith("num_batches_tracked") and int(buffer) != 0:
                failures.append(f"a fresh module starts with {name} = {int(buffer)}")
            if name.endswith("running_mean") and bool(buffer.ne(0).any()):
                failures.append(f"a fresh module starts with a used {name}")
        for call in range(3):
            pair.call(fresh, pair.inputs(50 + call), 0)
        for name, buffer in fresh.named_buffers():
            if name.endswith("num_batches_tracked") and int(buffer) != 3:
                failures.append(f"after 3 calls {name} = {int(buffer)}")
        return failures


class DataDependentShapes(Case):
    def check(self, pair, report):
        def mask_all(value):
            return lambda inputs: [inputs[0], torch.full_like(inputs[1], value), inputs[2]]

        def lengths(values):
            return lambda inputs: [inputs[0], inputs[1], torch.tensor(values)]

        failures = self.same_on(pair, 5, mask_all(False), "all-False mask")
        failures += self.same_on(pair, 6, mask_all(True), "all-True mask")
        failures += self.same_on(pair, 7, lengths([1, 1, 1, 1, 1]), "lengths of one")
        failures += self.same_on(pair, 8, lengths([3, 20, 7, 7, 3]), "longest 20")
        if not said(report, "nonzero", "item", "data-dependent", "data dependent", "graph break", "unique"):
            failures.append("the report does not name what kept the model from being captured")
        return failures


class TopkSort(Case):
    """Ties make two outputs ambiguous: their values must be equal, their indices valid, distinct and pointing there."""
    deterministic = False  # compared here

    def check(self, pair, report):
        mine, theirs = pair.inputs(5), pair.inputs(5)
        got, want = pair.call(pair.new, mine, 5), pair.call(pair.eager, theirs, 5)
        tied = theirs[1]
        failures = []
        for index, (a, b) in enumerate(zip(got, want)):
            if index == 4:
                failures += self.ambiguous(tied, a.values, a.indices, b.values, "tied topk")
            elif index == 5:
                failures += self.ambiguous(tied, tied.gather(1, a), a, tied.gather(1, b), "argsort")
            else:
                failures += compare_trees(a, b, None, f"output {index}", bits=True)
        return failures

    @staticmethod
    def ambiguous(source, values, indices, want, label):
        failures = []
        if not torch.equal(values, want):
            failures.append(f"{label}: values differ")
        if indices.dtype != torch.int64 or int(indices.min()) < 0 or int(indices.max()) >= source.shape[1]:
            return failures + [f"{label}: indices out of range"]
        if not torch.equal(source.gather(1, indices), want):
            failures.append(f"{label}: indices do not point at the values")
        if any(row.unique().numel() != row.numel() for row in indices):
            failures.append(f"{label}: indices repeat")
        return failures


class Recurrent(Case):
    def check(self, pair, report):
        failures = []
        if report["outcome"] == "optimized" and not said(report, "lstm", "gru", "recurrent", "graph break", "extern"):
            failures.append("a gain is claimed and the report does not say what became of the recurrent layers")
        return failures


class TiedWeights(Case):
    def check(self, pair, report):
        failures = []
        if pair.new.head.weight.data_ptr() != pair.new.embed.weight.data_ptr():
            failures.append("the tie between embedding and head is gone")
        for model in (pair.new, pair.eager):
            with torch.no_grad():
                model.embed.weight.mul_(1.25).add_(0.01)
        failures += self.same_on(pair, 9, lambda inputs: inputs, "after a change of embed.weight")
        return failures


class ConstantOutput(Case):
    def check(self, pair, report):
        if not said(report, "does not depend", "independent", "constant", "degenerate"):
            return ["the report does not say that the outputs do not depend on the input"]
        return []


class Interpolate(Case):
    def check(self, pair, report):
        got, want = self.both(pair, 5)
        failures = []
        for index in (0, 1):
            problem = compare_leaf(got[index], want[index], bits=True)
            if problem:
                failures.append(f"nearest mode {index}: {problem}")
        return failures


class GroupNormConvTranspose(Case):
    def check(self, pair, report):
        got, want = self.both(pair, 5)
        bias = pair.new.norm.bias[:3].view(1, 3, 1, 1)
        mine, theirs = (got[0][:, :3] - bias).abs().max(), (want[0][:, :3] - bias).abs().max()
        if not float(mine) <= max(4 * float(theirs), 1e-6):
            return [f"the constant group is off its bias by {float(mine):.3g}, eager's by {float(theirs):.3g}"]
        return []


class Nondeterministic(Case):
    deterministic = False

    def check(self, pair, report):
        failures = []
        if report["outcome"] != "eager":
            failures.append(f"outcome {report['outcome']} instead of eager")
        fresh = pair.optimized.ModelNew(*pair.source.get_init_inputs())
        counts, first = [], None
        for call in range(3):
            outputs = pair.call(fresh, pair.inputs(5), call)
            counts.append(outputs[2])
            if first is not None and torch.equal(first, outputs[0]):
                failures.append("two calls gave the same noise")
            first = outputs[0]
        if counts != [1, 2, 3]:
            failures.append(f"the call counter went {counts}")
        return failures


CASES = {
    "01_softmax_neg_inf_rows": SoftmaxNegInf,
    "05_logsumexp_overflow": LogSumExp,
    "07_welford_large_mean": Welford,
    "13_inplace_input_mutation": InplaceMutation,
    "17_batchnorm_train_buffers": BatchNormBuffers,
    "19_item_nonzero_shapes": DataDependentShapes,
    "21_topk_sort": TopkSort,
    "23_lstm_gru": Recurrent,
    "25_tied_and_unused_weights": TiedWeights,
    "27_constant_output": ConstantOutput,
    "29_interpolate_grid_sample": Interpolate,
    "31_groupnorm_convtranspose": GroupNormConvTranspose,
    "35_nondeterministic_eager": Nondeterministic,
}
