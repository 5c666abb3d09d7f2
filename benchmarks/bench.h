// The benchmark harness: what a row is, and how rows get into scaffolding_bench. Rows stand in *_bench.cpp beside the
// code they time; each registers itself with one static Rows object. Single-threaded; rows live as long as the process.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::bench {

// What bounds a row: its rate is given as a share of this, measured between the row's own samples.
// A type: the fastest of the processor's units that compute it (backend/cpu/peak.h). Float32 has none but the one for
// float32: products of float32 split into bfloat16 ones go beyond it, up to a limit that --peaks prints.
// Copy: the bandwidth of memory. Row and memcpy alike walk through arrays of four times the last cache in all, as
// STREAM prescribes: prepare() is called until its inputs fill them, the calls take turns,
// and each holds on to its output.
enum class Roof { None, F32, BF16, F16, Int8, Copy };

struct Goal {
  enum Kind { None, Share, Speedup, Seconds };
  Kind kind = None;
  double value = 0;  // Share of the roof; Speedup over the peer; Seconds at most
};
inline Goal share(double v) { return {Goal::Share, v}; }
// Of integers: what vectors should reach, and tiles, which what is beside their products holds up more.
Goal share_of_int8(double vectors, double tiles);
inline Goal speedup(double v) { return {Goal::Speedup, v}; }
inline Goal seconds(double v) { return {Goal::Seconds, v}; }

struct Row {
  std::string name;  // unique; torch_peer.py knows it under the same name
  Roof roof = Roof::None;
  double work = 0;  // per call: FLOP, or bytes read and written for Roof::Copy
  Goal goal;
  std::function<std::function<void()>()> prepare;  // makes the inputs, returns the call to be timed
  int threads = 0;                                 // 0: as the command line says
};

struct Rows {
  explicit Rows(void (*add)(std::vector<Row>&));
};

// Normal numbers; the default generator.
Tensor random(const Shape& size, DType dtype, bool requires_grad = false);
Tensor random_channels_last(const Shape& size, DType dtype, bool requires_grad = false);
Roof roof_of(DType t);            // of float32, bfloat16, float16 and int8
std::string short_name(DType t);  // "f32", "bf16", "f16", "int8"
// Keeps the compiler from dropping a result.
inline void keep(const Tensor& t) { asm volatile("" : : "r"(t.impl()) : "memory"); }

}  // namespace sf::bench
