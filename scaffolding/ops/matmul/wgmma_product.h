// Products of 16-bit floats, and of float8 into these, by Hopper's warpgroup instructions, for linear layers: what is
// added to a product and the gate of a GEGLU are done in its registers, and the tile is the one that fills the
// multiprocessors best.
#pragma once
#include <cstring>
#include <functional>
#include <optional>

#include "scaffolding/backend/precision.h"
#include "scaffolding/core/tensor_view.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

// c[m, n] = alpha * a[m, k] b[n, k]^T + bias[n] + beta * addend[m, n], or, where there is a gate [n, k],
// c = (a b^T + bias) * act(a gate^T + gate_bias). Rows are dense along k (a, b, gate) or n (c, addend), `_row` elements
// apart. addend may be c. A product of float8_e4m3fn is multiplied by row_scale[m] * column_scale[n], float32, each of
// one number or of as many as there are; it has no gate.
struct WgmmaProduct {
  DType operands = kBFloat16, dtype = kBFloat16;  // of a, b and gate; of c and addend
  Device device;
  int64_t m = 0, n = 0, k = 0;
  const void *a = nullptr, *b = nullptr, *gate = nullptr, *addend = nullptr;
  int64_t a_row = 0, b_row = 0, gate_row = 0, addend_row = 0;
  TensorView bias, gate_bias;  // of dtype or float32, or undefined
  TensorView row_scale, column_scale;
  void* c = nullptr;
  int64_t c_row = 0;
  float alpha = 1, beta = 0;
  Activation act = Activation::None;  // of the gate: GeluErf, GeluTanh or Silu

  // Compute capability 9.0; sizes, rows and addresses that the copy engine takes: multiples of 16 bytes.
  bool fits() const;
  void run(const char* op) const;  // on the device's current stream
};

// How long a product takes in tiles of these rows and columns of sums (with a gate half of them are the gate's), by
// counting, in cycles of a multiprocessor.
double wgmma_cycles(const WarpgroupTile& tile, const WgmmaProduct& p, int multiprocessors);

// A call by cuBLASLt, where that has it too.
template <class Args> void run_by_cublaslt(const KernelTable<Args>& table, const Args& args) {
  for (int i = 0; i < table.count(DeviceType::CUDA); ++i)
    if (const KernelEntry& e = table.entry(DeviceType::CUDA, i); std::strcmp(e.provider, "cublaslt") == 0)
      return reinterpret_cast<typename KernelTable<Args>::Fn>(e.fn)(args);
}

// Whether these kernels make a product that fits, as warpgroup_products() says. library: makes the same by other means;
// where it is timed beside it, c is written several times. Never while a graph is captured, nor where c is added to.
bool wgmma_is_wanted(const WgmmaProduct& p, const char* op, const std::function<void()>& library);

}  // namespace sf::cuda
