// For tests of kernels on tiles: the kernels of a table by their labels, called with whatever they are given, so that
// products that are too small to be chosen are computed too.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

inline bool is_on_tiles(const KernelEntry& e) {
  const std::string_view isa = e.isa ? e.isa : "";
  return isa == "avx512amx" || isa == "amx_emulated";
}
// The best kernel of ours that needs no tiles.
inline const KernelEntry& plain_kernel(const KernelTableBase& table) {
  for (int i = 0; i < table.count(DeviceType::CPU); ++i) {
    const KernelEntry& e = table.entry(DeviceType::CPU, i);
    if (std::string_view(e.provider) == "native" && !is_on_tiles(e)) return e;
  }
  throw RuntimeError(std::string("no plain kernel in ") + table.name());
}
// The one on tiles; where neither tiles nor their emulation are, the best of the others.
inline const KernelEntry& tile_kernel(const KernelTableBase& table) {
  for (int i = 0; i < table.count(DeviceType::CPU); ++i)
    if (is_on_tiles(table.entry(DeviceType::CPU, i))) return table.entry(DeviceType::CPU, i);
  return plain_kernel(table);
}
template <class Args> void call(const KernelEntry& kernel, const Args& args) {
  reinterpret_cast<typename KernelTable<Args>::Fn>(kernel.fn)(args);
}

// What falls back from tiles is computed by the same code as a plain kernel, to the bit; with tiles in plain C++ that
// code is compiled for another processor.
inline bool falls_back_to_the_same_bits() {
  const KernelEntry& kernel = tile_kernel(gemm);
  return !kernel.isa || std::string_view(kernel.isa) != "amx_emulated";
}

struct PrecisionScope {
  explicit PrecisionScope(Float32Precision precision) : was(float32_matmul_precision()) {
    set_float32_matmul_precision(precision);
  }
  ~PrecisionScope() { set_float32_matmul_precision(was); }
  PrecisionScope(const PrecisionScope&) = delete;
  Float32Precision was;
};
inline constexpr Float32Precision kEveryPrecision[] = {Float32Precision::Highest, Float32Precision::High,
                                                       Float32Precision::Medium};

enum class Lay { Rows, Columns, Wide, Strided };
// [batch, rows, columns] that lies in memory in one of these ways.
inline Tensor laid(const Tensor& x, Lay lay) {
  const int64_t batch = x.size(0), rows = x.size(1), columns = x.size(2);
  Tensor y;
  switch (lay) {
    case Lay::Rows: return x.contiguous();
    case Lay::Columns: y = empty({batch, columns, rows}, x.dtype()).transpose(1, 2); break;
    case Lay::Wide:
      y = full({batch, rows + 1, columns + 3}, NAN, x.dtype()).slice(1, 0, rows).slice(2, 1, columns + 1);
      break;
    case Lay::Strided:
      y = full({batch, 2 * rows, 3 * columns}, NAN, x.dtype()).slice(1, 0, 2 * rows, 2).slice(2, 1, 3 * columns, 3);
      break;
  }
  y.copy_(x);
  return y;
}

inline bool same_bits(const Tensor& x, const Tensor& y) {
  const Tensor a = x.contiguous(), b = y.contiguous();
  return a.nbytes() == b.nbytes() && std::memcmp(a.storage()->data, b.storage()->data, a.nbytes()) == 0;
}

}  // namespace sf::test
