// cat of dense pieces, tril and triu on CUDA: bytes are moved, up to 16 at a time.
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/cat/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kMostPieces = 64;  // of a launch: 1 KiB of arguments

struct Pieces {
  void* out;
  const void* in[kMostPieces];
  int64_t start[kMostPieces + 1];  // where each piece begins in a row of out, in units
  int32_t count;
  int64_t total;  // units of out
};

template <class U> __global__ void __launch_bounds__(kThreads) cat_units(Pieces p) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < p.total; i += int64_t(gridDim.x) * kThreads) {
    int64_t row = i / p.start[p.count], at = i % p.start[p.count];
    int k = 0;
    while (at >= p.start[k + 1]) ++k;
    static_cast<U*>(p.out)[i] = static_cast<const U*>(p.in[k])[row * (p.start[k + 1] - p.start[k]) + at - p.start[k]];
  }
}

struct alignas(16) Sixteen {
  uint64_t v[2];
};

void cat(const CatRows& c) {
  Pieces p{};
  p.out = c.out, p.count = int32_t(c.count);
  int64_t unit = 16;
  auto must_divide = [&](int64_t n) {
    while (n % unit != 0) unit /= 2;
  };
  must_divide(int64_t(reinterpret_cast<uintptr_t>(c.out) % 16));
  for (int64_t k = 0; k < c.count; ++k) must_divide(int64_t(reinterpret_cast<uintptr_t>(c.in[k]) % 16)), must_divide(c.row_bytes[k]);
  for (int64_t k = 0; k < c.count; ++k) {
    p.in[k] = c.in[k];
    p.start[k + 1] = p.start[k] + c.row_bytes[k] / unit;
  }
  p.total = p.start[c.count] * c.rows;
  if (p.total == 0) return;
  Device device = device_of(c.out, "cat");
  unsigned blocks = unsigned(p.total < int64_t(kThreads) << 20 ? (p.total + kThreads - 1) / kThreads : 1 << 20);
  switch (unit) {
    case 16: return launch("cat", device, blocks, cat_units<Sixteen>, p);
    case 8: return launch("cat", device, blocks, cat_units<uint64_t>, p);
    case 4: return launch("cat", device, blocks, cat_units<uint32_t>, p);
    case 2: return launch("cat", device, blocks, cat_units<uint16_t>, p);
    default: return launch("cat", device, blocks, cat_units<uint8_t>, p);
  }
}

struct Triangles {
  const void* x;
  void* y;
  int bytes;
  int64_t m, n, total, diagonal;
  bool lower;
};
template <class U> __global__ void __launch_bounds__(kThreads) triangle_elements(Triangles t) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= t.total) return;
  int64_t row = i / t.n % t.m, col = i % t.n;
  bool keeps = t.lower ? col <= row + t.diagonal : col >= row + t.diagonal;
  static_cast<U*>(t.y)[i] = keeps ? static_cast<const U*>(t.x)[i] : U(0);
}

void triangle(const Triangle& t) {
  Triangles x{t.x.data, t.y.data, int(size_of(t.x.dtype)), t.x.sizes[1], t.x.sizes[2], t.x.numel(), t.diagonal, t.lower};
  if (x.total == 0) return;
  unsigned blocks = blocks_for(x.total, 1);
  switch (x.bytes) {
    case 1: return launch("triangle", t.x.device, blocks, triangle_elements<uint8_t>, x);
    case 2: return launch("triangle", t.x.device, blocks, triangle_elements<uint16_t>, x);
    case 4: return launch("triangle", t.x.device, blocks, triangle_elements<uint32_t>, x);
    default: return launch("triangle", t.x.device, blocks, triangle_elements<uint64_t>, x);
  }
}

SF_KERNEL(cat_kernel, DeviceType::CUDA, "native", 0, cat, [](const CatRows& c) { return c.count <= kMostPieces; })
SF_KERNEL(triangle_kernel, DeviceType::CUDA, "native", 0, triangle, [](const Triangle& t) { return t.x.numel() <= int64_t(kThreads) * INT32_MAX; })

}  // namespace
}  // namespace sf::cuda
