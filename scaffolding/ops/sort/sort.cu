// Sorting on CUDA: each element becomes an unsigned key in the wanted order with its index beside it, so that equal elements keep their order
// and nothing depends on the launch; rows, padded to a power of two, go through Batcher's bitonic network (AFIPS 1968): tiles of 1024 in shared
// memory, wider steps in device memory. log^2 n passes: right for the rows of models; CUB's radix sort would be the next step for millions.
#include <bit>
#include <cstring>

#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/sort/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kTile = 1024;

// Floats: equal numbers get equal keys (-0 and 0 too), every NaN the largest. Integers: shifted to unsigned.
__device__ inline uint64_t key_of(double x) {
  x += 0.0;
  if (x != x) return ~uint64_t(0);
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u >> 63 ? ~u : u | (uint64_t(1) << 63);
}
__device__ inline uint64_t key_of(const void* data, DType dtype, int64_t i) {
  if (dtype == kFloat64 || dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16) return key_of(element<double>(data, dtype, i));
  return uint64_t(element<int64_t>(data, dtype, i)) ^ (uint64_t(1) << 63);
}

struct Rows {
  uint64_t* keys;
  uint32_t* at;     // index in the row
  int64_t rows, n;  // n: as given
  int64_t width;    // a power of two, n at least
  int64_t k;
};
struct Ends {
  const void* in;
  void* values;  // may be null
  int64_t* indices;
  DType dtype;
  int bytes;
  bool descending;
  RowPlaces in_rows, value_rows, index_rows;
  int64_t in_step, value_step, index_step;
};

__global__ void __launch_bounds__(kThreads) make_keys(Rows r, Ends e, int64_t total) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t row = i / r.width, col = i % r.width;
  bool real = row < r.rows && col < r.n;
  uint64_t key = real ? key_of(e.in, e.dtype, e.in_rows.at(row) + col * e.in_step) : 0;
  r.keys[i] = !real ? ~uint64_t(0) : e.descending ? ~key : key;
  r.at[i] = real ? uint32_t(col) : ~uint32_t(0);  // padding comes after every element, NaN too
}

__device__ inline bool in_order(uint64_t key_a, uint32_t a, uint64_t key_b, uint32_t b) { return key_a != key_b ? key_a < key_b : a <= b; }

template <class Keys, class At> __device__ void order(Keys keys, At at, int64_t low, int64_t high, bool ascending) {
  if (in_order(keys[low], at[low], keys[high], at[high]) == ascending) return;
  uint64_t key = keys[low];
  uint32_t index = at[low];
  keys[low] = keys[high], at[low] = at[high];
  keys[high] = key, at[high] = index;
}
// The lower place of the pair-th pair that lie `stride` apart.
__device__ inline int64_t lower_of(int64_t pair, int64_t stride) { return pair / stride * 2 * stride + pair % stride; }
// Runs of `size` are sorted up and down in turns; a whole row is one run, sorted up.
__device__ inline bool sorted_up(int64_t place, int64_t size, int64_t width) { return (place % width & size) == 0; }

// All steps that stay within a tile: of runs of first_size up to last_size.
__global__ void __launch_bounds__(kThreads) sort_tiles(Rows r, int64_t first_size, int64_t last_size) {
  __shared__ uint64_t keys[kTile];
  __shared__ uint32_t at[kTile];
  int64_t base = int64_t(blockIdx.x) * kTile;
  for (int i = int(threadIdx.x); i < kTile; i += kThreads) keys[i] = r.keys[base + i], at[i] = r.at[base + i];
  __syncthreads();
  for (int64_t size = first_size; size <= last_size; size *= 2)
    for (int64_t stride = size / 2 < kTile / 2 ? size / 2 : kTile / 2; stride > 0; stride /= 2) {
      for (int pair = int(threadIdx.x); pair < kTile / 2; pair += kThreads) {
        int64_t low = lower_of(pair, stride);
        order(keys, at, low, low + stride, sorted_up(base + low, size, r.width));
      }
      __syncthreads();
    }
  for (int i = int(threadIdx.x); i < kTile; i += kThreads) r.keys[base + i] = keys[i], r.at[base + i] = at[i];
}

__global__ void __launch_bounds__(kThreads) sort_step(Rows r, int64_t size, int64_t stride, int64_t pairs) {
  int64_t pair = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (pair >= pairs) return;
  int64_t low = lower_of(pair, stride);
  order(r.keys, r.at, low, low + stride, sorted_up(low, size, r.width));
}

__global__ void __launch_bounds__(kThreads) take_first(Rows r, Ends e, int64_t total) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t row = i / r.k, col = i % r.k, from = r.at[row * r.width + col];
  e.indices[e.index_rows.at(row) + col * e.index_step] = from;
  if (e.values) move_element(e.values, e.value_rows.at(row) + col * e.value_step, e.in, e.in_rows.at(row) + from * e.in_step, e.bytes);
}

int64_t width_of(const Sort& s) { return int64_t(std::bit_ceil(uint64_t(s.in.sizes[s.in.ndim - 1]))); }
int64_t rows_of(const Sort& s) { return s.in.numel() / s.in.sizes[s.in.ndim - 1]; }

void sort(const Sort& s) {
  int last = s.in.ndim - 1;
  Device device = s.in.device;
  Rows r{nullptr, nullptr, rows_of(s), s.in.sizes[last], width_of(s), s.indices.sizes[last]};
  int64_t total = (r.rows * r.width + kTile - 1) / kTile * kTile;
  Scratch keys(device, size_t(total) * sizeof(uint64_t)), at(device, size_t(total) * sizeof(uint32_t));
  r.keys = keys.as<uint64_t>(), r.at = at.as<uint32_t>();
  Ends e{};
  e.in = s.in.data, e.values = s.values.defined() ? s.values.data : nullptr, e.indices = s.indices.as<int64_t>();
  e.dtype = s.in.dtype, e.bytes = int(size_of(s.in.dtype)), e.descending = s.descending;
  e.in_rows = RowPlaces(s.in), e.value_rows = RowPlaces(s.values), e.index_rows = RowPlaces(s.indices);
  e.in_step = s.in.strides[last], e.value_step = s.values.defined() ? s.values.strides[last] : 0, e.index_step = s.indices.strides[last];
  launch("sort", device, blocks_for(total, 1), make_keys, r, e, total);
  unsigned tiles = unsigned(total / kTile);
  launch("sort", device, tiles, sort_tiles, r, int64_t(2), r.width < kTile ? r.width : int64_t(kTile));
  for (int64_t size = 2 * kTile; size <= r.width; size *= 2) {
    for (int64_t stride = size / 2; stride >= kTile; stride /= 2) launch("sort", device, blocks_for(total / 2, 1), sort_step, r, size, stride, total / 2);
    launch("sort", device, tiles, sort_tiles, r, size, size);
  }
  int64_t results = r.rows * r.k;
  launch("sort", device, blocks_for(results, 1), take_first, r, e, results);
}
bool supports(const Sort& s) { return !is_float8(s.in.dtype) && (s.in.numel() == 0 || rows_of(s) * width_of(s) < INT32_MAX); }

SF_KERNEL(sort_kernel, DeviceType::CUDA, "native", 0, sort, supports)

}  // namespace
}  // namespace sf::cuda
