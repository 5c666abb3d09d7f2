// where on CUDA: any dtype by its size, because bytes are only moved.
#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/ops/pointwise/where_kernel.h"

namespace sf::cuda {
namespace {

template <class U> struct Choose {
  __device__ U operator()(bool condition, U a, U b) const { return condition ? a : b; }
};
template <class U> void choose(const Where& w) {
  elementwise<U, bool, U, U>("where", Choose<U>{}, w.out, w.condition, w.a, w.b);
}

void where(const Where& w) {
  size_t item = size_of(w.out.dtype);
  item == 4   ? choose<uint32_t>(w)
  : item == 2 ? choose<uint16_t>(w)
  : item == 8 ? choose<uint64_t>(w)
              : choose<uint8_t>(w);
}
SF_KERNEL(where_kernel, DeviceType::CUDA, "native", 0, where, nullptr)

}  // namespace
}  // namespace sf::cuda
