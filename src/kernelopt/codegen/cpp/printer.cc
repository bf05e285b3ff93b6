// print_cpp: a lowered kernel as one C++ source with one function and one parallel region.
#include "kernelopt/codegen/printer.h"

#include <algorithm>

#include "kernelopt/base/check.h"
#include "kernelopt/codegen/canonical_names.h"
#include "kernelopt/codegen/cpp/nest_printer.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

using namespace cpp;

constexpr int64_t kStackBytes = 192 << 10;  // local arrays beyond this live in scratch memory

class KernelPrinter {
 public:
  KernelPrinter(const Group& group, const LoweredKernel& kernel) : group_(group), kernel_(kernel) {}

  Result<CandidateParts> print() {
    KO_RETURN_IF_ERROR(place_buffers());
    std::string body;
    for (size_t n = 0; n < kernel_.nests.size(); ++n) {
      KO_TRY(const std::string nest, print_nest(n));
      body += nest;
      if (n + 1 < kernel_.nests.size() && kernel_.threads > 1) body += "#pragma omp barrier\n";
    }
    if (text_.streams) body += "  _mm_sfence();\n";
    std::string source = cpp_prelude(kernel_.lanes, text_.needs);
    source += "static __attribute__((noinline)) void run(const int tid, const int nt" + (declared_.empty() ? std::string() : ", " + declared_) +
              (text_.may_fail ? ", int& failed_out" : "") + ") {\n";
    source += locals_;
    if (text_.may_fail) source += "  int failed = 0;\n";
    source += "  (void)tid; (void)nt;\n";
    source += body;
    if (text_.may_fail) source += "  if (failed) {\n#pragma omp atomic write\n    failed_out = 1;\n  }\n";
    source += "}\n";
    source += "extern \"C\" void kernel(" + signature_ + ") {\n";
    if (text_.may_fail) source += "  int failed = 0;\n";
    const std::string arguments = passed_ + (text_.may_fail ? (passed_.empty() ? "failed" : ", failed") : "");
    const std::string rest = arguments.empty() ? "" : ", " + arguments;
    if (kernel_.threads > 1) {
      source += "#pragma omp parallel num_threads(" + std::to_string(kernel_.threads) + ")\n";
      source += "  run(omp_get_thread_num(), omp_get_num_threads()" + rest + ");\n";
    } else {
      source += "  run(0, 1" + rest + ");\n";
    }
    if (text_.may_fail) source += "  if (failed) throw std::runtime_error(\"index out of bounds\");\n";
    source += "}\n";
    parts_.language = "cpp";
    parts_.group = group_.digest;
    KernelSource kernel;
    kernel.name = "kernel";
    kernel.source = std::move(source);
    kernel.params = params_;
    parts_.kernels.push_back(std::move(kernel));
    Launch launch;
    launch.kernel = "kernel";
    for (const auto& param : params_) launch.args.push_back(param.name);
    parts_.launches.push_back(std::move(launch));
    parts_.threads = kernel_.threads;
    return parts_;
  }

 private:
  Status place_buffers() {
    text_.kernel = &kernel_;
    const auto canonical = canonical_names(group_);
    std::vector<std::pair<size_t, std::string>> memory;
    std::vector<std::string> scratch, locals;
    for (const auto& [name, buffer] : kernel_.buffers) {
      switch (buffer.place) {
        case Place::kMemory: {
          const auto at = canonical.find(name);
          if (at == canonical.end()) return Error(ErrorCode::kInternal, "buffer " + name + " has no canonical name");
          memory.emplace_back(std::stoul(at->second.substr(1)), name);
          text_.names[name] = {at->second};
          break;
        }
        case Place::kScratch: scratch.push_back(name); break;
        case Place::kLocal: locals.push_back(name); break;
        case Place::kRegister: text_.names[name] = {"r" + std::to_string(text_.next_value++)}; break;
      }
    }
    std::sort(memory.begin(), memory.end());
    for (const auto& [number, name] : memory) {
      const LoweredBuffer& buffer = kernel_.buffers.at(name);
      const ParamRole role = !buffer.written ? ParamRole::kIn : buffer.read ? ParamRole::kInOut : ParamRole::kOut;
      add_param(text_.names[name].pointer, buffer.dtype, role, buffer.aliased);
    }
    for (const auto& name : scratch) add_scratch(name, kernel_.buffers.at(name).dtype, kernel_.buffers.at(name).elements, false);
    int64_t stack = 0;
    for (const auto& name : locals) {
      const LoweredBuffer& buffer = kernel_.buffers.at(name);
      const LoweredNest& nest = kernel_.nests[buffer.nest];
      const int64_t lanes = nest.axis == VectorAxis::kShared ? static_cast<int64_t>(nest.unroll) * kernel_.lanes : 1;
      const int64_t elements = (buffer.elements * lanes + 63) / 64 * 64;
      const DType held = compute_dtype(buffer.dtype);
      const int64_t bytes = elements * dtype_bytes(held);
      if (stack + bytes <= kStackBytes) {
        stack += bytes;
        const std::string pointer = "loc" + std::to_string(text_.next_value++);
        text_.names[name] = {pointer};
        locals_ += std::string("  alignas(64) ") + memory_type(held) + " " + pointer + "[" + std::to_string(elements) + "];\n";
      } else {
        add_scratch(name, held, elements * kernel_.threads, true);
        const std::string pointer = "loc" + std::to_string(text_.next_value++);
        locals_ += std::string("  ") + memory_type(held) + "* const __restrict__ " + pointer + " = " + text_.names[name].pointer + " + tid * " +
                   std::to_string(elements) + "LL;\n";
        text_.names[name] = {pointer};
      }
    }
    return ok_status();
  }

  void add_param(const std::string& name, DType dtype, ParamRole role, bool aliased) {
    params_.push_back({name, dtype, role});
    const std::string type = std::string(role == ParamRole::kIn ? "const " : "") + memory_type(dtype) + "*";
    signature_ += (signature_.empty() ? "" : ", ") + type + " " + name;
    declared_ += (declared_.empty() ? "" : ", ") + type + (aliased ? " const " : " const __restrict__ ") + name;
    passed_ += (passed_.empty() ? "" : ", ") + name;
  }

  void add_scratch(const std::string& buffer, DType dtype, int64_t elements, bool) {
    const std::string name = "s" + std::to_string(parts_.scratch.size());
    parts_.scratch.push_back({name, dtype, elements, false});
    text_.names[buffer] = {name};
    add_param(name, dtype, ParamRole::kScratch, false);
  }

  Result<std::string> print_nest(size_t number) {
    const LoweredNest& nest = kernel_.nests[number];
    NestPrinter printer(text_, nest, number);
    std::string out = "  {  // nest " + std::to_string(number) + "\n";
    if (nest.shared.empty()) {
      KO_TRY(const std::string work, printer.print(Instance{}, 3));
      return out + "    if (tid == 0) {\n" + work + "    }\n  }\n";
    }
    if (nest.plan.transpose) return print_squares(number);
    const bool lanes_shared = nest.axis == VectorAxis::kShared;
    std::vector<int64_t> trips;
    for (const auto& v : nest.shared) trips.push_back(v.extent);
    const int64_t extent = trips.back();
    const int64_t copies = std::max<int64_t>(1, std::min<int64_t>(nest.unroll, (extent + kernel_.lanes - 1) / kernel_.lanes));
    const int64_t tile = copies * kernel_.lanes, full = extent / tile, rest = extent % tile;
    if (lanes_shared) trips.back() = full + (rest > 0);
    int64_t total = 1;
    for (int64_t t : trips) total *= t;
    const size_t lane_loop = nest.shared.size() - 1;
    const auto counter = [&](size_t k) { return lanes_shared && k == lane_loop ? nest.shared[k].name + "_t" : nest.shared[k].name; };
    // The innermost loop that runs at all; loops of one iteration cost nothing.
    size_t last = lane_loop;
    while (last > 0 && trips[last] == 1) --last;
    out += "    const int64_t total = " + std::to_string(total) + "LL, end = total * (tid + 1) / nt;\n";
    out += "    int64_t at = total * tid / nt;\n";
    int64_t below = 1;
    for (size_t k = nest.shared.size(); k-- > 0;) {
      if (k > last) {
        out += "    const int64_t " + counter(k) + " = 0;\n";
        continue;
      }
      std::string start = below == 1 ? "at" : "at / " + std::to_string(below) + "LL";
      if (k > 0) start = "(" + start + ") % " + std::to_string(trips[k]) + "LL";
      out += "    int64_t " + counter(k) + " = " + start + ";\n";
      below *= trips[k];
    }
    const std::string inner = counter(last);
    out += "    while (at < end) {\n";
    out += "      const int64_t stop = imin(" + std::to_string(trips[last]) + "LL, " + inner + " + (end - at));\n";
    out += "      at += stop - " + inner + ";\n";
    const auto loop = [&](const std::string& until, const std::string& lane_start, const std::string& work) {
      std::string text = "      for (; " + inner + " < " + until + "; ++" + inner + ") {\n";
      if (!lane_start.empty()) text += "        const int64_t " + nest.shared[lane_loop].name + " = " + lane_start + ";\n";
      return text + work + "      }\n";
    };
    if (!lanes_shared) {
      KO_TRY(const std::string work, printer.print(Instance{}, 4));
      out += loop("stop", "", work);
    } else {
      const Instance whole{static_cast<size_t>(copies), 0, false};
      const Instance part{static_cast<size_t>((rest + kernel_.lanes - 1) / kernel_.lanes), static_cast<int>(rest % kernel_.lanes), false};
      if (full > 0) {
        KO_TRY(const std::string work, printer.print(whole, 4));
        if (last == lane_loop) out += loop("imin(stop, " + std::to_string(full) + "LL)", counter(lane_loop) + " * " + std::to_string(tile), work);
        else out += loop("stop", "0", work);
      }
      if (rest > 0) {
        KO_TRY(const std::string work, printer.print(part, 4));
        out += loop("stop", std::to_string(full * tile), work);
      }
    }
    out += "      " + inner + " = 0;\n";
    std::string closing;
    for (size_t k = last; k-- > 0;) {
      out += "      if (++" + counter(k) + " == " + std::to_string(trips[k]) + "LL) {\n        " + counter(k) + " = 0;\n";
      closing += "      }\n";
    }
    return out + closing + "    }\n  }\n";
  }

  // Square tiles over the last two shared loops: lanes along the last, copies along the one before.
  Result<std::string> print_squares(size_t number) {
    const LoweredNest& nest = kernel_.nests[number];
    NestPrinter printer(text_, nest, number);
    const int64_t lanes = kernel_.lanes;
    const size_t lane_loop = nest.shared.size() - 1, row_loop = lane_loop - 1;
    const std::string &lane = nest.shared[lane_loop].name, &row = nest.shared[row_loop].name;
    std::vector<int64_t> trips;
    for (const auto& v : nest.shared) trips.push_back(v.extent);
    const int64_t row_full = trips[row_loop] / lanes, row_rest = trips[row_loop] % lanes;
    const int64_t lane_full = trips[lane_loop] / lanes, lane_rest = trips[lane_loop] % lanes;
    trips[row_loop] = row_full + (row_rest > 0);
    trips[lane_loop] = lane_full + (lane_rest > 0);
    int64_t total = 1;
    for (int64_t t : trips) total *= t;
    std::string out = "  {  // nest " + std::to_string(number) + "\n";
    out += "    const int64_t total = " + std::to_string(total) + "LL, end = total * (tid + 1) / nt;\n";
    out += "    for (int64_t at = total * tid / nt; at < end; ++at) {\n      int64_t rest = at;\n";
    for (size_t k = nest.shared.size(); k-- > 0;) {
      const bool tiled = k == lane_loop || k == row_loop;
      out += "      const int64_t " + nest.shared[k].name + " = rest % " + std::to_string(trips[k]) + "LL" + (tiled ? " * " + std::to_string(lanes) : "") + ";\n";
      if (k > 0) out += "      rest /= " + std::to_string(trips[k]) + "LL;\n";
    }
    std::string separator = "      ";
    for (const bool whole_rows : {true, false})
      for (const bool whole_lanes : {true, false}) {
        if ((whole_rows ? row_full : row_rest) == 0 || (whole_lanes ? lane_full : lane_rest) == 0) continue;
        Instance tile;
        tile.copies = static_cast<size_t>(whole_rows ? lanes : row_rest);
        tile.tail = whole_lanes ? 0 : static_cast<int>(lane_rest);
        tile.along = row;
        KO_TRY(const std::string work, printer.print(tile, 4));
        const std::string condition = row + (whole_rows ? " < " : " >= ") + std::to_string(row_full * lanes) + " && " + lane + (whole_lanes ? " < " : " >= ") +
                                      std::to_string(lane_full * lanes);
        out += separator + "if (" + condition + ") {\n" + work + "      }";
        separator = " else ";
      }
    return out + "\n    }\n  }\n";
  }

  const Group& group_;
  const LoweredKernel& kernel_;
  KernelText text_;
  CandidateParts parts_;
  std::vector<KernelParam> params_;
  std::string signature_, declared_, passed_, locals_;
};

}  // namespace

Result<Candidate> print_cpp(const Program& program, const Group& group, const KernelPlan& plan, const Target&) {
  KO_TRY(const LoweredKernel kernel, lower(program, group, plan));
  KernelPrinter printer(group, kernel);
  KO_TRY(CandidateParts parts, printer.print());
  parts.plan = plan_to_json(plan);
  return Candidate(std::move(parts));
}

}  // namespace kernelopt
