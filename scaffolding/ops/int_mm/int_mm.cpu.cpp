// Products of int8 on vectors: every stride, every instruction set.
#include "scaffolding/backend/cpu/int8_dot.h"
#include "scaffolding/ops/int_mm/int8_dots.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

template <class K> static void run(const IntMm& g) {
  Int8Product<K> p;
  static_cast<Product<K, int8_t>&>(p) = product_of<K>(g);
  if constexpr (K::kOffset) {
    const size_t bytes = size_t(p.n) * sizeof(int32_t);
    void* correction = scratch(bytes, kSlotColumns);
    std::memset(correction, 0, bytes);
    p.e.bias = correction, p.e.bias_type = kInt32;
  }
  multiply<K>(p);
}

static void run_int_mm(const IntMm& g) {
#if defined(SF_HAS_MUL_VNNI)
  if (cpu::int8_dot_of_bytes(kVecBytes)) return run<MulVnni>(g);
#endif
  run<MulPairs>(g);
}

}  // namespace SF_ISA

SF_KERNEL(int_mm_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int_mm, nullptr)

}  // namespace sf
