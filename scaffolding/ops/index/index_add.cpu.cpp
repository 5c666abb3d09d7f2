// Sums of 16-bit floats into whole slices with contiguous lanes, in float32: each destination is read and written once.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/index/sorted_points.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kBlock = 64;   // lanes: whole cache lines, what threads share out
constexpr int64_t kChunk = 512;  // lanes that are summed at once where several points go to one place

// out[offset + ..m] += the sum of x[point] over points[count]
template <class T>
void add_points(T* out, const T* x, int64_t point_step, const int64_t* points, int64_t count, int64_t m) {
  if (count == 1) {
    const T* from = x + points[0] * point_step;
    return each_vector<T>(m, [&](int64_t i, int n) { store_n(out + i, load_n(out + i, n) + load_n(from + i, n), n); });
  }
  alignas(64) float sum[kChunk];
  for (int64_t first = 0; first < m; first += kChunk) {
    int64_t here = m - first < kChunk ? m - first : kChunk;
    each_vector<T>(here, [&](int64_t i, int n) { store_n(sum + i, load_n(out + first + i, n), n); });
    for (int64_t j = 0; j < count; ++j) {
      const T* from = x + points[j] * point_step + first;
      each_vector<T>(here, [&](int64_t i, int n) { store_n(sum + i, load_n(sum + i, n) + load_n(from + i, n), n); });
    }
    each_vector<T>(here, [&](int64_t i, int n) { store_n(out + first + i, load_n(sum + i, n), n); });
  }
}

template <class T> void add_slices(const Put& k) {
  int64_t points = k.src.sizes[k.dim], point_step = k.src.strides[k.dim], lanes = 1, outer = 1;
  for (int d = k.dim + 1; d < k.src.ndim; ++d) lanes *= k.src.sizes[d];
  for (int d = 0; d < k.dim; ++d) outer *= k.src.sizes[d];
  auto* order = static_cast<int64_t*>(scratch(size_t(2 * points) * sizeof(int64_t), 0));
  const int64_t count = sort_points(k.offset, points, order), blocks = (lanes + kBlock - 1) / kBlock,
                work = points * kBlock;
  parallel_for(outer * blocks, work < (1 << 14) ? (1 << 14) / work : 1, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      int64_t slice = begin / blocks, block = begin % blocks,
              past = end - begin < blocks - block ? block + end - begin : blocks;
      begin += past - block;
      int64_t first = block * kBlock, m = (past * kBlock < lanes ? past * kBlock : lanes) - first;
      auto* out = k.out.as<T>() + first;
      auto* x = k.src.as<const T>() + first;
      for (int d = k.dim - 1; d >= 0; --d) {
        int64_t at = slice % k.src.sizes[d];
        slice /= k.src.sizes[d];
        out += at * k.out.strides[d];
        x += at * k.src.strides[d];
      }
      for (int64_t i = 0, next; i < count; i = next) {
        int64_t to = k.offset[order[i]];
        for (next = i + 1; next < count && k.offset[order[next]] == to;) ++next;
        add_points(out + to, x, point_step, order + i, next - i, m);
      }
    }
  });
}

void index_add(const Put& k) {
  if (k.out.dtype == kFloat16) add_slices<Half>(k);
  else add_slices<BFloat16>(k);
}
bool supports(const Put& k) {
  if (!k.accumulate || !is_reduced(k.out.dtype)) return false;
  int64_t lanes = 1;
  for (int d = k.src.ndim - 1; d > k.dim; --d) {
    if (k.src.sizes[d] != 1 && (k.src.strides[d] != lanes || k.out.strides[d] != lanes)) return false;
    lanes *= k.src.sizes[d];
  }
  return lanes >= kBlock / 4 && k.src.numel() > 0;
}

SF_KERNEL(put_kernel, DeviceType::CPU, "slices", SF_ISA_PRIORITY, index_add, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
