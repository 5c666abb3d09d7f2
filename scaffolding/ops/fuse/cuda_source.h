// The CUDA kernel of a traced function, as source for NVRTC. It needs no header.
#pragma once
#include <string>
#include <tuple>

#include "scaffolding/ops/fuse/walk.h"

namespace sf {

// What of a call's layout the source depends on.
struct FusedLayout {
  int ndim = 0;             // 0: result and arguments are dense, or one element for all; else the merged dimensions
  std::vector<bool> splat;  // with ndim 0: of each argument, whether it is one element
  int lanes = 1;            // elements that a thread takes

  FusedLayout(const FusedCall& c, const FusedWalk& w);
  bool operator<(const FusedLayout& o) const {
    return std::tie(ndim, lanes, splat) < std::tie(o.ndim, o.lanes, o.splat);
  }
};

// fused(out, in0, in1, ..., n, Places): n elements, lanes per thread; out dense.
// NotSupported for what only the CPU has (integer arithmetic).
std::string fused_cuda_source(const pointwise::TracedProgram& program, const FusedLayout& layout);
int64_t fused_cuda_sources_built();  // in this process

}  // namespace sf
