// GEGLU and SwiGLU on the CPU: both halves are read and the product written once; one pass, no scratch memory.
#include "scaffolding/ops/fused/glu/kernel.h"

#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// act(x) and act'(x); the derivative is dead code where only the value is used.
template <GluActivation kAct, class V> SF_INLINE static V activate(V x, V& derivative) {
  const V one(1.f);
  if constexpr (kAct == GluActivation::Gelu) {
    V density, cdf = normal_cdf(x, density);
    derivative = fma(x, density, cdf);
    return x * cdf;
  } else if constexpr (kAct == GluActivation::GeluTanh) {
    // 0.5 (1 + tanh u) = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): one exponential, no cancellation for x << 0
    V s = sigmoid(V(1.5957691216057308) * fma(x * x, x * V(0.044715), x));
    derivative = fma(x * s * (one - s), V(1.5957691216057308) * fma(x * x, V(3 * 0.044715), one), s);
    return x * s;
  } else if constexpr (kAct == GluActivation::Silu) {
    V s = sigmoid(x);
    derivative = fma(x * s, one - s, s);
    return x * s;
  } else if constexpr (kAct == GluActivation::Sigmoid) {
    V s = sigmoid(x);
    derivative = s * (one - s);
    return s;
  } else {
    derivative = select(x > V(0.f), one, V(0.f));
    return maximum(x, V(0.f));
  }
}

template <class F> SF_INLINE static void visit_activation(GluActivation act, F f) {
  switch (act) {
    case GluActivation::Gelu: return f(std::integral_constant<GluActivation, GluActivation::Gelu>{});
    case GluActivation::GeluTanh: return f(std::integral_constant<GluActivation, GluActivation::GeluTanh>{});
    case GluActivation::Silu: return f(std::integral_constant<GluActivation, GluActivation::Silu>{});
    case GluActivation::Sigmoid: return f(std::integral_constant<GluActivation, GluActivation::Sigmoid>{});
    default: return f(std::integral_constant<GluActivation, GluActivation::Relu>{});
  }
}

// Work is cut by elements, not rows: [1, 10240] of a one-token step uses every thread.
template <class F> SF_INLINE static void each_row_piece(int64_t R, int64_t C, F f) {
  parallel_for(R * C, 16384, [=](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      int64_t r = at / C, c = at % C, n = C - c < end - at ? C - c : end - at;
      f(r, c, n);
      at += n;
    }
  });
}

template <class T, GluActivation kAct> static void forward_rows(const GluForward& a) {
  const T *hidden = a.hidden.as<const T>(), *gate = a.gate.as<const T>();
  T* y = a.y.as<T>();
  int64_t hs = a.hidden.strides[0], gs = a.gate.strides[0], ys = a.y.strides[0];
  each_row_piece(a.y.sizes[0], a.y.sizes[1], [=](int64_t r, int64_t c, int64_t count) {
    const T *h = hidden + r * hs + c, *g = gate + r * gs + c;
    T* out = y + r * ys + c;
    each_vector<T>(
        count, [&](int64_t i, int n) __attribute__((always_inline)) {
          Vec<T> unused;
          store_n(out + i, load_n(h + i, n) * activate<kAct>(load_n(g + i, n), unused), n);
        });
  });
}

template <class T, GluActivation kAct> static void backward_rows(const GluBackward& a) {
  const T *hidden = a.hidden.as<const T>(), *gate = a.gate.as<const T>(), *dy = a.dy.as<const T>();
  T *dhidden = a.dhidden.as<T>(), *dgate = a.dgate.as<T>();
  int64_t hs = a.hidden.strides[0], gs = a.gate.strides[0], ys = a.dy.strides[0], dhs = a.dhidden.strides[0],
          dgs = a.dgate.strides[0];
  each_row_piece(a.dy.sizes[0], a.dy.sizes[1], [=](int64_t r, int64_t c, int64_t count) {
    const T *h = hidden + r * hs + c, *g = gate + r * gs + c, *d = dy + r * ys + c;
    T *dh = dhidden + r * dhs + c, *dg = dgate + r * dgs + c;
    each_vector<T>(
        count, [&](int64_t i, int n) __attribute__((always_inline)) {
          Vec<T> slope, v = load_n(d + i, n), value = activate<kAct>(load_n(g + i, n), slope),
                        scaled = v * load_n(h + i, n);
          store_n(dh + i, v * value, n);
          store_n(dg + i, scaled * slope, n);
        });
  });
}

static void forward(const GluForward& a) {
  visit_floating(a.y.dtype, [&](auto tag) {
    visit_activation(a.act, [&](auto act) { forward_rows<typename decltype(tag)::type, act.value>(a); });
  });
}
static void backward(const GluBackward& a) {
  visit_floating(a.dy.dtype, [&](auto tag) {
    visit_activation(a.act, [&](auto act) { backward_rows<typename decltype(tag)::type, act.value>(a); });
  });
}
SF_INLINE static bool rows_of(const TensorView& v, const TensorView& y) {
  return v.ndim == 2 && v.dtype == y.dtype && (v.strides[1] == 1 || v.sizes[1] == 1);
}
static bool forward_supports(const GluForward& a) {
  return computes(a.y.dtype) && rows_of(a.y, a.y) && rows_of(a.hidden, a.y) && rows_of(a.gate, a.y);
}
static bool backward_supports(const GluBackward& a) {
  return computes(a.dy.dtype) && rows_of(a.dy, a.dy) && rows_of(a.hidden, a.dy) && rows_of(a.gate, a.dy) &&
         rows_of(a.dhidden, a.dy) && rows_of(a.dgate, a.dy);
}

SF_KERNEL(glu_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(glu_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
