#include "kernelopt/target/target.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace kernelopt {
namespace {

using nlohmann::json;

const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Error malformed(const std::string& what) { return Error(ErrorCode::kInternal, "hello: " + what); }

// An optional fact that is not there keeps what `value` holds; one that is not positive is the worker's fault.
template <typename T>
Status take(const json& device, const char* key, T& value) {
  const json* fact = find(device, key);
  if (!fact) return ok_status();
  if (!fact->is_number()) return malformed(std::string(key) + " is not a number");
  const double number = fact->get<double>();
  if (!std::isfinite(number) || number <= 0) return malformed(std::string(key) + " is not positive");
  value = static_cast<T>(number);
  return ok_status();
}

}  // namespace

Result<Target> read_target(const json& hello) {
  if (!hello.is_object()) return malformed("not an object");
  const json* device = find(hello, "device");
  if (!device || !device->is_object()) return malformed("no device facts");
  const json* fingerprint = find(hello, "fingerprint");
  if (!fingerprint || !fingerprint->is_string() || fingerprint->get<std::string>().empty()) return malformed("no fingerprint");
  const json* kind = find(*device, "kind");
  if (!kind || !kind->is_string()) return malformed("no device kind");

  Target target;
  target.fingerprint = fingerprint->get<std::string>();
  if (*kind == "cpu") target.kind = DeviceKind::kCpu;
  else if (*kind == "cuda") target.kind = DeviceKind::kCuda;
  else return Error(ErrorCode::kUnsupported, "device kind " + kind->get<std::string>() + "; known: cpu, cuda");
  for (const auto& [key, field] : {std::pair{"name", &target.name}, std::pair{"isa", &target.isa}}) {
    const json* text = find(*device, key);
    if (text && !text->is_string()) return malformed(std::string(key) + " is not text");
    if (text) *field = text->get<std::string>();
  }
  KO_RETURN_IF_ERROR(take(*device, "threads", target.threads));
  KO_RETURN_IF_ERROR(take(*device, "vector_bits", target.vector_bits));
  KO_RETURN_IF_ERROR(take(*device, "l1_bytes", target.l1_bytes));
  KO_RETURN_IF_ERROR(take(*device, "l2_bytes", target.l2_bytes));
  KO_RETURN_IF_ERROR(take(*device, "l3_bytes", target.l3_bytes));
  KO_RETURN_IF_ERROR(take(*device, "copy_bytes_per_second", target.copy_bytes_per_second));
  KO_RETURN_IF_ERROR(take(*device, "flops_per_second", target.flops_per_second));
  KO_RETURN_IF_ERROR(take(*device, "launch_seconds", target.launch_seconds));
  if (target.kind == DeviceKind::kCuda) {
    GpuLimits limits = gpu_limits(target.isa);
    if (find(*device, "threads")) limits.multiprocessors = target.threads;
    else target.threads = limits.multiprocessors;
    // The device's own word outweighs the table.
    KO_RETURN_IF_ERROR(take(*device, "registers_per_multiprocessor", limits.registers_per_multiprocessor));
    KO_RETURN_IF_ERROR(take(*device, "shared_per_multiprocessor", limits.shared_per_multiprocessor));
    KO_RETURN_IF_ERROR(take(*device, "shared_per_program", limits.shared_per_program));
    KO_RETURN_IF_ERROR(take(*device, "threads_per_multiprocessor", limits.threads_per_multiprocessor));
    target.gpu = limits;
  }
  if (target.vector_bits < 64 && target.kind == DeviceKind::kCpu) return malformed("vector_bits below 64");
  return target;
}

}  // namespace kernelopt
