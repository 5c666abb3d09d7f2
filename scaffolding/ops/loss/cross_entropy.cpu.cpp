// Cross entropy with class indices: one row of logits at a time, read from memory once (the second and third pass find
// it in the cache). Only the maximum and log(sum(exp(x - maximum))) of each row are kept for the backward pass, which
// recomputes the probabilities.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/loss/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

template <class T> SF_INLINE Acc<T> row_max(const T* x, int64_t C) {
  constexpr int L = kVec<T>;
  Vec<T> a(Acc<T>(-__builtin_inf())), b = a;
  int64_t i = 0;
  for (; i + 2 * L <= C; i += 2 * L) {  // NaN is skipped here: its exponential is found later
    a = max(load(x + i), a);
    b = max(load(x + i + L), b);
  }
  for (; i + L <= C; i += L) a = max(load(x + i), a);
  if (L > 1 && i < C) b = max(load_n(x + i, int(C - i), scalar(x[i])), b);
  return reduce_max(max(a, b));
}

template <class T> void forward_rows(const CrossEntropyForward& f) {
  using A = Acc<T>;
  int64_t R = f.x.sizes[0], C = f.x.sizes[1];
  auto* w = f.weight.as<const A>();
  A smooth = A(f.label_smoothing), share = A(f.label_smoothing / double(C)), weights = A(C);
  if (w && smooth != 0)
    weights = sum_vectors<A>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) { return load_n(w + i, n); });
  parallel_for(R, row_grain(C), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = f.x.as<const T>() + r * C;
      int64_t t = f.target.as<const int64_t>()[r];
      A top = row_max<T>(x, C);
      Vec<T> shift(top);
      A total = sum_vectors<T>(
          C, [&](int64_t i, int n)
                 __attribute__((always_inline)) { return first_n(exp(load_n(x + i, n) - shift), n); });
      A rest = SF_ISA::log(total), loss = 0, weight = 0;
      if (t != f.ignore_index) {
        weight = w ? w[t] : A(1);
        loss = (A(1) - smooth) * weight * (rest - (scalar(x[t]) - top));
        if (smooth != 0) {
          A dot = w ? sum_vectors<T>(
                          C, [&](int64_t i, int n)
                                 __attribute__((always_inline)) { return load_n(x + i, n) * load_n(w + i, n); })
                    : sum_vectors<T>(
                          C, [&](int64_t i, int n) __attribute__((always_inline)) { return load_n(x + i, n); });
          loss += share * ((top + rest) * weights - dot);
        }
      }
      f.loss.as<A>()[r] = loss;
      f.lse.as<A>()[2 * r] = top;
      f.lse.as<A>()[2 * r + 1] = rest;
      f.row_weight.as<A>()[r] = weight;
    }
  });
}

template <class T> void backward_rows(const CrossEntropyBackward& b) {
  using A = Acc<T>;
  using V = Vec<T>;
  int64_t R = b.x.sizes[0], C = b.x.sizes[1];
  auto* w = b.weight.as<const A>();
  A smooth = A(b.label_smoothing), share = A(b.label_smoothing / double(C)), weights = A(C);
  if (w && smooth != 0)
    weights = sum_vectors<A>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) { return load_n(w + i, n); });
  parallel_for(R, row_grain(C), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = b.x.as<const T>() + r * C;
      T* dx = b.dx.as<T>() + r * C;
      int64_t t = b.target.as<const int64_t>()[r];
      if (t == b.ignore_index) {
        each_vector<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) { store_n(dx + i, V(A(0)), n); });
        continue;
      }
      // dx[c] = g ((1-s) w[t] + s/C sum w) p[c] - g s/C w[c], less g (1-s) w[t] at the target.
      A g = b.dy.as<const A>()[r * b.dy.strides[0]], of_target = g * (A(1) - smooth) * (w ? w[t] : A(1));
      A top = b.lse.as<const A>()[2 * r], rest = b.lse.as<const A>()[2 * r + 1];
      V scale(of_target + g * share * weights), shift(top), log_total(rest), spread(g * share);
      if (w && smooth != 0) {
        each_vector<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) {
              store_n(dx + i, scale * exp(load_n(x + i, n) - shift - log_total) - spread * load_n(w + i, n), n);
            });
      } else {
        each_vector<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) {
              store_n(dx + i, scale * exp(load_n(x + i, n) - shift - log_total) - spread, n);
            });
      }
      // In full precision, not from the rounded dx[t].
      A p = SF_ISA::exp(scalar(x[t]) - top - rest);
      A total = of_target + g * share * weights;
      dx[t] = narrowed<T>(total * p - g * share * (w ? w[t] : A(1)) - of_target);
    }
  });
}

void forward(const CrossEntropyForward& f) {
  visit_floating(f.x.dtype, [&](auto tag) { forward_rows<typename decltype(tag)::type>(f); });
}
void backward(const CrossEntropyBackward& b) {
  visit_floating(b.x.dtype, [&](auto tag) { backward_rows<typename decltype(tag)::type>(b); });
}
bool forward_supports(const CrossEntropyForward& f) { return computes(f.x.dtype) && f.x.sizes[1] > 0; }
bool backward_supports(const CrossEntropyBackward& b) { return computes(b.x.dtype) && b.x.sizes[1] > 0; }

SF_KERNEL(cross_entropy_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(cross_entropy_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
