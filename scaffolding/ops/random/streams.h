// The two streams behind Generator.
#pragma once
#include <optional>

#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/random/kernel.h"

namespace sf {

Generator make_mt19937();
Generator make_philox(int64_t threads);

// Draws of integers: base + [0, range); 0 .. what the dtype counts exactly.
PhiloxDraw philox_integers(DType t, uint64_t range, int64_t base);
PhiloxDraw philox_natural_integers(DType t);
// Fills in what a draw of n elements takes of a Philox generator and moves that on;
// false for generators of another kind.
bool reserve_philox(const Generator& g, PhiloxDraw& draw);
// The next `counters` times four words of a Philox generator, which moves on; none for generators of another kind.
std::optional<PhiloxPlace> reserve_philox(const Generator& g, uint64_t counters);
// RuntimeError while a graph is captured, for ops whose draws for a CUDA tensor are made on the host and copied there.
void refuse_host_draw(const char* op, Device device);

}  // namespace sf
