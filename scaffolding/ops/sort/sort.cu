// Sorting on CUDA. Each element becomes an unsigned key of its own width in the wanted order, with its index beside it,
// so that equal elements keep their order and nothing depends on the launch. Rows of up to 1024 go through Batcher's
// bitonic network (AFIPS 1968) in shared memory, one launch for everything; longer ones through CUB's radix sort.
#include <algorithm>
#include <bit>

#include "scaffolding/backend/cuda/cub.h"
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/sort/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kTile = 1024;

struct Ends {
  const void* in;
  void* values;  // may be null
  int64_t* indices;
  DType dtype;
  int bytes;
  bool descending;
  int64_t rows, n, k;
  RowPlaces in_rows, value_rows, index_rows;
  int64_t in_step, value_step, index_step;

  __device__ void write(int64_t row, int64_t col, int64_t from) const {
    indices[index_rows.at(row) + col * index_step] = from;
    if (values)
      move_element(values, value_rows.at(row) + col * value_step, in, in_rows.at(row) + from * in_step, bytes);
  }
};

// A float's bits as an integer of the same order: equal numbers get equal keys (-0 and 0 too), every NaN the largest.
template <class U> __device__ inline U ordered_float(U bits, U infinity) {
  constexpr U sign = U(1) << (8 * sizeof(U) - 1);
  U size = U(bits & U(~sign));
  if (size > infinity) return U(~U(0));
  if (size == 0) return sign;
  return bits & sign ? U(~bits) : U(bits | sign);
}
// The key in the lowest bits that belong to the dtype; the others are 0.
template <class K> __device__ inline K key_of(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case kBool:
    case kUInt8: return K(static_cast<const uint8_t*>(data)[i]);
    case kInt8: return K(static_cast<const uint8_t*>(data)[i] ^ uint8_t(0x80));
    case kInt16: return K(static_cast<const uint16_t*>(data)[i] ^ uint16_t(0x8000));
    case kFloat16: return K(ordered_float(static_cast<const uint16_t*>(data)[i], uint16_t(0x7c00)));
    case kBFloat16: return K(ordered_float(static_cast<const uint16_t*>(data)[i], uint16_t(0x7f80)));
    case kInt32: return K(static_cast<const uint32_t*>(data)[i] ^ uint32_t(1) << 31);
    case kFloat32: return K(ordered_float(static_cast<const uint32_t*>(data)[i], uint32_t(0x7f800000)));
    case kFloat64: return K(ordered_float(static_cast<const uint64_t*>(data)[i], uint64_t(0x7ff) << 52));
    default: return K(static_cast<const uint64_t*>(data)[i] ^ uint64_t(1) << 63);
  }
}

__device__ inline bool in_order(uint64_t key_a, uint32_t a, uint64_t key_b, uint32_t b) {
  return key_a != key_b ? key_a < key_b : a <= b;
}

__device__ inline void order(uint64_t* keys, uint32_t* at, int low, int high, bool ascending) {
  if (in_order(keys[low], at[low], keys[high], at[high]) == ascending) return;
  uint64_t key = keys[low];
  uint32_t index = at[low];
  keys[low] = keys[high], at[low] = at[high];
  keys[high] = key, at[high] = index;
}

// A block sorts kTile / width rows, each padded to width, a power of two. Runs of `size` are sorted up and down in
// turns; a whole row is one run, sorted up.
__global__ void __launch_bounds__(kThreads) sort_tile(Ends e, int width) {
  __shared__ uint64_t keys[kTile];
  __shared__ uint32_t at[kTile];
  int64_t first_row = int64_t(blockIdx.x) * (kTile / width);
  for (int i = int(threadIdx.x); i < kTile; i += kThreads) {
    int64_t row = first_row + i / width;
    int col = i % width;
    bool real = row < e.rows && col < e.n;
    uint64_t key = real ? key_of<uint64_t>(e.in, e.dtype, e.in_rows.at(row) + col * e.in_step) : 0;
    keys[i] = !real ? ~uint64_t(0) : e.descending ? ~key : key;
    at[i] = real ? uint32_t(col) : ~uint32_t(0);  // padding comes after every element, NaN too
  }
  __syncthreads();
  for (int size = 2; size <= width; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int pair = int(threadIdx.x); pair < kTile / 2; pair += kThreads) {
        int low = pair / stride * 2 * stride + pair % stride;
        order(keys, at, low, low + stride, (low % width & size) == 0);
      }
      __syncthreads();
    }
  for (int i = int(threadIdx.x); i < kTile; i += kThreads) {
    int64_t row = first_row + i / width;
    if (row < e.rows && i % width < e.k) e.write(row, i % width, at[i]);
  }
}

// The bits above the dtype's own are not compared, whatever they are.
template <class K> __global__ void __launch_bounds__(kThreads) make_keys(Ends e, K* keys, uint32_t* at, int64_t total) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += int64_t(gridDim.x) * kThreads) {
    int64_t row = i / e.n, col = i % e.n;
    K key = key_of<K>(e.in, e.dtype, e.in_rows.at(row) + col * e.in_step);
    keys[i] = e.descending ? K(~key) : key;
    at[i] = uint32_t(col);
  }
}
__global__ void __launch_bounds__(kThreads) take_first(Ends e, const uint32_t* at, int64_t total) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += int64_t(gridDim.x) * kThreads)
    e.write(i / e.k, i % e.k, at[i / e.k * e.n + i % e.k]);
}

Ends ends_of(const Sort& s) {
  int last = s.in.ndim - 1;
  Ends e{};
  e.in = s.in.data, e.values = s.values.defined() ? s.values.data : nullptr, e.indices = s.indices.as<int64_t>();
  e.dtype = s.in.dtype, e.bytes = int(size_of(s.in.dtype)), e.descending = s.descending;
  e.n = s.in.sizes[last], e.k = s.indices.sizes[last], e.rows = s.in.numel() / e.n;
  e.in_rows = RowPlaces(s.in), e.value_rows = RowPlaces(s.values), e.index_rows = RowPlaces(s.indices);
  e.in_step = s.in.strides[last], e.value_step = s.values.defined() ? s.values.strides[last] : 0,
  e.index_step = s.indices.strides[last];
  return e;
}

void sort_in_tiles(const Sort& s) {
  Ends e = ends_of(s);
  int width = int(std::bit_ceil(uint64_t(e.n))), rows_of_block = kTile / width;
  launch("sort", s.in.device, unsigned((e.rows + rows_of_block - 1) / rows_of_block), sort_tile, e, width);
}
bool fits_tiles(const Sort& s) {
  return !is_float8(s.in.dtype) && s.in.sizes[s.in.ndim - 1] <= kTile && s.in.numel() <= INT32_MAX;
}

unsigned blocks_of(int64_t n) { return unsigned(std::min<int64_t>((n + kThreads - 1) / kThreads, 1 << 20)); }

template <class K> void sort_by(const Sort& s) {
  Ends e = ends_of(s);
  int64_t total = e.rows * e.n;
  Device device = s.in.device;
  Scratch keys(device, size_t(total) * sizeof(K)), other_keys(device, size_t(total) * sizeof(K));
  Scratch at(device, size_t(total) * sizeof(uint32_t)), other_at(device, size_t(total) * sizeof(uint32_t));
  launch("sort", device, blocks_of(total), make_keys<K>, e, keys.as<K>(), at.as<uint32_t>(), total);
  const uint32_t* sorted = sort_rows("sort", device,
                                     {keys.as<void>(), other_keys.as<void>(), at.as<uint32_t>(),
                                      other_at.as<uint32_t>(), int(sizeof(K)), 8 * e.bytes, e.rows, e.n});
  launch("sort", device, blocks_of(e.rows * e.k), take_first, e, sorted, e.rows * e.k);
}
void sort_by_cub(const Sort& s) {
  switch (size_of(s.in.dtype)) {
    case 8: return sort_by<uint64_t>(s);
    case 4: return sort_by<uint32_t>(s);
    default: return sort_by<uint16_t>(s);  // bytes too: their eight bits are one pass of the radix sort in either width
  }
}
bool cub_supports(const Sort& s) { return !is_float8(s.in.dtype) && s.in.sizes[s.in.ndim - 1] < INT32_MAX; }

SF_KERNEL(sort_kernel, DeviceType::CUDA, "native", 10, sort_in_tiles, fits_tiles)
SF_KERNEL(sort_kernel, DeviceType::CUDA, "cub", 0, sort_by_cub, cub_supports)

}  // namespace
}  // namespace sf::cuda
