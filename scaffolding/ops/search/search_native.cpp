// Binary search on the CPU.
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/search/kernel.h"

namespace sf {
namespace {

template <class T> T value_of(T x) { return x; }
float value_of(Half x) { return to_float(x); }
float value_of(BFloat16 x) { return to_float(x); }

template <class T> void search(const SearchSorted& s) {
  int64_t m = s.values.sizes[1], n = s.sequence.sizes[1];
  auto* values = s.values.as<const T>();
  auto* out = s.out.as<int64_t>();
  bool shared = s.sequence.sizes[0] == 1;
  parallel_for(s.values.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t row = shared ? 0 : i / m, low = 0, high = n;
      const T* sequence = s.sequence.as<const T>() + row * n;
      const int64_t* sorter = s.sorter ? s.sorter.as<const int64_t>() + row * n : nullptr;
      auto wanted = value_of(values[i]);
      while (low < high) {
        int64_t middle = low + (high - low) / 2;
        auto at = value_of(sequence[sorter ? sorter[middle] : middle]);
        // by what is not before it, so that NaN goes to the end
        bool before = s.right ? !(at > wanted) : !(at >= wanted);
        if (before) low = middle + 1;
        else high = middle;
      }
      out[i] = low;
    }
  });
}

void searchsorted_cpu(const SearchSorted& s) {
  visit_dtype(s.values.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_float8(dtype_of<T>::value)) search<T>(s);
  });
}

SF_KERNEL(searchsorted_kernel, DeviceType::CPU, "native", 0, searchsorted_cpu, nullptr)

}  // namespace
}  // namespace sf
