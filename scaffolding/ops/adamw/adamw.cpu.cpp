// AdamW on the CPU: every tensor of the step in one parallel loop over all elements, each read and written once
// (float32: 16 bytes read, 12 written per element). Threads get equal shares of elements, not of tensors.
#include "scaffolding/ops/adamw/kernel.h"

#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// The step's scalars, computed in double and rounded once, as torch does with Python floats. The second correction is
// taken out of the root and into step and eps: one division less per element.
template <class V> struct Scalars {
  V grad, decay, l2, lerp, beta2, square, eps, step;
  explicit Scalars(const AdamWStep& a)
      : grad(a.maximize ? -a.grad_scale : a.grad_scale),
        decay(a.decoupled ? 1 - a.lr * a.weight_decay : 1.0),
        l2(a.decoupled ? 0.0 : a.weight_decay),
        lerp(1 - a.beta1),
        beta2(a.beta2),
        square(1 - a.beta2),
        eps(a.eps * __builtin_sqrt(a.bias_correction2)),
        step(a.lr / a.bias_correction1 * __builtin_sqrt(a.bias_correction2)) {}
};

// m / (sqrt(v) + eps), v >= 0. Exact roots and quotients of 16 floats keep an Intel core's divider busy for 40 cycles,
// longer than L2 takes for the rest of the update; estimates of 14 bits and a Newton step each are within 2 ulp.
template <class V> SF_INLINE V over_root(V m, V v, V eps) { return m / (sqrt(v) + eps); }
#if defined(__AVX512DQ__)
template <> SF_INLINE vf over_root(vf m, vf v, vf eps) {
  const __m512 x = (__m512)v.v, estimate = _mm512_rsqrt14_ps(x);
  const vf r((vf_raw)estimate), half = r * vf(0.5f);
  vf root = v * r;
  root = fma(root, fma(-root, half, vf(0.5f)), root);
  root = (vf_raw)_mm512_mask_mov_ps((__m512)root.v, _mm512_fpclass_ps_mask(x, 0x0e), x);  // of 0 and infinity: itself
  const vf d = min(vf(3.40282347e38f), root + eps);
  vf inverse((vf_raw)_mm512_rcp14_ps((__m512)d.v));
  inverse = fma(inverse, fma(-d, inverse, vf(1.f)), inverse);
  return m * inverse;
}
#endif
constexpr double kLeastEps = 1e-30;  // below, the sum may have no reciprocal

template <class P, class G> static void update(const AdamWStep& a, const AdamWTensor& t, int64_t begin, int64_t count) {
  using V = Vec<P>;
  using A = Acc<P>;
  P* param = static_cast<P*>(t.param) + begin;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  A *avg = static_cast<A*>(t.exp_avg) + begin, *square = static_cast<A*>(t.exp_avg_sq) + begin;
  A* largest = t.max_exp_avg_sq ? static_cast<A*>(t.max_exp_avg_sq) + begin : nullptr;
  A* master = sizeof(P) == 2 && t.master ? reinterpret_cast<A*>(t.master) + begin : nullptr;
  const Scalars<V> s(a);
  const bool divides = a.eps * a.bias_correction2 < kLeastEps;
  each_vector<P>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        V g = load_n(grad + i, n) * s.grad, m = load_n(avg + i, n), v = load_n(square + i, n);
        V p = master ? load_n(master + i, n) : load_n(param + i, n);
        g = fma(s.l2, p, g);
        p = p * s.decay;
        m = fma(s.lerp, g - m, m);
        v = fma(s.square, g * g, v * s.beta2);
        V denominator = v;
        if (largest) {
          denominator = max(load_n(largest + i, n), v);
          store_n(largest + i, denominator, n);
        }
        p -= s.step * (divides ? m / (sqrt(denominator) + s.eps) : over_root(m, denominator, s.eps));
        store_n(avg + i, m, n);
        store_n(square + i, v, n);
        if (master) store_n(master + i, p, n);
        store_n(param + i, p, n);
      });
}

template <class P> static void update_grad(const AdamWStep& a, const AdamWTensor& t, int64_t begin, int64_t count) {
  switch (t.grad_dtype) {
    case kFloat32: return update<P, float>(a, t, begin, count);
    case kBFloat16: return update<P, BFloat16>(a, t, begin, count);
    default: return update<P, Half>(a, t, begin, count);
  }
}

static void step(const AdamWStep& a) {
  int64_t total = 0;
  for (int64_t i = 0; i < a.count; ++i) total += a.tensors[i].numel;
  parallel_for(total, 8192, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // of tensor i, counting through all
    for (int64_t i = 0; i < a.count && first < end; first += a.tensors[i++].numel) {
      const AdamWTensor& t = a.tensors[i];
      int64_t from = begin > first ? begin - first : 0, to = end - first < t.numel ? end - first : t.numel;
      if (from >= to) continue;
      switch (t.param_dtype) {
        case kFloat32: update_grad<float>(a, t, from, to - from); break;
        case kBFloat16: update_grad<BFloat16>(a, t, from, to - from); break;
        case kFloat16: update_grad<Half>(a, t, from, to - from); break;
        default: update<double, double>(a, t, from, to - from); break;
      }
    }
  });
}
static bool supports(const AdamWStep& a) {
  for (int64_t i = 0; i < a.count; ++i) {
    const AdamWTensor& t = a.tensors[i];
    if (!computes(t.param_dtype) || !computes(t.grad_dtype) ||
        (t.param_dtype == kFloat64) != (t.grad_dtype == kFloat64))
      return false;
  }
  return true;
}

SF_KERNEL(adamw_step, DeviceType::CPU, "native", SF_ISA_PRIORITY, step, supports)

}  // namespace SF_ISA
}  // namespace sf
