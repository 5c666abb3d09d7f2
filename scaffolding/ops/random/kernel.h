// Box-Muller in place over blocks of sixteen uniforms, as torch's CPU generator does: with u = data[0..8) and
// v = data[8..16), r = sqrt(-2 ln(1 - u)), the block becomes r cos(2 pi v) in its first half, r sin(2 pi v) in its
// second, each times std plus mean. The polynomials are torch's, so that numbers agree bit for bit where the
// instruction set has fused multiply-add.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct BoxMuller {
  float* data;
  int64_t blocks;
  float mean, std;
};
extern KernelTable<BoxMuller> box_muller_kernel;
}  // namespace sf
