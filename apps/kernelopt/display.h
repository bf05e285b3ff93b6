// Display: progress on standard error. On a terminal one line that is written over, elsewhere plain lines, and not more than
// one every few seconds for the same stage.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace kernelopt {

struct ProgressState {
  std::string stage;                    // "search", "capture", …
  std::string detail;                   // "group 2 of 5"
  int candidates = 0;
  std::optional<double> best_speedup;   // of the group at hand, against its compiler baseline
  std::optional<double> seconds_left;
};

std::string progress_text(const ProgressState& state);

class Display {
 public:
  explicit Display(bool quiet = false);
  ~Display();
  void update(const ProgressState& state);
  // A line that stays.
  void line(const std::string& text);
  void clear();

 private:
  void clear_locked();

  std::mutex mutex_;  // worker and judge report from threads of their own
  bool quiet_, terminal_;
  bool shown_ = false;
  std::string last_stage_, last_text_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace kernelopt
