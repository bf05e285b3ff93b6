// GroupEvaluator: takes candidates of one group through gates 1 and 2 and races the survivors against the group's compiler
// kernels (DESIGN.md sections 6 to 8). Collects the observations; the gates decide.
#pragma once

#include <map>
#include <memory>

#include "kernelopt/gates/gates.h"
#include "kernelopt/measure/stopping.h"
#include "kernelopt/search/agents.h"
#include "kernelopt/worker/worker.h"

namespace kernelopt {

// Told of every decision and every race, from the very objects that hold them; for the journal.
class GateObserver {
 public:
  virtual ~GateObserver() = default;
  virtual void on_pass(const Gate1Pass& pass) = 0;
  virtual void on_pass(const Gate2Pass& pass) = 0;
  virtual void on_verdict(const Candidate& candidate, const Rejected& rejected) = 0;
  virtual void on_verdict(const Candidate& candidate, const Faulted& faulted) = 0;
  virtual void on_timed(const Candidate& candidate, const PairedSamples& samples) = 0;
};

// What gates 1 and 2 were shown about one candidate. The gates are pure, so a pass can be minted from it as often as one is
// needed: passes are handed on and not copied.
struct Qualified {
  Subject subject;
  Observed<CompileReport> compiled;
  GroupObservation functional;
  Result<Gate2Pass> pass() const;
};

struct GroupContext {
  GroupRef group;
  nlohmann::json baseline;   // the compiler's kernels, a candidate document
  std::string fingerprint;
  Precision precision = Precision::kAccurate;
  Change change = Change::kRewrite;
  // Cases beside ordinary inputs that a challenge is shown (docs/protocol.md, `group_inputs`).
  std::vector<std::string> adversarial;
  uint64_t seed = 0;         // of inputs and bootstrap
  StoppingRule race;
  std::optional<GpuLimits> gpu = std::nullopt;  // of a GPU
};

class GroupEvaluator final : public Evaluator {
 public:
  // Worker, judge and observer (may be null) must outlive the evaluator.
  GroupEvaluator(Worker& worker, Judge& judge, GroupContext context, GateObserver* observer = nullptr);

  Result<std::vector<Evaluation>> evaluate(const std::vector<Candidate>& candidates) override;

  // Gates 1 and 2 alone, for a candidate whose race is known: passes cannot be read back from a journal, and what lost its race
  // was shown one input. The last decision, or the pass; observed and kept in qualified() as evaluate() does.
  Result<Decision<Gate2Pass>> requalify(const Candidate& candidate);

  // Candidates that came through gates 1 and 2, by digest.
  const std::map<std::string, Qualified>& qualified() const { return qualified_; }

  // Seconds by activity: "compile", "gate 2", "race".
  const std::map<std::string, double>& seconds() const { return seconds_; }

  // Removes the exchange files of the group's inputs; they are drawn again when they are needed.
  Status drop_inputs();

  // Races the compiler's kernels against themselves: the group's own time.
  Result<RatioEstimate> time_baseline();

 private:
  struct Drawn {
    uint64_t seed;
    std::string input_case;
    nlohmann::json inputs;
  };
  // The first `seeds` ordinary inputs; with `adversarial` also one of each case that a challenge has to meet.
  Status prepare(int seeds, bool adversarial = false);
  Status draw(uint64_t seed, const std::string& input_case);
  Result<std::vector<Observed<CompileReport>>> compile(const std::vector<const Candidate*>& candidates);
  // Runs the candidate on inputs [first, last) and notes what the judge says; false where that is enough to refuse it.
  Result<bool> run_seeds(const nlohmann::json& document, size_t first, size_t last, GroupObservation& observation);
  // Gate 2 over what was seen; whether it passed.
  bool decide(const Candidate& candidate, Gate1Pass pass, const Subject& subject, const Observed<CompileReport>& compiled,
              GroupObservation observation, Evaluation& evaluation);
  Result<PairedSamples> race(const nlohmann::json& candidate, const StoppingRule& rule);
  template <typename Pass>
  bool note(const Candidate& candidate, int gate, const Decision<Pass>& decision, Evaluation& evaluation);

  Worker& worker_;
  Judge& judge_;
  GroupContext context_;
  GateObserver* observer_;
  std::vector<Drawn> inputs_;                  // ordinary ones first
  int judge_restarts_ = 0;                     // a judge that ends takes its files with it
  std::map<std::string, Qualified> qualified_;
  std::map<std::string, Rejected> refused_;    // by requalify()
  bool cooperative_hung_ = false;              // a hang costs a deadline and a worker; one tells enough of its kind
  double useless_above_ = 1;                   // upper end of the fastest interval of what passed, and 1 at most
  std::map<std::string, double> seconds_;
};

}  // namespace kernelopt
