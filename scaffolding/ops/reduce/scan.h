// Parts of scans that other reductions use. All off the tape.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::scan {

Tensor run(const char* op, Scanning what, const Tensor& x, int64_t dim, bool reverse, const Tensor& factor = {});

// For rows[..., n]: out[..., k] = product of rows[..., j] over j != k.
Tensor product_of_others(const Tensor& rows);

}  // namespace sf::scan
