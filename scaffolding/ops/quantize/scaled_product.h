// float8 products of cuBLASLt, for what finishes them in passes of its own.
#pragma once
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {

// Whether cuBLASLt has a call for all of this; without scales (undefined) they are 1.
bool has_float8_product(const ScaledProduct& p);
// On the current stream; false where it refuses after all: nothing is done then.
bool run_float8_product(const ScaledProduct& p);

// The product in float32 without scales, then a pass of ours. c is dense.
void scaled_product_in_passes(const ScaledProduct& p);

}  // namespace sf::cuda
