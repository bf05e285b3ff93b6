// Observations of a right candidate, for tests: what worker and judge would report if all were well. Each test damages one
// thing. They go through the real gates; there is no other way to a pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernelopt/gates/audit.h"
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/tolerances.h"

namespace kernelopt::testing {

inline constexpr const char* kDevice = "fake device";

// A C++ kernel that gate 1 admits; `tag` makes its digest its own.
inline std::shared_ptr<const Candidate> fake_candidate(const std::string& group, const std::string& tag) {
  CandidateParts parts;
  parts.language = "cpp";
  parts.group = group;
  parts.kernels = {{"kernel0",
                    "// " + tag + "\nextern \"C\" void kernel(const float* b0, float* b1) { b1[0] = b0[0]; }\n",
                    {{"b0", DType::kFloat32, ParamRole::kIn}, {"b1", DType::kFloat32, ParamRole::kOut}}}};
  parts.launches = {{"kernel0", {"b0", "b1"}}};
  parts.plan = {{"tag", tag}};
  return std::make_shared<const Candidate>(std::move(parts));
}

inline Subject fake_subject(const std::string& group, const std::string& tag, std::string device = kDevice) {
  return {fake_candidate(group, tag), std::move(device), Precision::kAccurate, Change::kRewrite};
}

inline Observed<CompileReport> good_report() { return {CompileReport{"kernel.so", Seconds(1.5), {"kernel"}}, 1}; }

inline LeafComparison good_leaf(std::string path = "outputs/0") {
  LeafComparison leaf;
  leaf.path = std::move(path);
  leaf.dtype = DType::kFloat32;
  leaf.shape_equal = leaf.dtype_equal = leaf.nonfinite_equal = true;
  leaf.elements = 4096;
  leaf.max_abs = 1e-7;
  leaf.violations = {0, 0, 0};
  leaf.d_opt = 3e-7;
  leaf.d_ref = 2e-7;
  leaf.d_opt_rows = 3e-7;
  leaf.d_ref_rows = 3e-7;
  leaf.rms = 0.5;
  leaf.ref_error = 1e-7;
  return leaf;
}

inline Comparison good_comparison() { return {true, {good_leaf()}}; }

inline GroupRun good_group_run(uint64_t seed) {
  GroupRun run;
  run.seed = seed;
  run.runs = 2;
  run.inputs_unchanged = run.guards_intact = run.deterministic = true;
  run.comparison = good_comparison();
  return run;
}

inline GroupObservation good_group(const std::string& candidate) {
  GroupObservation observation;
  observation.candidate = candidate;
  for (uint64_t seed : {11, 12, 13}) observation.runs.push_back({good_group_run(seed), 1});
  return observation;
}

inline ModelObservation good_model(const StitchedSet& set) {
  ModelObservation observation;
  observation.set = set.digest();
  std::vector<ReplacedGroup> replaced;
  for (const Gate2Pass& member : set.members()) replaced.push_back({0, member.group(), {"op0"}});
  observation.stitched = {std::move(replaced), 1};
  for (uint64_t seed : {21, 22, 23}) observation.runs.push_back({ModelRun{seed, 1, good_comparison()}, 1});
  return observation;
}

// 40 pairs of milliseconds with a small ripple, candidate over baseline exactly `ratio`.
inline PairedSamples fake_samples(double ratio, int pairs = 40) {
  Samples baseline, candidate;
  for (int i = 0; i < pairs; ++i) {
    baseline.emplace_back(1e-3 + 1e-6 * (i % 5));
    candidate.emplace_back(ratio * (1e-3 + 1e-6 * (i % 5)));
  }
  return PairedSamples::create(std::move(baseline), std::move(candidate)).value();
}

inline RaceObservation good_race(const std::string& set, double ratio = 0.8) {
  RaceObservation observation;
  observation.set = set;
  observation.baseline_mode = "default";
  observation.warmup = tolerance::kWarmup;
  observation.repetition = tolerance::kRepetition;
  observation.samples = {fake_samples(ratio), 1};
  return observation;
}

inline AuditObservation good_audit(std::string device = kDevice) {
  AuditObservation observation;
  observation.fingerprint = std::move(device);
  for (uint64_t seed : {21, 22, 23}) {
    observation.references.push_back({ReferenceFacts{true, {}, false, false}, 1});
    observation.runs.push_back({ModelRun{seed, 1, good_comparison()}, 1});
  }
  return observation;
}

inline BaselineSound sound(std::string device = kDevice) {
  return std::get<BaselineSound>(BaselineAudit::decide(good_audit(std::move(device))));
}

inline Gate1Pass pass1(const Subject& subject) { return Gate1::decide(subject, good_report()).take(); }
inline Gate2Pass pass2(const Subject& subject) {
  Gate1Pass first = pass1(subject);
  const std::string digest = first.digest();
  return Gate2::decide(std::move(first), good_group(digest)).take();
}
inline StitchedSet stitched(const std::vector<Subject>& subjects) {
  std::vector<Gate2Pass> passes;
  for (const Subject& subject : subjects) passes.push_back(pass2(subject));
  return PassSets::stitch(std::move(passes)).value();
}
inline Gate3Set pass3(const std::vector<Subject>& subjects) {
  StitchedSet set = stitched(subjects);
  const ModelObservation observation = good_model(set);
  return Gate3::decide(std::move(set), sound(subjects[0].fingerprint), observation).take();
}
inline Gate4Set pass4(const std::vector<Subject>& subjects, double ratio = 0.8) {
  Gate3Set set = pass3(subjects);
  const RaceObservation race = good_race(set.digest(), ratio);
  return Gate4::decide(std::move(set), race).take();
}

}  // namespace kernelopt::testing
