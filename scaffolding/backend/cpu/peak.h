// What the processor computes at most, measured: for each of its units that multiplies and adds, a loop that does
// nothing else. These are limits of the machine, whatever kernels there are; SF_ISA hides units as it hides kernels.
#pragma once
#include <vector>

#include "scaffolding/core/dtype.h"

namespace sf::cpu {

struct Unit {
  const char* name;              // "AMX bfloat16"
  const char* instruction;       // "tdpbf16ps"
  DType dtype;                   // of the factors
  double operations;             // multiplications and additions of one round, on one thread
  void (*loop)(int64_t rounds);  // at least one
};
// Those that this process may use. Of those that multiply float32 only the widest.
const std::vector<Unit>& units();
// Whether products of the type may be made there: narrower types widen to float32.
bool computes(const Unit& unit, DType dtype);

// Operations per second of all threads together: per second of wall time, and per second of processor time.
struct Rate {
  double wall = 0, cpu = 0;
};
// Of one run of about `seconds` on num_threads() threads.
Rate rate_of(const Unit& unit, double seconds = 0.005);

struct Peak {
  Unit unit;
  Rate rate;
};
// Every unit's: the best of eight runs, each shorter than what a busy machine gives a thread at a time; 20 ms a unit.
std::vector<Peak> measured_peaks();
// Of those that compute the type the fastest by processor time, which other programs disturb less: what bounds its
// products.
const Peak& roof_of(const std::vector<Peak>& peaks, DType dtype);
// A product of float32 numbers may be computed as six of bfloat16 ones: what tiles allow it then, operations of float32
// per second, which is above what the unit for float32 reaches; 0 without tiles.
double split_float32_rate(const std::vector<Peak>& peaks);

}  // namespace sf::cpu
