// Binary search on CUDA: a thread for each value.
#include <algorithm>

#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/search/kernel.h"

namespace sf::cuda {
namespace {

// A: int64 or double, which hold every dtype of their kind exactly.
template <class A>
__global__ void __launch_bounds__(kThreads)
    search(const void* values, const void* sequence, const int64_t* sorter, int64_t* out, DType dtype, int64_t total,
           int64_t m, int64_t n, bool shared, bool right) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += int64_t(gridDim.x) * kThreads) {
    int64_t row = shared ? 0 : i / m * n, low = 0, high = n;
    A wanted = element<A>(values, dtype, i);
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      int64_t place = sorter ? sorter[row + middle] : middle;
      if (uint64_t(place) >= uint64_t(n)) place = middle;  // reported
      A at = element<A>(sequence, dtype, row + place);
      bool before = right ? !(at > wanted) : !(at >= wanted);
      if (before) low = middle + 1;
      else high = middle;
    }
    out[i] = low;
  }
}

void searchsorted(const SearchSorted& s) {
  int64_t total = s.values.numel();
  unsigned blocks = unsigned(std::min<int64_t>((total + kThreads - 1) / kThreads, 1 << 20));
  auto* kernel = is_floating(s.values.dtype) ? search<double> : search<int64_t>;
  launch("searchsorted", s.values.device, blocks, kernel, static_cast<const void*>(s.values.data),
         static_cast<const void*>(s.sequence.data),
         static_cast<const int64_t*>(s.sorter.defined() ? s.sorter.as<int64_t>() : nullptr), s.out.as<int64_t>(),
         s.values.dtype, total, s.values.sizes[1], s.sequence.sizes[1], s.sequence.sizes[0] == 1, s.right);
}

SF_KERNEL(searchsorted_kernel, DeviceType::CUDA, "native", 0, searchsorted, nullptr)

}  // namespace
}  // namespace sf::cuda
