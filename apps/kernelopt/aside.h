// Aside: work that one process does while the caller has the other one busy. One thread for the whole run, because a child
// process dies with the thread that started it (PR_SET_PDEATHSIG).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace kernelopt {

class Aside {
 public:
  Aside() : thread_([this] { loop(); }) {}
  ~Aside() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Runs `aside` on the thread and `here` on the caller's, and returns when both have ended. Neither may throw.
  template <typename A, typename B>
  auto both(A aside, B here) {
    std::optional<decltype(aside())> first;
    std::promise<double> done;
    auto busy = done.get_future();
    post([&] {
      const auto begin = Clock::now();
      first.emplace(aside());
      done.set_value(since(begin));
    });
    auto second = here();
    const auto begin = Clock::now();
    const double seconds = busy.get();
    overlap_ += std::max(0.0, seconds - since(begin));
    return std::pair(std::move(*first), std::move(second));
  }

  // Seconds in which both sides worked.
  double overlap() const { return overlap_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  void post(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
  }

  void loop() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return work_ || ended_; });
        if (!work_) return;
        work = std::move(work_);
        work_ = nullptr;
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool ended_ = false;
  double overlap_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kernelopt
