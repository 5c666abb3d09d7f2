// cat of dense pieces, tril and triu on CUDA: bytes are moved, up to 16 at a time.
#include <algorithm>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/pointers.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/cat/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kMostPieces = 64;  // of a launch: 1 KiB of arguments

struct Pieces {
  void* out;
  const void* in[kMostPieces];
  uint32_t start[kMostPieces + 1];  // where each piece begins in a row of out, in units
  int32_t count, half;              // half: the largest power of two below count
  uint32_t total;                   // units of out
  Divider row;                      // units of a row
};

constexpr int kUnits = 4;  // of a thread, all on their way at once

template <class U> __global__ void __launch_bounds__(kThreads) cat_units(Pieces p, PreviousGrid previous) {
  uint32_t first = blockIdx.x * uint32_t(kThreads * kUnits) + threadIdx.x;
  previous.wait();
  U x[kUnits];
#pragma unroll
  for (int j = 0; j < kUnits; ++j) {
    uint32_t i = first + uint32_t(j * kThreads);
    if (i >= p.total) break;
    uint32_t row = p.row.quotient(i), at = i - row * p.row.d;
    int k = 0;
#pragma unroll 1
    for (int step = p.half; step > 0; step /= 2)
      if (k + step < p.count && p.start[k + step] <= at) k += step;
    x[j] = static_cast<const U*>(p.in[k])[int64_t(row) * (p.start[k + 1] - p.start[k]) + (at - p.start[k])];
  }
#pragma unroll
  for (int j = 0; j < kUnits; ++j) {
    uint32_t i = first + uint32_t(j * kThreads);
    if (i < p.total) static_cast<U*>(p.out)[i] = x[j];
  }
}

struct alignas(16) Sixteen {
  uint64_t v[2];
};

void cat(const CatRows& c) {
  Pieces p{};
  p.count = int32_t(c.count);
  for (p.half = 1; p.half * 2 < p.count;) p.half *= 2;
  int64_t unit = 16;
  auto must_divide = [&](int64_t n) {
    while (n % unit != 0) unit /= 2;
  };
  must_divide(int64_t(reinterpret_cast<uintptr_t>(c.out) % 16));
  for (int64_t k = 0; k < c.count; ++k)
    must_divide(int64_t(reinterpret_cast<uintptr_t>(c.in[k]) % 16)), must_divide(c.row_bytes[k]);
  for (int64_t k = 0; k < c.count; ++k) p.start[k + 1] = p.start[k] + uint32_t(c.row_bytes[k] / unit);
  int64_t row = p.start[c.count];
  if (row == 0) return;
  p.row = Divider(uint32_t(row));
  Device device = device_of(c.out, "cat");
  for (int64_t first = 0, rows; first < c.rows; first += rows) {
    rows = std::min(c.rows - first, INT32_MAX / row);
    p.out = static_cast<char*>(c.out) + first * row * unit;
    for (int64_t k = 0; k < c.count; ++k) p.in[k] = static_cast<const char*>(c.in[k]) + first * c.row_bytes[k];
    p.total = uint32_t(rows * row);
    unsigned blocks = blocks_for(p.total, kUnits);
    switch (unit) {
      case 16: launch("cat", device, blocks, cat_units<Sixteen>, p); break;
      case 8: launch("cat", device, blocks, cat_units<uint64_t>, p); break;
      case 4: launch("cat", device, blocks, cat_units<uint32_t>, p); break;
      case 2: launch("cat", device, blocks, cat_units<uint16_t>, p); break;
      default: launch("cat", device, blocks, cat_units<uint8_t>, p);
    }
  }
}
bool rows_fit(const CatRows& c) {
  int64_t bytes = 0;
  for (int64_t k = 0; k < c.count; ++k) bytes += c.row_bytes[k];
  return c.count <= kMostPieces && bytes <= INT32_MAX;
}

// A block takes a part of a row.
struct Triangles {
  const void* x;
  void* y;
  int64_t n, diagonal;
  Divider parts, m;
  bool lower;
};
template <class U> __global__ void __launch_bounds__(kThreads) triangle_elements(Triangles t) {
  uint32_t part = blockIdx.x, line = t.parts.quotient(part), row = line - t.m.quotient(line) * t.m.d;
  int64_t edge = int64_t(row) + t.diagonal,
          first = int64_t(part - line * t.parts.d) * (kThreads * kUnits) + threadIdx.x;
  const U* x = static_cast<const U*>(t.x) + line * t.n;
  U* y = static_cast<U*>(t.y) + line * t.n;
#pragma unroll
  for (int j = 0; j < kUnits; ++j) {
    int64_t col = first + j * kThreads;
    if (col < t.n) y[col] = (t.lower ? col <= edge : col >= edge) ? x[col] : U(0);
  }
}

int64_t parts_of(const Triangle& t) { return (t.x.sizes[2] + kThreads * kUnits - 1) / (kThreads * kUnits); }

void triangle(const Triangle& t) {
  if (t.x.numel() == 0) return;
  int64_t parts = parts_of(t);
  Triangles x{t.x.data, t.y.data, t.x.sizes[2], t.diagonal, Divider(uint32_t(parts)), Divider(uint32_t(t.x.sizes[1])),
              t.lower};
  unsigned blocks = unsigned(t.x.sizes[0] * t.x.sizes[1] * parts);
  switch (size_of(t.x.dtype)) {
    case 1: return launch("triangle", t.x.device, blocks, triangle_elements<uint8_t>, x);
    case 2: return launch("triangle", t.x.device, blocks, triangle_elements<uint16_t>, x);
    case 4: return launch("triangle", t.x.device, blocks, triangle_elements<uint32_t>, x);
    default: return launch("triangle", t.x.device, blocks, triangle_elements<uint64_t>, x);
  }
}
bool blocks_fit(const Triangle& t) {
  return t.x.numel() == 0 || t.x.sizes[0] * t.x.sizes[1] <= INT32_MAX / parts_of(t);
}

SF_KERNEL(cat_kernel, DeviceType::CUDA, "native", 0, cat, rows_fit)
SF_KERNEL(triangle_kernel, DeviceType::CUDA, "native", 0, triangle, blocks_fit)

}  // namespace
}  // namespace sf::cuda
