#include "kernelopt/search/strategy_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "kernelopt/base/digest.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

void StrategyMemory::learn(const Attempt& attempt, Bottleneck bottleneck) {
  const auto state = attempt.evaluation.state;
  if (state == AttemptState::kError || state == AttemptState::kDuplicate) return;
  if (state != AttemptState::kRejected && !attempt.measured()) return;
  const double speedup = attempt.measured() && attempt.ratio() > 0 ? attempt.parent_ratio.value_or(1.0) / attempt.ratio() : 0;
  const std::string kind = attempt.brief.empty() ? transform_name(attempt.kind) : "written by a model";
  auto& record = strategies_[{bottleneck_name(bottleneck), kind}];
  ++record.tried;
  if (speedup >= rules_.speedup) ++record.succeeded;
  if (speedup > 1) record.log_gain += std::log(speedup);
  if (speedup > 0 && attempt.brief.empty()) model_.learn(plan_features(attempt.plan, bottleneck), std::log(attempt.ratio()));
  if (speedup >= rules_.speedup || (speedup > 0 && speedup * rules_.slowdown <= 1)) {
    experiences_.push_back({bottleneck_name(bottleneck), kind, attempt.description, speedup});
    while (experiences_.size() > rules_.length) experiences_.pop_front();
  }
}

void StrategyMemory::merge(const StrategyMemory& newer) {
  for (const auto& experience : newer.experiences_) experiences_.push_back(experience);
  while (experiences_.size() > rules_.length) experiences_.pop_front();
  for (const auto& [key, record] : newer.strategies_) {
    auto& mine = strategies_[key];
    mine.tried += record.tried;
    mine.succeeded += record.succeeded;
    mine.log_gain += record.log_gain;
  }
  model_.merge(newer.model_);
}

StrategyRecord StrategyMemory::strategy(Bottleneck bottleneck, TransformKind kind) const {
  const auto found = strategies_.find({bottleneck_name(bottleneck), transform_name(kind)});
  return found == strategies_.end() ? StrategyRecord{} : found->second;
}

json StrategyMemory::to_json() const {
  json experiences = json::array(), strategies = json::array();
  for (const auto& e : experiences_)
    experiences.push_back({{"bottleneck", e.bottleneck}, {"kind", e.kind}, {"description", e.description}, {"speedup", e.speedup}});
  for (const auto& [key, record] : strategies_)
    strategies.push_back({{"bottleneck", key.first}, {"kind", key.second}, {"tried", record.tried},
                          {"succeeded", record.succeeded}, {"log_gain", record.log_gain}, {"avoid", avoided(record)}});
  return {{"format", "kernelopt.memory"}, {"version", 1}, {"experiences", experiences}, {"strategies", strategies},
          {"model", model_.to_json()}};
}

Result<StrategyMemory> StrategyMemory::from_json(const json& document, MemoryRules rules) {
  const Error wrong(ErrorCode::kBadInput, "not a memory of this version");
  if (!document.is_object() || document.value("format", json()) != "kernelopt.memory" || document.value("version", json()) != 1)
    return wrong;
  StrategyMemory memory(rules);
  try {
    for (const auto& e : document.at("experiences"))
      memory.experiences_.push_back({e.at("bottleneck"), e.at("kind"), e.at("description"), e.at("speedup")});
    for (const auto& s : document.at("strategies"))
      memory.strategies_[{s.at("bottleneck"), s.at("kind")}] = {s.at("tried"), s.at("succeeded"), s.at("log_gain")};
    auto model = CostModel::from_json(document.at("model"));
    // Of another version: forgotten, the rest stays.
    if (model.ok()) memory.model_ = std::move(model).value();
  } catch (const json::exception&) {
    return wrong;
  }
  while (memory.experiences_.size() > rules.length) memory.experiences_.pop_front();
  return memory;
}

std::string StrategyMemory::text() const {
  std::string text = fmt::format("last {} experiences, oldest first\n", experiences_.size());
  for (const auto& e : experiences_)
    text += fmt::format("  {:>6.2f}x  {:<14} {:<24} {}\n", e.speedup, e.bottleneck, e.kind, e.description);
  text += "strategies: times tried, times that gained\n";
  for (const auto& [key, record] : strategies_)
    text += fmt::format("  {:<14} {:<24} {:>4} {:>4}{}\n", key.first, key.second, record.tried, record.succeeded,
                        avoided(record) ? "  AVOID" : "");
  return text;
}

fs::path MemoryStore::file(const std::string& fingerprint) const {
  return folder_ / (sha256_hex(fingerprint).substr(0, 16) + ".json");
}

namespace {

std::optional<json> read_document(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  std::stringstream buffer;
  buffer << stream.rdbuf();
  return json::parse(buffer.str(), nullptr, false);
}

}  // namespace

StrategyMemory MemoryStore::load(const std::string& fingerprint, std::string* note) const {
  const auto document = read_document(file(fingerprint));
  if (!document) return StrategyMemory();
  auto memory = document->is_object() ? StrategyMemory::from_json(document->value("memory", json()))
                                      : Result<StrategyMemory>(Error(ErrorCode::kBadInput, "not JSON"));
  if (memory.ok()) return std::move(memory).value();
  if (note) *note = fmt::format("the device's memory {} is not used: {}", file(fingerprint).string(), memory.error().to_string());
  return StrategyMemory();
}

Status MemoryStore::add(const std::string& fingerprint, const std::string& device, const StrategyMemory& learned) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  const auto path = file(fingerprint), lock_path = fs::path(path.string() + ".lock"), fresh = fs::path(path.string() + ".new");
  const int lock = ::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) return Error(ErrorCode::kIo, "cannot write " + lock_path.string());
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{lock};
  if (::flock(lock, LOCK_EX) != 0) return Error(ErrorCode::kIo, "cannot lock " + lock_path.string());
  auto memory = load(fingerprint);
  memory.merge(learned);
  {
    std::ofstream stream(fresh, std::ios::binary);
    stream << json{{"device", device}, {"fingerprint", fingerprint}, {"memory", memory.to_json()}}.dump(1) << "\n";
    stream.flush();
    if (!stream) return Error(ErrorCode::kIo, "cannot write " + fresh.string());
  }
  fs::rename(fresh, path, error);
  if (error) return Error(ErrorCode::kIo, "cannot write " + path.string() + ": " + error.message());
  return ok_status();
}

std::vector<json> MemoryStore::all() const {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<json> result;
  for (const auto& path : paths)
    if (auto document = read_document(path); document && document->is_object() && document->contains("memory") &&
                                             StrategyMemory::from_json((*document)["memory"]).ok())
      result.push_back(std::move(*document));
  return result;
}

std::optional<std::string> memory_folder_of_environment() {
  const char* folder = std::getenv("KERNELOPT_MEMORY");
  return folder && *folder ? std::optional<std::string>(folder) : std::nullopt;
}

}  // namespace kernelopt
