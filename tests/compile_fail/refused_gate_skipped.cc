// error: could not convert|cannot convert|cannot bind|invalid initialization
// Racing a set that gate 3 has not seen.
#include "kernelopt/gates/gates.h"

namespace kernelopt {

auto refused(StitchedSet set, const RaceObservation& race) { return Gate4::decide(std::move(set), race); }

}  // namespace kernelopt
