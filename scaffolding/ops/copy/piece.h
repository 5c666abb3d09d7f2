// Kernels that are pieces of others' work: no calls of their own in traces, and looked up once for many rows.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// That of the best instruction set.
template <class Args> typename KernelTable<Args>::Fn host_piece(const KernelTable<Args>& table) {
  return reinterpret_cast<typename KernelTable<Args>::Fn>(table.entry(DeviceType::CPU, 0).fn);
}

}  // namespace sf
