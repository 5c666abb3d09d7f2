#include "scaffolding/ops/sort/along_dim.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/reduce/reduce_internal.h"

namespace sf {

constinit KernelTable<AlongDim> along_dim_kernel{"along_dim"};

namespace {

Tensor run(const Tensor& out, const Tensor& in, const Tensor& indices, int64_t dim, bool place) {
  AlongDim a{reduction::with_last(out, dim), reduction::with_last(in, dim), reduction::with_last(indices, dim), place};
  auto kernel = along_dim_kernel.find(in.device(), a);
  SF_CHECK_AS(NotSupported, kernel, "along_dim: no kernel for ", in.dtype(), " on ", in.device());
  kernel(a);
  return out;
}

}  // namespace

Tensor pick_along(const Tensor& x, const Tensor& indices, int64_t dim) {
  Tensor y = run(empty(indices.shape(), x.dtype(), x.device()), x, indices, dim, false);
  return autograd::record("pick_along", y, {x}, [indices, dim, size = x.ndim() ? x.shape()[dim] : 1](const Tensor& dy) -> Tensors {
    return {place_along(dy, indices, dim, size)};
  });
}

Tensor place_along(const Tensor& x, const Tensor& indices, int64_t dim, int64_t size) {
  Shape full = x.shape();
  if (!full.empty()) full[dim] = size;
  Tensor y = run(zeros(full, x.dtype(), x.device()), x, indices, dim, true);
  return autograd::record("place_along", y, {x}, [indices, dim](const Tensor& dy) -> Tensors { return {pick_along(dy, indices, dim)}; });
}

namespace {

template <class U> void rows(const AlongDim& a) {
  int last = a.indices.ndim - 1;
  int64_t n = a.indices.sizes[last], count = n ? a.indices.numel() / n : 0;
  int64_t so = a.out.strides[last], si = a.in.strides[last], sx = a.indices.strides[last];
  parallel_for(count, (1 << 13) / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      auto* out = a.out.as<U>();
      auto* in = a.in.as<const U>();
      auto* index = a.indices.as<const int64_t>();
      int64_t rest = r;
      for (int d = last - 1; d >= 0; --d) {
        int64_t at = rest % a.indices.sizes[d];
        rest /= a.indices.sizes[d];
        out += at * a.out.strides[d];
        in += at * a.in.strides[d];
        index += at * a.indices.strides[d];
      }
      for (int64_t j = 0; j < n; ++j) {
        if (a.place) out[index[j * sx] * so] = in[j * si];
        else out[j * so] = in[index[j * sx] * si];
      }
    }
  });
}
void along_dim(const AlongDim& a) {
  size_t item = size_of(a.in.dtype);
  item == 4 ? rows<uint32_t>(a) : item == 2 ? rows<uint16_t>(a) : item == 8 ? rows<uint64_t>(a) : rows<uint8_t>(a);
}
SF_KERNEL(along_dim_kernel, DeviceType::CPU, "native", 0, along_dim, nullptr)

}  // namespace
}  // namespace sf
