#!/usr/bin/env python3
"""Tests of check_layers.py on small trees with one fault each."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_layers  # noqa: E402

CMAKE = "kernelopt_module(base)\nkernelopt_module(ir base)\nkernelopt_module(fusion ir)\n"


class CheckLayersTest(unittest.TestCase):
    def findings(self, files, cmake=CMAKE):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "CMakeLists.txt").write_text(cmake)
            for name, text in {"base/a.h": "", "ir/b.h": '#include "kernelopt/base/a.h"\n', **files}.items():
                path = root / "src" / "kernelopt" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check(root)

    def test_downward_includes_pass_also_through_others(self):
        self.assertEqual(self.findings({"fusion/c.cc": '#include "kernelopt/base/a.h"\n#include "kernelopt/ir/b.h"\n'}), [])

    def test_upward_include(self):
        found = self.findings({"base/d.cc": '\n#include "kernelopt/ir/b.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("src/kernelopt/base/d.cc:2: base must not include kernelopt/ir/b.h", found[0])

    def test_missing_header_and_unknown_module(self):
        self.assertIn("does not exist", self.findings({"ir/d.cc": '#include "kernelopt/base/none.h"\n'})[0])
        self.assertIn("module extra is not in", self.findings({"extra/d.cc": ""})[0])

    def test_dependency_declared_later(self):
        found = self.findings({}, "kernelopt_module(base ir)\nkernelopt_module(ir)\n")
        self.assertTrue(any("base depends on ir" in line for line in found))

    def test_operator_names(self):
        for text in ('if (name == "aten.add") {}', 'auto x = "softmax";', 'call("layer_norm");', 'match("max_pool2d")'):
            found = self.findings({"fusion/e.cc": text + "\n"})
            self.assertEqual(len(found), 1, text)
            self.assertIn("operator name", found[0])
            self.assertEqual(self.findings({"ir/e.cc": text + "\n"}), [], text)

    def test_ir_reductions_and_comments_are_not_operators(self):
        text = 'X(kOnline, "online_softmax_reduce")\nf("online softmax");\n// softmax in words\n/* aten.add\n */\n'
        self.assertEqual(self.findings({"fusion/f.cc": text}), [])


if __name__ == "__main__":
    unittest.main()
