// Copies that turn a dense dimension into a strided one and the other way round: NCHW to NHWC, a matrix to its
// transpose. Tiles of 128 bytes a row go through shared memory, so that reads and writes are both of whole cache lines.
#pragma once
#include "scaffolding/backend/cuda/elementwise.cuh"

namespace sf::cuda {

// Both dense dimensions of a copy, counted in elements. x runs along what is dense in dst,
// y along what is dense in src.
struct Transpose {
  Walk<2> tiles;  // one element per tile: [0] along x, [1] along y, then all other dimensions
  uint32_t nx, ny;
  int64_t dst_step, src_step;  // bytes from one y to the next in dst, from one x to the next in src
};

// Elements that a thread loads or stores at once, and elements along an edge of a tile: eight vectors.
template <class D, class S> constexpr int tile_lanes() {
  return int(16 / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S)));
}
template <class D, class S> constexpr int tile_edge() { return 8 * tile_lanes<D, S>(); }

// Vectors along y are loaded, scattered into rows of the tile, which run along x, and stored as vectors along x.
// Vectors of a row change places by its number, so that neither side meets a bank twice: the eight threads that load
// one line write to eight different groups of banks.
template <class D, class S, class F>
__global__ void __launch_bounds__(kThreads) transpose_vectors(Transpose t, F convert, PreviousGrid previous) {
  constexpr uint32_t V = tile_lanes<D, S>(), kEdge = 8 * V;
  __shared__ Vec<D, V> tile[kEdge][8];
  int64_t at[2];
  t.tiles.offsets(blockIdx.x, at);
  uint32_t q = t.tiles.sizes[0].quotient(blockIdx.x), x0 = (blockIdx.x - q * t.tiles.sizes[0].d) * kEdge;
  uint32_t y0 = (q - t.tiles.sizes[1].quotient(q) * t.tiles.sizes[1].d) * kEdge;
  const char* src = t.tiles.data[1] + at[1];
  char* dst = t.tiles.data[0] + at[0];
  previous.wait();
  constexpr uint32_t kVectors = kEdge * 8, kSteps = (kVectors + kThreads - 1) / kThreads;
  Vec<S, V> in[kSteps];
#pragma unroll
  for (uint32_t j = 0; j < kSteps; ++j) {
    uint32_t i = threadIdx.x + j * kThreads, x = i / 8, y = i % 8 * V;
    if (i < kVectors && x0 + x < t.nx && y0 + y < t.ny)
      in[j] = *reinterpret_cast<const Vec<S, V>*>(src + x * t.src_step + y * sizeof(S));
  }
#pragma unroll
  for (uint32_t j = 0; j < kSteps; ++j) {
    uint32_t i = threadIdx.x + j * kThreads, x = i / 8, y = i % 8;
    if (i < kVectors && x0 + x < t.nx && y0 + y * V < t.ny) {
#pragma unroll
      for (uint32_t e = 0; e < V; ++e) tile[y * V + e][x / V ^ y].v[x % V] = convert(in[j].v[e]);
    }
  }
  __syncthreads();
#pragma unroll
  for (uint32_t j = 0; j < kSteps; ++j) {
    uint32_t i = threadIdx.x + j * kThreads, y = i / 8, x = i % 8;
    if (i < kVectors && y0 + y < t.ny && x0 + x * V < t.nx)
      *reinterpret_cast<Vec<D, V>*>(dst + y * t.dst_step + x * V * sizeof(D)) = tile[y][x ^ y / V];
  }
}

// The same for sizes, strides and addresses that no vectors fit: a warp takes neighbours along y, then along x.
// Rows are one bank apart.
template <class D, class S, class F>
__global__ void __launch_bounds__(kThreads) transpose_elements(Transpose t, F convert, PreviousGrid previous) {
  constexpr uint32_t kEdge = tile_edge<D, S>(), kSteps = kEdge * kEdge / kThreads, kRows = kThreads / kEdge;
  __shared__ D tile[kEdge][kEdge + (sizeof(D) < 4 ? 4 / sizeof(D) : 1)];
  int64_t at[2];
  t.tiles.offsets(blockIdx.x, at);
  uint32_t q = t.tiles.sizes[0].quotient(blockIdx.x), x0 = (blockIdx.x - q * t.tiles.sizes[0].d) * kEdge;
  uint32_t y0 = (q - t.tiles.sizes[1].quotient(q) * t.tiles.sizes[1].d) * kEdge, lane = threadIdx.x % kEdge,
           row = threadIdx.x / kEdge;
  const char* src = t.tiles.data[1] + at[1] + row * t.src_step + lane * sizeof(S);
  char* dst = t.tiles.data[0] + at[0] + row * t.dst_step + lane * sizeof(D);
  previous.wait();
  if (y0 + lane < t.ny) {
#pragma unroll 8
    for (uint32_t j = 0; j < kSteps; ++j)
      if (x0 + row + j * kRows < t.nx)
        tile[lane][row + j * kRows] = convert(*reinterpret_cast<const S*>(src + j * kRows * t.src_step));
  }
  __syncthreads();
  if (x0 + lane < t.nx) {
#pragma unroll 8
    for (uint32_t j = 0; j < kSteps; ++j)
      if (y0 + row + j * kRows < t.ny)
        *reinterpret_cast<D*>(dst + j * kRows * t.dst_step) = tile[row + j * kRows][lane];
  }
}

// False where the copy is none of this kind: then elementwise() moves it as well.
template <class D, class S, class F>
bool transpose(const char* op, Device device, const F& convert, const cpu::StridedLoop& loop) {
  // below, most of a tile would be empty
  constexpr int64_t kEdge = tile_edge<D, S>(), V = tile_lanes<D, S>(), kLeast = 16;
  int y = 0;
  for (int d = 1; d < loop.ndim && y == 0; ++d)
    if (loop.strides[1][d] == int64_t(sizeof(S)) && loop.sizes[d] >= kLeast) y = d;
  if (y == 0 || loop.sizes[0] < kLeast || loop.strides[0][0] != int64_t(sizeof(D)) ||
      loop.strides[1][0] == int64_t(sizeof(S)) || loop.strides[1][0] == 0)
    return false;
  if (loop.sizes[0] > INT32_MAX || loop.sizes[y] > INT32_MAX || loop.rows == 0) return false;
  Transpose t{};
  t.nx = uint32_t(loop.sizes[0]), t.ny = uint32_t(loop.sizes[y]);
  t.dst_step = loop.strides[0][y], t.src_step = loop.strides[1][0];
  bool vectors = t.nx % V == 0 && t.ny % V == 0;
  auto fits = [&](int64_t n, size_t item) { vectors = vectors && n % (V * int64_t(item)) == 0; };
  for (int k = 0; k < 2; ++k) {
    size_t item = k == 0 ? sizeof(D) : sizeof(S);
    fits(int64_t(reinterpret_cast<uintptr_t>(loop.data[k])), item);
    t.tiles.data[k] = loop.data[k];
    int at = 0;
    for (int d : {0, y}) {
      t.tiles.strides[k][at++] = loop.strides[k][d] * kEdge;
      if (d != (k == 0 ? 0 : y)) fits(loop.strides[k][d], item);
    }
    for (int d = 1; d < loop.ndim; ++d)
      if (d != y) t.tiles.strides[k][at++] = loop.strides[k][d], fits(loop.strides[k][d], item);
  }
  t.tiles.ndim = loop.ndim;
  int64_t tiles = 1;
  int at = 0;
  auto dimension = [&](int64_t n) {
    if (n > INT32_MAX || tiles > INT32_MAX / n) return false;
    t.tiles.sizes[at++] = Divider(uint32_t(n));
    tiles *= n;
    return true;
  };
  if (!dimension((t.nx + kEdge - 1) / kEdge) || !dimension((t.ny + kEdge - 1) / kEdge)) return false;
  for (int d = 1; d < loop.ndim; ++d)
    if (d != y && !dimension(loop.sizes[d])) return false;
  launch(op, device, unsigned(tiles), vectors ? transpose_vectors<D, S, F> : transpose_elements<D, S, F>, t, convert);
  return true;
}

}  // namespace sf::cuda
