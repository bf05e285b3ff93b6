// Answers of language models, read strictly (docs/llm.reply.schema.json). Anything but the one JSON object of the schema is
// refused with a reason that can go back to the model. Passing here means well-formed, nothing more: the gates judge.
#pragma once

#include <string>
#include <vector>

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/fusion/group.h"

namespace kernelopt {

// What a planner answers: a numbered move of the prompt, or (GPUs only) a strategy in words for the executor.
struct PlannedStep {
  std::optional<int> move;  // 1 to `moves`
  std::string strategy;     // empty with a move
};
// kCandidate with the reason. At most `most` steps are admitted; without `code`, moves only.
Result<std::vector<PlannedStep>> read_planner_reply(const std::string& text, int moves, int most, bool code);

// A buffer that the kernels of a group may touch.
struct GroupBuffer {
  std::string name;  // canonical
  DType dtype = DType::kFloat32;
  std::vector<int64_t> size, stride;
  int64_t offset = 0, elements = 0;  // of the storage
  bool read = false, written = false;
};
std::vector<GroupBuffer> group_buffers(const Program& program, const Group& group);

// What an executor answers: Triton kernels and a launch list over the group's buffers and its own scratch. Roles and types
// of parameters follow from the launch list; the model does not get to state them.
Result<Candidate> read_executor_reply(const std::string& text, const std::string& group_digest,
                                      const std::vector<GroupBuffer>& buffers, const std::string& strategy);

}  // namespace kernelopt
