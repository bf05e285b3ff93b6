// What an NVIDIA GPU of one architecture can hold, and how many programs of a kernel are resident on it at once.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernelopt {

// Bytes and counts. Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; multiprocessors: NVIDIA's
// architecture white papers (A100 108, H100 SXM 132, B200 148), replaced by the device's own where there is one.
struct GpuLimits {
  int multiprocessors = 1;
  int registers_per_thread = 255;                // what ptxas can name
  int64_t registers_per_multiprocessor = 65536;  // 32-bit ones
  int64_t shared_per_program = 0;                // opt-in maximum of one program
  int64_t shared_per_multiprocessor = 0;
  int threads_per_program = 1024;
  int threads_per_multiprocessor = 0;
  int programs_per_multiprocessor = 0;
};

// Of "sm_80", "sm_90", "sm_100"; of another one the least that any architecture since sm_80 has, with one multiprocessor.
GpuLimits gpu_limits(std::string_view isa);

struct Residency {
  int64_t programs = 0;         // on one multiprocessor; 0: not even one fits
  const char* bound_by = "";    // "registers", "shared memory", "threads" or "programs"
};

// Programs of `threads` threads with so many registers a thread and bytes of shared memory that one multiprocessor holds at once, as
// cuda_occupancy.h counts: registers are given to warps 256 at a time in each of four partitions, shared memory 128 bytes at a time
// after 1024 that the system keeps for each program.
Residency resident_programs(const GpuLimits& limits, int64_t registers, int64_t shared_bytes, int64_t threads);

}  // namespace kernelopt
