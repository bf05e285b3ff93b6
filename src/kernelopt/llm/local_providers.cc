#include "kernelopt/llm/local_providers.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernelopt/base/digest.h"
#include "kernelopt/worker/interrupt.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr size_t kMostBytes = 4u << 20;
constexpr std::chrono::milliseconds kLook{200};

ModelReply counted(const ModelRequest& request, std::string text) {
  ModelReply reply;
  reply.input_tokens = estimated_tokens(request.system.size() + request.prompt.size());
  reply.output_tokens = estimated_tokens(text.size());
  reply.text = std::move(text);
  return reply;
}

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  std::stringstream buffer;
  buffer << stream.rdbuf();
  return buffer.str();
}

Status write_whole(const fs::path& path, const std::string& text) {
  const fs::path aside = path.string() + ".new";
  {
    std::ofstream stream(aside, std::ios::binary);
    stream << text;
    stream.flush();
    if (!stream) return Error(ErrorCode::kIo, "cannot write " + aside.string());
  }
  std::error_code error;
  fs::rename(aside, path, error);
  if (error) return Error(ErrorCode::kIo, "cannot write " + path.string() + ": " + error.message());
  return ok_status();
}

class Command final : public Provider {
 public:
  explicit Command(std::string command) : command_(std::move(command)) {}
  // The program alone: arguments may hold what a report should not.
  std::string name() const override { return "command:" + command_.substr(0, command_.find(' ')); }

  ProviderAnswer ask(const ModelRequest& request) override {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0) return ProviderAnswer::failure(Error(ErrorCode::kEnvironment, "no pipe is left"), false);
    if (::pipe2(out, O_CLOEXEC) != 0) {
      ::close(in[0]), ::close(in[1]);
      return ProviderAnswer::failure(Error(ErrorCode::kEnvironment, "no pipe is left"), false);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::signal(SIGPIPE, SIG_DFL);
      ::execl("/bin/sh", "sh", "-c", command_.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(in[0]), ::close(out[1]);
    if (child < 0) {
      ::close(in[1]), ::close(out[0]);
      return ProviderAnswer::failure(Error(ErrorCode::kEnvironment, "the command cannot be started"), false);
    }
    ::setpgid(child, child);
    const auto deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(request.timeout_seconds));
    const std::string input = request.system + "\n\n" + request.prompt;
    std::string output;
    auto failure = talk(in[1], out[0], input, output, deadline);
    ::close(out[0]);
    int status = 0;
    // It may close its output and go on; it gets no longer than the deadline for that.
    while (!failure && ::waitpid(child, &status, WNOHANG) == 0) {
      if (interrupted()) failure = Error(ErrorCode::kInterrupted, "interrupted");
      else if (SteadyClock::now() >= deadline) failure = Error(ErrorCode::kTimeout, "no answer in time");
      else std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(-child, SIGKILL);
    if (failure) {
      ::waitpid(child, &status, 0);
      const bool retry = failure->code() == ErrorCode::kTimeout;
      return ProviderAnswer::failure(std::move(*failure), retry);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      const bool missing = WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126);
      return ProviderAnswer::failure(
          Error(missing ? ErrorCode::kEnvironment : ErrorCode::kIo,
                WIFEXITED(status) ? fmt::format("the command ended with status {}", WEXITSTATUS(status))
                                  : fmt::format("the command was killed by signal {}", WTERMSIG(status))),
          !missing);
    }
    return ProviderAnswer::of(counted(request, std::move(output)));
  }

 private:
  // Writes and reads at once: a command may answer before it has read everything. Closes `to`.
  static std::optional<Error> talk(int to, int from, const std::string& input, std::string& output, SteadyClock::time_point deadline) {
    ::fcntl(to, F_SETFL, O_NONBLOCK);
    sigset_t pipe_signal, before;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    size_t sent = 0;
    std::optional<Error> failure;
    const auto stop_sending = [&] {
      if (to >= 0) ::close(to);
      to = -1;
    };
    for (;;) {
      if (interrupted()) failure = Error(ErrorCode::kInterrupted, "interrupted");
      else if (SteadyClock::now() >= deadline) failure = Error(ErrorCode::kTimeout, "no answer in time");
      if (failure) break;
      pollfd ends[2] = {{from, POLLIN, 0}, {to, POLLOUT, 0}};
      if (::poll(ends, to >= 0 ? 2 : 1, static_cast<int>(kLook.count())) <= 0) continue;
      if (to >= 0 && ends[1].revents) {
        const ssize_t wrote = ::write(to, input.data() + sent, input.size() - sent);
        if (wrote > 0) sent += static_cast<size_t>(wrote);
        if ((wrote < 0 && errno != EAGAIN && errno != EINTR) || sent == input.size()) stop_sending();
      }
      if (ends[0].revents) {
        char buffer[4096];
        const ssize_t got = ::read(from, buffer, sizeof buffer);
        if (got == 0) break;
        if (got > 0) output.append(buffer, static_cast<size_t>(got));
        if (output.size() > kMostBytes) failure = Error(ErrorCode::kIo, "the answer is too long");
      }
    }
    stop_sending();
    // A broken pipe is no reason to die; take the pending signal away before the mask goes back.
    const timespec none{};
    while (::sigtimedwait(&pipe_signal, nullptr, &none) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failure;
  }

  std::string command_;
};

class Mailbox final : public Provider {
 public:
  explicit Mailbox(fs::path folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "mailbox"; }
  ProviderAnswer ask(const ModelRequest& request) override {
    std::error_code error;
    fs::create_directories(folder_ / "prompts", error);
    fs::create_directories(folder_ / "answers", error);
    const auto id = request.purpose + "-" + request_digest(request).substr(0, 16);
    const auto prompt = folder_ / "prompts" / (id + ".md"), answer = folder_ / "answers" / (id + ".md");
    if (!fs::exists(prompt)) {
      auto written = write_whole(prompt, request.system + "\n\n" + request.prompt);
      if (!written.ok()) return ProviderAnswer::failure(std::move(written).error(), false);
    }
    const auto deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(request.timeout_seconds));
    for (;;) {
      if (auto text = read_file(answer)) return ProviderAnswer::of(counted(request, std::move(*text)));
      if (interrupted()) return ProviderAnswer::failure(Error(ErrorCode::kInterrupted, "interrupted"), false);
      if (SteadyClock::now() >= deadline)
        return ProviderAnswer::failure(Error(ErrorCode::kTimeout, "no answer in the mailbox in time"), false);
      std::this_thread::sleep_for(kLook);
    }
  }

 private:
  fs::path folder_;
};

class Replay final : public Provider {
 public:
  explicit Replay(std::map<std::string, std::deque<ModelReply>> replies) : replies_(std::move(replies)) {}
  std::string name() const override { return "replay"; }
  ProviderAnswer ask(const ModelRequest& request) override {
    const std::lock_guard lock(mutex_);
    auto& queue = replies_[request_digest(request)];
    if (queue.empty()) return ProviderAnswer::failure(Error(ErrorCode::kBadInput, "the recording has no answer to this"), false);
    auto reply = queue.front();
    queue.pop_front();
    return ProviderAnswer::of(std::move(reply));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::deque<ModelReply>> replies_;
};

class Resuming final : public Provider {
 public:
  Resuming(std::shared_ptr<Provider> inner, std::unique_ptr<Provider> recording)
      : inner_(std::move(inner)), recording_(std::move(recording)) {}
  std::string name() const override { return inner_->name(); }
  ProviderAnswer ask(const ModelRequest& request) override {
    if (recording_) {
      auto known = recording_->ask(request);
      if (known.reply) {
        known.reply->recorded = true;
        return known;
      }
    }
    return inner_->ask(request);
  }

 private:
  std::shared_ptr<Provider> inner_;
  std::unique_ptr<Provider> recording_;
};

}  // namespace

std::unique_ptr<Provider> resuming_provider(std::shared_ptr<Provider> inner, const fs::path& file) {
  auto recording = replay_provider(file);
  return std::make_unique<Resuming>(std::move(inner), recording.ok() ? std::move(recording).value() : nullptr);
}

std::string request_digest(const ModelRequest& request) {
  return sha256_hex(request.purpose + "\n" + request.system + "\n" + request.prompt);
}

std::unique_ptr<Provider> command_provider(std::string command) { return std::make_unique<Command>(std::move(command)); }
std::unique_ptr<Provider> mailbox_provider(fs::path folder) { return std::make_unique<Mailbox>(std::move(folder)); }

Result<std::vector<MailboxPrompt>> open_prompts(const fs::path& folder) {
  if (!fs::is_directory(folder)) return Error(ErrorCode::kBadInput, "no such mailbox: " + folder.string());
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "prompts", error))
    if (entry.path().extension() == ".md" && !fs::exists(folder / "answers" / entry.path().filename()))
      found.emplace_back(entry.last_write_time(error), entry.path());
  std::sort(found.begin(), found.end());
  std::vector<MailboxPrompt> prompts;
  for (const auto& [time, path] : found)
    if (auto text = read_file(path)) prompts.push_back({path.stem().string(), std::move(*text)});
  return prompts;
}

Status answer_prompt(const fs::path& folder, const std::string& id, const std::string& text) {
  KO_TRY(auto prompts, open_prompts(folder));
  std::string chosen = id;
  if (chosen.empty()) {
    if (prompts.size() != 1) return Error(ErrorCode::kBadInput, fmt::format("{} prompts are open; name one", prompts.size()));
    chosen = prompts[0].id;
  }
  if (std::none_of(prompts.begin(), prompts.end(), [&](const auto& prompt) { return prompt.id == chosen; }))
    return Error(ErrorCode::kBadInput, "no open prompt " + chosen);
  std::error_code error;
  fs::create_directories(folder / "answers", error);
  return write_whole(folder / "answers" / (chosen + ".md"), text);
}

Result<std::unique_ptr<Provider>> replay_provider(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) return Error(ErrorCode::kBadInput, "cannot read " + file.string());
  std::map<std::string, std::deque<ModelReply>> replies;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const auto row = json::parse(line, nullptr, false);
    try {
      if (row.is_discarded()) throw std::invalid_argument("not JSON");
      ModelReply reply;
      reply.text = row.at("reply");
      reply.truncated = row.at("truncated");
      reply.input_tokens = row.at("input_tokens");
      reply.output_tokens = row.at("output_tokens");
      replies[row.at("digest").get<std::string>()].push_back(std::move(reply));
    } catch (const std::exception&) {
      return Error(ErrorCode::kBadInput, fmt::format("{}:{}: not a recorded answer", file.string(), number));
    }
  }
  return std::unique_ptr<Provider>(std::make_unique<Replay>(std::move(replies)));
}

}  // namespace kernelopt
