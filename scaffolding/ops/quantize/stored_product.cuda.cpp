#include "scaffolding/ops/quantize/stored_product.h"

#include <algorithm>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/stream.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/matmul/gemm_finish.h"

namespace sf::cuda {
namespace {

// A decoded strip. It stays in the second-level cache of the GPUs that have the most to gain (50 MB on Hopper) until
// the product has read it. Rows of the weight in a strip: a multiple of 128, the tiles of cuBLASLt's kernels.
constexpr int64_t kStripBytes = 32 << 20, kStripRows = 128;

TensorView matrix(const TensorView& like, void* data, int64_t rows, int64_t cols, int64_t row_stride,
                  int64_t col_stride) {
  TensorView t = like;
  t.data = data, t.ndim = 3;
  t.sizes[0] = 1, t.sizes[1] = rows, t.sizes[2] = cols;
  t.strides[0] = rows * cols, t.strides[1] = row_stride, t.strides[2] = col_stride;
  return t;
}
TensorView columns(const TensorView& t, int64_t first, int64_t count) {
  auto* data = static_cast<char*>(t.data) + first * int64_t(size_of(t.dtype));
  return matrix(t, data, t.sizes[0], count, t.strides[0], 1);
}

}  // namespace

void multiply_strips(const StoredProduct& p, const DecodeStrip& decode) {
  const int64_t n = p.c.sizes[1], k = p.a.sizes[1], row_bytes = k * int64_t(size_of(p.a.dtype));
  const int64_t each = std::min(n, std::max<int64_t>(1, kStripBytes / (row_bytes * kStripRows)) * kStripRows);
  const Scratch strip(p.c.device, size_t(each * row_bytes));
  if (p.residual) {  // which the products add to
    Copy to{p.c, p.residual};
    copy_kernel.find(p.c.device, to)(to);
  }
  for (int64_t n0 = 0; n0 < n; n0 += each) {
    const int64_t rows = std::min(each, n - n0);
    decode(n0, rows, strip.as<void>());
    Gemm g;
    g.a = columns(p.a, 0, k), g.c = columns(p.c, n0, rows);
    g.b = matrix(p.a, strip.as<void>(), k, rows, 1, k);
    if (p.bias) {
      g.bias = p.bias;
      g.bias.data = static_cast<char*>(p.bias.data) + n0 * int64_t(size_of(p.bias.dtype));
      g.bias.sizes[0] = rows;
    }
    g.beta = p.residual ? 1 : 0;
    if (!p.residual) g.act = p.act;
    auto kernel = gemm.find(p.c.device, g);
    SF_CHECK_AS(NotSupported, kernel, "linear: no kernel for products on ", p.c.device);
    kernel(g);
    if (p.residual && p.act != Activation::None) {
      Gemm finish = g;
      finish.bias = TensorView(), finish.beta = 0, finish.act = p.act;
      finish_product(finish, g.c);
    }
  }
}

AlignedBytes::AlignedBytes(Device device, const void* data, int64_t bytes) : device_(device), data_(data) {
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) return;
  copy_ = CachingAllocator::of(device.index).allocate(size_t(bytes));
  data_ = copy_;
  DeviceScope scope(device.index);
  const cudaError_t status =
      cudaMemcpyAsync(copy_, data, size_t(bytes), cudaMemcpyDeviceToDevice, Stream::current(device.index).handle);
  if (status != cudaSuccess) CachingAllocator::of(device.index).release(copy_);
  check(status, "linear");
}
AlignedBytes::~AlignedBytes() {
  if (copy_) CachingAllocator::of(device_.index).release(copy_);
}

}  // namespace sf::cuda
