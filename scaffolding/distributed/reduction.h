// Reductions of several processes' numbers into one, in an order that depends on nothing: a binary tree over the ranks,
// ((0 + 1) + (2 + 3)) + ... Numbers of 8 and 16 bits of floating point are added as float32 and rounded once.
#pragma once
#include <cstddef>
#include <vector>

#include "scaffolding/core/dtype.h"

namespace sf::distributed {

enum class ReduceOp { SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR };
const char* name(ReduceOp op);

// TypeError where op has no meaning for the dtype: a mean of integers, bits of floating numbers.
void check_reduction(const char* who, ReduceOp op, DType dtype);

// out[i] = in[0][i] op in[1][i] op ...; out may be one of them. divisor: of AVG, the number of addends.
void reduce(void* out, const std::vector<const void*>& in, size_t count, DType dtype, ReduceOp op, double divisor);

}  // namespace sf::distributed
