// What the refused sources want, done through the gates.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Status allowed(Journal& journal, Gate3Set set, const RaceObservation& race) {
  Decision<Gate4Set> decision = Gate4::decide(std::move(set), race);
  if (!decision.passed()) return ok_status();
  std::variant<Optimized, Matched> end = conclude(std::move(decision).take());
  if (auto* optimized = std::get_if<Optimized>(&end)) return journal.add_outcome(ModelOutcome(std::move(*optimized)));
  return journal.add_outcome(ModelOutcome(std::get<Matched>(std::move(end))));
}

Result<std::optional<RecordedOutcome>> allowed(const JournalReader& reader) { return reader.outcome(); }

}  // namespace kernelopt
