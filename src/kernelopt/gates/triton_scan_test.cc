#include <gtest/gtest.h>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/gates/static_scan.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

KernelSource kernel(const std::string& body, const std::string& top = "") {
  return {"kernel0", "import triton\nimport triton.language as tl\n" + top + "\n@triton.jit\ndef kernel0(b0, b1):\n" + body, {}};
}

TEST(TritonScanTest, AdmitsAPlainKernel) {
  const auto finding = scan_triton_kernel(kernel("    x = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]\n"
                                                 "    t0 = tl.load(b0 + x, mask=x < 5, other=0).to(tl.float32)\n"
                                                 "    tl.store(b1 + x, tl.exp(t0 * 1.5e-05), mask=x < 5)\n"));
  EXPECT_FALSE(finding) << finding->token << ": " << finding->why;
}

TEST(TritonScanTest, RefusesWhatIsNoKernel) {
  const std::string fine = "    tl.store(b1, tl.load(b0))\n";
  EXPECT_TRUE(scan_triton_kernel(kernel(fine, "import os\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel(fine, "from triton import runtime\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel(fine, "x = 5\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel(fine, "def helper(a):\n    return a\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel(fine, "@triton.autotune\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    eval('1')\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    b0.__class__\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    tl.inline_asm_elementwise('ret;', '=r', [b0], tl.int32, True, 1)\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    tl.core.builtins\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    import os\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    torch.zeros(1)\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    tl = b0\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    f = lambda: 1\n")));
  EXPECT_TRUE(scan_triton_kernel(kernel("    x = b0; tl.store(b1, x)\n")));
  EXPECT_TRUE(scan_triton_kernel({"kernel1", kernel(fine).source, {}}));
}

TEST(TritonScanTest, AdmitsEverythingThatIsPrinted) {
  Target target;
  target.kind = DeviceKind::kCuda;
  target.threads = 132;
  int printed = 0;
  auto builders = testing::sample_programs();
  builders.push_back(testing::normalized_exponentials(3, 40000, 1));  // rows that several programs share
  for (const auto& builder : builders) {
    const auto program = builder.program();
    ASSERT_TRUE(program.ok()) << builder.name();
    const auto space = PlanSpace::create(*program, builder.group(), target);
    if (!space.ok()) continue;
    for (const Move& move : space->starts()) {
      const auto candidate = print_triton(*program, builder.group(), move.plan, target);
      if (!candidate.ok()) continue;
      for (const KernelSource& source : candidate->parts().kernels) {
        ++printed;
        const auto finding = scan_triton_kernel(source);
        ASSERT_FALSE(finding) << builder.name() << ", " << move.description << ", line " << finding->line << ": " << finding->token << ": "
                              << finding->why << "\n" << source.source;
      }
    }
  }
  EXPECT_GT(printed, 20);
}

}  // namespace
}  // namespace kernelopt
