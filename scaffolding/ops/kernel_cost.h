// What a kernel call has to do at least, from its arguments alone: for profiles,
// and for tables beside a machine's limits.
#pragma once
#include "scaffolding/core/provider.h"

namespace sf {

// Of a call that is composed of others, neither: they report theirs.
struct KernelCost {
  double flop =
      // multiplications and additions of products, convolutions and attention as the op defines them;
      // 0 for what only passes over memory
      0;
  double bytes = 0;      // each operand read or written once
  std::string operands;  // "bfloat16 [2, 320, 64, 64] channels-last, ..."
};
KernelCost cost_of(const KernelCall& call);

}  // namespace sf
