// A block of 256 elements at a time: its moments are read into float buffers that stay in the first cache, updated with
// vectors, and written as the nearest levels once the block's new scales are known.
#include "scaffolding/optim/kernel.h"
#include "scaffolding/optim/multi_tensor.h"

namespace sf {
namespace SF_ISA {

using optim::DynamicMap;
using optim::kBlock;
using optim::QuantizedAdamStep;
using optim::QuantizedTensor;

typedef uint8_t vb_raw __attribute__((vector_size(kLanes)));

// table[index] in each lane.
SF_INLINE vf gather(const float* table, vi_raw index) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_i32gather_ps((__m512i)index, table, 4);
#elif defined(__AVX2__)
  return (vf_raw)_mm256_i32gather_ps(table, (__m256i)index, 4);
#else
  vf_raw out;
  for (int i = 0; i < kLanes; ++i) out[i] = table[index[i]];
  return out;
#endif
}
SF_INLINE vi_raw gather(const int32_t* table, vi_raw index) {
  return bits(gather(reinterpret_cast<const float*>(table), index));
}

SF_INLINE vi_raw load_codes(const uint8_t* p, int n) {
  vb_raw codes{};
  std::memcpy(&codes, p, size_t(n));
  return __builtin_convertvector(codes, vi_raw);
}
SF_INLINE void store_codes(uint8_t* p, vi_raw x, int n) {
  vb_raw codes = __builtin_convertvector(x, vb_raw);
  std::memcpy(p, &codes, size_t(n));
}

// The indices of the levels nearest to x in [0, 1]: those of its cells, or the next ones.
SF_INLINE vi_raw nearest(const DynamicMap& map, vf x) {
  vi_raw cell = (bits(x) >> 15) - (DynamicMap::kLowestExponent << 8), none{};
  cell = cell < none ? none : cell;
  vi_raw last = none + (DynamicMap::kCells - 1);
  cell = cell > last ? last : cell;
  vi_raw k = gather(map.cells, cell);
  return k - (x > gather(map.midpoints, k)).m;  // a true lane is -1
}

template <class P, class G>
static void quantized_update(const QuantizedAdamStep& a, const QuantizedTensor& t, int64_t begin, int64_t count) {
  P* param = static_cast<P*>(t.param) + begin;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  float* master = t.master ? t.master + begin : nullptr;
  const DynamicMap &avg_map = *a.avg_map, &square_map = *a.square_map;
  const vf sign(a.maximize ? -1.f : 1.f), decay(1 - a.lr * a.weight_decay), lerp(1 - a.beta1), beta2(a.beta2),
      fresh(1 - a.beta2), eps(a.eps * __builtin_sqrt(a.bias_correction2)),
      size(a.lr / a.bias_correction1 * __builtin_sqrt(a.bias_correction2));
  alignas(64) float m[kBlock], v[kBlock];
  float signed_levels[256];  // by index
  for (int i = 0; i < 256; ++i) signed_levels[i] = i < 127 ? -avg_map.levels[127 - i] : avg_map.levels[i - 127];
  for (int64_t at = 0; at < count; at += kBlock) {
    int64_t n = count - at < kBlock ? count - at : kBlock, block = (begin + at) / kBlock;
    uint8_t *avg = t.avg + begin + at, *square = t.square + begin + at;
    float m_scale = t.avg_scale[block], v_scale = t.square_scale[block];
    each_vector<float>(
        n, [&](int64_t i, int lanes) __attribute__((always_inline)) {
          store(m + i, gather(signed_levels, load_codes(avg + i, lanes)) * vf(m_scale));
          store(v + i, gather(square_map.levels, load_codes(square + i, lanes)) * vf(v_scale));
        });
    vf m_max(0.f), v_max(0.f);
    each_vector<float>(
        n, [&](int64_t i, int lanes) __attribute__((always_inline)) {
          vf g = load_n(grad + at + i, lanes) * sign,
             p = master ? load_n(master + at + i, lanes) : load_n(param + at + i, lanes);
          vf avg_new = load_n(m + i, lanes), square_new = load_n(v + i, lanes);
          avg_new = fma(lerp, g - avg_new, avg_new);
          square_new = fma(fresh, g * g, square_new * beta2);
          p = p * decay - size * (avg_new / (sqrt(square_new) + eps));
          store_n(m + i, avg_new, lanes);
          store_n(v + i, square_new, lanes);
          if (master) store_n(master + at + i, p, lanes);
          store_n(param + at + i, p, lanes);
          m_max = max(m_max, first_n(abs(avg_new), lanes));
          v_max = max(v_max, first_n(square_new, lanes));
        });
    m_scale = reduce_max(m_max);
    v_scale = reduce_max(v_max);
    t.avg_scale[block] = m_scale;
    t.square_scale[block] = v_scale;
    float m_factor = m_scale > 0 ? 1 / m_scale : 0, v_factor = v_scale > 0 ? 1 / v_scale : 0;
    const vi_raw zero{}, one = zero + 1, middle = zero + 127;
    each_vector<float>(
        n, [&](int64_t i, int lanes) __attribute__((always_inline)) {
          vf x = load(m + i) * vf(m_factor), magnitude = abs(x);
          vi_raw k = nearest(avg_map, magnitude);
          k = (k == zero) & (magnitude > vf(0.f)).m ? one : k;  // the sign of a direction is kept however small it is
          vi_raw below = middle - (k > middle ? middle : k), above = middle + k;
          store_codes(avg + i, (x < vf(0.f)).m ? below : above, lanes);
          store_codes(square + i, nearest(square_map, load(v + i) * vf(v_factor)), lanes);
        });
  }
}

static void quantized_adam(const QuantizedAdamStep& a) {
  each_piece(a.tensors, a.count, kBlock, [&](const QuantizedTensor& t, int64_t begin, int64_t count) {
    visit_pair(t.param_dtype, t.grad_dtype, [&](auto p, auto g) {
      using P = typename decltype(p)::type;
      using G = typename decltype(g)::type;
      if constexpr (sizeof(P) < 8 && sizeof(G) < 8) quantized_update<P, G>(a, t, begin, count);
    });
  });
}
static bool quantized_adam_supports(const QuantizedAdamStep& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (a.tensors[i].param_dtype == kFloat64 || !is_pair(a.tensors[i].param_dtype, a.tensors[i].grad_dtype))
      return false;
  return true;
}
SF_KERNEL(optim::quantized_adam_step, DeviceType::CPU, "native", SF_ISA_PRIORITY, quantized_adam,
          quantized_adam_supports)

}  // namespace SF_ISA
}  // namespace sf
