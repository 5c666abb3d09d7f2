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

// a[1, m, k] b[1, k, n] into c[1, m, n], where they lie as these kernels want them: a and b along k, c along n. What
// else belongs to the product is for the caller to add, and to ask whether it fits then.
std::optional<WgmmaProduct> wgmma_product_of(const TensorView& a, const TensorView& b, const TensorView& c);

// A call by cuBLASLt, where that has it too.
template <class Args> void run_by_cublaslt(const KernelTable<Args>& table, const Args& args) {
  for (int i = 0; i < table.count(DeviceType::CUDA); ++i)
    if (const KernelEntry& e = table.entry(DeviceType::CUDA, i); std::strcmp(e.provider, "cublaslt") == 0)
      return reinterpret_cast<typename KernelTable<Args>::Fn>(e.fn)(args);
}

// Whether these kernels are faster (backend/cuda/timed_choice.h). library: makes the same by other means; c is written
// several times then. False where c is added to.
bool wgmma_is_faster(const WgmmaProduct& p, const char* op, const std::function<void()>& library);

// What a provider answers: whether these kernels make a call, as warpgroup_products() says. product_of: an optional.
template <class Args, class F, class Library>
bool wgmma_supports(const Args& args, const F& product_of, const char* op, const Library& library) {
  const WarpgroupProducts where = warpgroup_products();
  if (where == WarpgroupProducts::Off) return false;
  const std::optional<WgmmaProduct> p = product_of(args);
  return p && (where == WarpgroupProducts::On || wgmma_is_faster(*p, op, library));
}

}  // namespace sf::cuda
