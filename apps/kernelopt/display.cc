#include "display.h"

#include <algorithm>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kernelopt {
namespace {

constexpr std::chrono::seconds kPlainEvery{5};

std::string duration_text(double seconds) {
  const int whole = static_cast<int>(seconds + 0.5);
  return whole >= 60 ? fmt::format("{} min {:02d} s", whole / 60, whole % 60) : fmt::format("{} s", whole);
}

}  // namespace

std::string progress_text(const ProgressState& state) {
  std::string text = state.stage;
  if (!state.detail.empty()) text += ": " + state.detail;
  if (state.candidates > 0) text += fmt::format(", {} candidate{}", state.candidates, state.candidates == 1 ? "" : "s");
  if (state.best_speedup) text += fmt::format(", best {:.2f}x", *state.best_speedup);
  if (state.seconds_left) text += fmt::format(", {} left", duration_text(std::max(0.0, *state.seconds_left)));
  return text;
}

Display::Display(bool quiet) : quiet_(quiet), terminal_(::isatty(2) == 1) {}

Display::~Display() { clear(); }

void Display::update(const ProgressState& state) {
  if (quiet_) return;
  std::lock_guard lock(mutex_);
  auto text = progress_text(state);
  if (text == last_text_) return;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_) {
    // A change of stage or of what is at hand shows at once, counting does not.
    const auto stage = state.stage + state.detail;
    if (stage == last_stage_ && now - last_ < kPlainEvery) return;
    last_stage_ = stage;
    fmt::print(stderr, "{}\n", text);
  } else {
    winsize size{};
    const size_t width = ::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
    fmt::print(stderr, "\r\033[K{}", text.substr(0, width));
    shown_ = true;
  }
  std::fflush(stderr);
  last_text_ = std::move(text);
  last_ = now;
}

void Display::clear() {
  std::lock_guard lock(mutex_);
  clear_locked();
}

void Display::clear_locked() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
  std::fflush(stderr);
}

void Display::line(const std::string& text) {
  if (quiet_) return;
  std::lock_guard lock(mutex_);
  clear_locked();
  fmt::print(stderr, "{}\n", text);
  last_text_.clear();
}

}  // namespace kernelopt
