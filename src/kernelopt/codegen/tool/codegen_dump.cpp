// codegen_dump PROGRAM.json [--target HELLO.json] [--device cpu|cuda] [--group N] [--starts K] [--moves K]: candidates of a program's groups
// as JSON lines, for tools/try_kernel.py. One line a group ({"group": N, "steps": […], "names": […], …}), then one line a
// candidate.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/plan_space.h"
#include "kernelopt/plan/challenges.h"
#include "kernelopt/plan/convolution.h"
#include "kernelopt/plan/product.h"

int main(int argc, char** argv) {
  using namespace kernelopt;
  if (argc < 2) {
    std::cerr << "usage: codegen_dump PROGRAM.json [--target HELLO.json] [--threads N] [--bits N] [--device cpu|cuda] [--group N] [--starts K] [--moves K] [--bodies]\n";
    return 2;
  }
  Target target;
  target.isa = "avx512";
  target.threads = 2;
  target.vector_bits = 512;
  int only = -1, starts = 1000, moves = 0;
  bool bodies = false;
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--bodies") {
      bodies = true;
      continue;
    }
    if (i + 1 >= argc) return 2;
    const std::string text = argv[++i];
    if (option == "--target") {
      std::ifstream file(text);
      const auto read = read_target(nlohmann::json::parse(file));
      if (!read.ok()) {
        std::cerr << read.error().to_string() << "\n";
        return 2;
      }
      target = *read;
    } else if (option == "--threads") target.threads = std::atoi(text.c_str());
    else if (option == "--bits") target.vector_bits = std::atoi(text.c_str());
    else if (option == "--device") {
      if (text != "cuda") continue;
      target.kind = DeviceKind::kCuda;
      target.threads = 132;
    } else if (option == "--group") only = std::atoi(text.c_str());
    else if (option == "--starts") starts = std::atoi(text.c_str());
    else if (option == "--moves") moves = std::atoi(text.c_str());
  }
  const auto program = read_program_file(argv[1]);
  if (!program.ok()) {
    std::cerr << program.error().to_string() << "\n";
    return 2;
  }
  const Decomposition decomposition = decompose(*program, target.kind == DeviceKind::kCuda ? challenge_sets(*program) : std::vector<std::vector<int>>{});
  for (size_t g = 0; g < decomposition.groups.size(); ++g) {
    if (only >= 0 && static_cast<size_t>(only) != g) continue;
    const Group& group = decomposition.groups[g];
    nlohmann::json header{{"group", g}, {"names", group.names}, {"inputs", group.inputs}, {"outputs", group.outputs}, {"internals", group.internals}};
    header["steps"] = nlohmann::json::array();
    for (int step : group.steps) header["steps"].push_back(program->steps[static_cast<size_t>(step)].name);
    if (bodies) {
      std::string text;
      for (const Body* body : group_bodies(*program, group)) text += print(*body) + "\n";
      header["bodies"] = text;
    }
    std::vector<KernelPlan> plans;
    if (group.challenge) {
      if (const auto product = group_product(*program, group))
        for (const auto& choice : product_starts(*product)) plans.emplace_back().product = choice;
      if (const auto convolution = group_convolution(*program, group))
        for (const auto& choice : convolution_starts(*convolution)) plans.emplace_back().convolution = choice;
    }
    if (!plans.empty()) {
      header["starts"] = plans.size();
      std::cout << header.dump() << "\n";
      for (size_t p = 0; p < plans.size() && p < static_cast<size_t>(starts); ++p) {
        const KernelPlan& plan = plans[p];
        nlohmann::json line{{"group", g}, {"kind", "challenge"}, {"description", plan_to_json(plan).dump()}};
        const auto candidate = print_triton(*program, group, plan, target);
        if (candidate.ok()) line["candidate"] = candidate->to_json();
        else line["refused"] = candidate.error().to_string();
        std::cout << line.dump() << "\n";
      }
      continue;
    }
    const auto space = PlanSpace::create(*program, group, target);
    if (!space.ok()) {
      header["refused"] = space.error().to_string();
      std::cout << header.dump() << "\n";
      continue;
    }
    std::vector<Move> shown = space->starts();
    if (shown.size() > static_cast<size_t>(starts)) shown.resize(static_cast<size_t>(starts));
    const auto more = moves > 0 && !shown.empty() ? space->moves(shown[0].plan) : std::vector<Move>{};
    header["starts"] = shown.size();
    header["moves"] = more.size();
    std::cout << header.dump() << "\n";
    for (size_t m = 0; m < more.size() && m < static_cast<size_t>(moves); ++m) shown.push_back(more[m]);
    for (const auto& move : shown) {
      nlohmann::json line{{"group", g}, {"kind", transform_name(move.kind)}, {"description", move.description}};
      const auto candidate = target.kind == DeviceKind::kCuda ? print_triton(*program, group, move.plan, target) : print_cpp(*program, group, move.plan, target);
      if (candidate.ok()) line["candidate"] = candidate->to_json();
      else line["refused"] = candidate.error().to_string();
      std::cout << line.dump() << "\n";
    }
  }
  return 0;
}
