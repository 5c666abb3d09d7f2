// Recurrent layers on the CPU, float32: what their kernels share. Included only by *.cpu.cpp and *.amx.cpp files;
// everything lives in namespace sf::SF_ISA.
//
// Sequences of a batch do not know each other: each thread takes some of them through all time steps, and nobody waits
// for anybody. The recurrent weight is packed once for all steps; a step is one product with it and one pass over the
// gates, which are still in L1 or L2.
//
// Step<K> is that product, made of the packed weight; each thread has its own. Called with (a, rows, c, beta) it makes
// c[rows, n] = a[rows, k] times the weight, plus beta * c, where beta is 0 or 1. Its gated<kGates>(h, rows, size, f)
// multiplies too and calls f(row, sums, step, first, columns) for the columns of each row, when these are there; those
// of gate g are at sums + g * step. f.fetch(row, first) may be called some time before.
#pragma once
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/matmul/row_gemm.h"
#include "scaffolding/ops/recurrent/kernel.h"

namespace sf {
namespace SF_ISA {

// Scratch of a thread beside that of the products: the recurrent part of a step's gates.
inline constexpr int kSlotSteps = 7;
// Rows below which a thread would read the weight for too little.
inline constexpr int64_t kLeastRows = 8;

template <RecurrentCell kCell>
inline constexpr int64_t kGates = kCell == RecurrentCell::Lstm  ? 4
                                  : kCell == RecurrentCell::Gru ? 3
                                                                : 1;

template <class F> SF_INLINE void visit_cell(RecurrentCell cell, F f) {
  switch (cell) {
    case RecurrentCell::Lstm: return f(std::integral_constant<RecurrentCell, RecurrentCell::Lstm>{});
    case RecurrentCell::Gru: return f(std::integral_constant<RecurrentCell, RecurrentCell::Gru>{});
    case RecurrentCell::Tanh: return f(std::integral_constant<RecurrentCell, RecurrentCell::Tanh>{});
    default: return f(std::integral_constant<RecurrentCell, RecurrentCell::Relu>{});
  }
}

static const float* floats(const TensorView& v) { return v ? v.as<const float>() : nullptr; }
static float* written(const TensorView& v) { return v ? v.as<float>() : nullptr; }
template <class T> SF_INLINE T* past(T* p, int64_t count) { return p ? p + count : nullptr; }

// f(t, first, known, active, before) for each step in the order of time for rows first.. of the thread's from..to:
// rows up to `known` go on from the step that has its rows from `before` on, those up to `active` begin.
template <class F> SF_INLINE void each_step(const RecurrentSteps& s, int64_t from, int64_t to, F f) {
  int64_t before = 0, known = from;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t t = s.reverse ? s.count - 1 - i : i, active = min64(s.starts[t + 1] - s.starts[t], to);
    if (active <= from) continue;
    f(t, min64(known, active), active, before);
    before = s.starts[t];
    known = active;
  }
}

// ---- forward. Some columns of one row: x and s are the parts of its gates, `x_step` and `s_step` apart, h and c those
// of the step before.

struct ForwardRow {
  const float *x, *s, *h, *c, *bias;
  float *output, *cell, *gates;  // gates: null when nobody asks
  int64_t x_step, s_step;
};

template <RecurrentCell kCell> SF_INLINE void forward_row(const ForwardRow& r, int64_t columns) {
  each_vector<float>(
      columns, [&](int64_t j, int n) __attribute__((always_inline)) {
        auto gate = [&](int64_t g) __attribute__((always_inline)) {
          return vf(load_n(r.x + g * r.x_step + j, n)) + vf(load_n(r.s + g * r.s_step + j, n));
        };
        if constexpr (kCell == RecurrentCell::Lstm) {
          const vf in = sigmoid(gate(0)), forget = sigmoid(gate(1)), value = tanh(gate(2)), out = sigmoid(gate(3));
          const vf c = fma(forget, vf(load_n(r.c + j, n)), in * value);
          store_n(r.cell + j, c, n);
          store_n(r.output + j, out * tanh(c), n);
          if (r.gates) {
            store_n(r.gates + j, in, n);
            store_n(r.gates + r.x_step + j, forget, n);
            store_n(r.gates + 2 * r.x_step + j, value, n);
            store_n(r.gates + 3 * r.x_step + j, out, n);
          }
        } else if constexpr (kCell == RecurrentCell::Gru) {
          auto bias = [&](int64_t g) __attribute__((always_inline)) {
            return r.bias ? vf(load_n(r.bias + g * r.x_step + j, n)) : vf(0.f);
          };
          const vf reset = sigmoid(gate(0) + bias(0)), update = sigmoid(gate(1) + bias(1));
          const vf hidden = vf(load_n(r.s + 2 * r.s_step + j, n)) + bias(2);
          const vf value = tanh(fma(reset, hidden, vf(load_n(r.x + 2 * r.x_step + j, n))));
          store_n(r.cell + j, hidden, n);
          store_n(r.output + j, fma(update, vf(load_n(r.h + j, n)) - value, value), n);
          if (r.gates) {
            store_n(r.gates + j, reset, n);
            store_n(r.gates + r.x_step + j, update, n);
            store_n(r.gates + 2 * r.x_step + j, value, n);
          }
        } else if constexpr (kCell == RecurrentCell::Tanh) {
          store_n(r.output + j, tanh(gate(0)), n);
        } else {
          store_n(r.output + j, max(vf(0.f), gate(0)), n);  // a NaN comes through
        }
      });
}

// What follows a step's product, of rows whose inputs begin at `at` and whose states of the step before are h and c.
template <RecurrentCell kCell> struct ForwardGates {
  const RecurrentForward& a;
  int64_t at, size;
  const float *h, *c;

  SF_INLINE void operator()(int64_t row, const float* sums, int64_t s_step, int64_t j, int64_t columns) const {
    const int64_t i = (at + row) * size + j, wide = (at + row) * kGates<kCell> * size + j;
    forward_row<kCell>(
        {floats(a.input) + wide, sums, h + row * size + j, past(c, row * size + j), past(floats(a.bias), j),
         written(a.output) + i, past(written(a.cells), i), past(written(a.gates), wide), size, s_step},
        columns);
  }
  // A line of each that will be read or written there: rows are pages apart, which no processor foresees.
  SF_INLINE void fetch(int64_t row, int64_t j) const {
    const int64_t i = (at + row) * size + j, wide = (at + row) * kGates<kCell> * size + j;
    for (int64_t g = 0; g < kGates<kCell>; ++g) __builtin_prefetch(floats(a.input) + wide + g * size);
    __builtin_prefetch(floats(a.output) + i, 1);
    if (a.cells) __builtin_prefetch(floats(a.cells) + i, 1);
  }
};

template <RecurrentCell kCell, class Step>
void forward_sequences(const RecurrentForward& a, const Step& multiply, int64_t from, int64_t to) {
  const int64_t size = a.weight.sizes[1];
  const float *h0 = floats(a.h0), *c0 = floats(a.c0), *output = floats(a.output), *cells = floats(a.cells);
  each_step(a.steps, from, to, [&](int64_t t, int64_t known, int64_t active, int64_t before) {
    const int64_t start = a.steps.starts[t];
    auto rows = [&](int64_t first, int64_t last, const float* h, const float* c) {  // h and c: those of row 0
      if (first >= last) return;
      h += first * size;
      multiply.template gated<kGates<kCell>>(h, last - first, size,
                                             ForwardGates<kCell>{a, start + first, size, h, past(c, first * size)});
    };
    rows(from, known, output + before * size, past(cells, before * size));
    rows(known, active, h0, c0);
    // Sequences that end here.
    const bool last_step = a.steps.reverse ? t == 0 : t + 1 == a.steps.count;
    const int64_t next = a.steps.reverse || last_step ? 0 : a.steps.starts[t + 2] - a.steps.starts[t + 1];
    const int64_t ends = last_step ? from : a.steps.reverse ? active : max64(from, min64(active, next));
    const size_t bytes = size_t(active - ends) * size_t(size) * sizeof(float);
    __builtin_memcpy(a.h_n.as<float>() + ends * size, output + (start + ends) * size, bytes);
    if (kCell == RecurrentCell::Lstm)
      __builtin_memcpy(a.c_n.as<float>() + ends * size, cells + (start + ends) * size, bytes);
  });
}

// ---- backward. One row: dh and dc come from the steps after and leave for the step before, except what of dh comes
// through the product.

struct BackwardRow {
  const float *gates, *cell, *c, *h, *output, *doutput;  // c, h: of the step before; doutput may be null
  float *dh, *dc, *dinput, *dhidden;
};

template <RecurrentCell kCell> SF_INLINE void backward_row(const BackwardRow& r, int64_t size) {
  const vf one(1.f);
  each_vector<float>(
      size, [&](int64_t j, int n) __attribute__((always_inline)) {
        auto gate = [&](int64_t g) __attribute__((always_inline)) { return vf(load_n(r.gates + g * size + j, n)); };
        vf dh = load_n(r.dh + j, n);
        if (r.doutput) dh += vf(load_n(r.doutput + j, n));
        if constexpr (kCell == RecurrentCell::Lstm) {
          const vf in = gate(0), forget = gate(1), value = gate(2), out = gate(3);
          const vf squashed = tanh(vf(load_n(r.cell + j, n)));
          const vf dc = fma(dh * out, one - squashed * squashed, vf(load_n(r.dc + j, n)));
          store_n(r.dinput + j, dc * value * in * (one - in), n);
          store_n(r.dinput + size + j, dc * vf(load_n(r.c + j, n)) * forget * (one - forget), n);
          store_n(r.dinput + 2 * size + j, dc * in * (one - value * value), n);
          store_n(r.dinput + 3 * size + j, dh * squashed * out * (one - out), n);
          store_n(r.dc + j, dc * forget, n);
        } else if constexpr (kCell == RecurrentCell::Gru) {
          const vf reset = gate(0), update = gate(1), value = gate(2);
          const vf dvalue = dh * (one - update) * (one - value * value);
          const vf dreset = dvalue * vf(load_n(r.cell + j, n)) * reset * (one - reset);
          const vf dupdate = dh * (vf(load_n(r.h + j, n)) - value) * update * (one - update);
          store_n(r.dinput + j, dreset, n);
          store_n(r.dinput + size + j, dupdate, n);
          store_n(r.dinput + 2 * size + j, dvalue, n);
          store_n(r.dhidden + j, dreset, n);
          store_n(r.dhidden + size + j, dupdate, n);
          store_n(r.dhidden + 2 * size + j, dvalue * reset, n);
          store_n(r.dh + j, dh * update, n);
        } else {
          const vf y = load_n(r.output + j, n);
          if constexpr (kCell == RecurrentCell::Tanh) store_n(r.dinput + j, dh * (one - y * y), n);
          else store_n(r.dinput + j, select(y > vf(0.f), dh, vf(0.f)), n);
        }
      });
}

// The steps in the order of time once more, from the last to the first.
template <class F> SF_INLINE void each_step_back(const RecurrentSteps& s, int64_t from, int64_t to, F f) {
  auto active_in = [&](int64_t t) { return min64(s.starts[t + 1] - s.starts[t], to); };
  for (int64_t i = s.count; i-- > 0;) {
    const int64_t t = s.reverse ? s.count - 1 - i : i, active = active_in(t);
    if (active <= from) continue;
    const int64_t t_before = s.reverse ? t + 1 : t - 1;
    const int64_t known = i == 0 ? from : max64(from, min64(active, active_in(t_before)));
    f(t, known, active, i == 0 ? 0 : s.starts[t_before]);
  }
}

template <RecurrentCell kCell, class Step>
void backward_sequences(const RecurrentBackward& a, const Step& multiply, int64_t from, int64_t to) {
  constexpr int64_t G = kGates<kCell>;
  const int64_t size = a.weight.sizes[1], wide = G * size;
  const float *gates = floats(a.gates), *cells = floats(a.cells), *output = floats(a.output), *h0 = floats(a.h0),
              *c0 = floats(a.c0), *doutput = floats(a.doutput);
  float *dh = written(a.dh0), *dc = written(a.dc0), *dinput = written(a.dinput), *dhidden = written(a.dhidden),
        *before_all = written(a.before);
  const size_t all = size_t((to - from) * size) * sizeof(float);
  auto begin_with = [&](float* d, const float* given) {
    if (given) __builtin_memcpy(d + from * size, given + from * size, all);
    else __builtin_memset(d + from * size, 0, all);
  };
  begin_with(dh, floats(a.dh_n));
  if (dc) begin_with(dc, floats(a.dc_n));
  each_step_back(a.steps, from, to, [&](int64_t t, int64_t known, int64_t active, int64_t before) {
    const int64_t start = a.steps.starts[t];
    auto rows = [&](int64_t first, int64_t last, const float* h, const float* c) {
      if (first >= last) return;
      __builtin_memcpy(before_all + (start + first) * size, h + first * size,
                       size_t((last - first) * size) * sizeof(float));
      for (int64_t b = first; b < last; ++b) {
        const int64_t at = start + b;
        backward_row<kCell>(
            {past(gates, at * wide), past(cells, at * size), past(c, b * size), h + b * size, output + at * size,
             past(doutput, at * size), dh + b * size, past(dc, b * size), dinput + at * wide, past(dhidden, at * wide)},
            size);
      }
    };
    rows(from, known, output + before * size, past(cells, before * size));
    rows(known, active, h0, c0);
    const float* through = (kCell == RecurrentCell::Gru ? dhidden : dinput) + (start + from) * wide;
    multiply(through, active - from, dh + from * size, kCell == RecurrentCell::Gru);
  });
}

// ---- the whole

// gated() of a step that gives its product, n wide, whole.
template <class Step, class F>
void gated_by_rows(const Step& multiply, const float* h, int64_t rows, int64_t n, int64_t size, const F& f) {
  auto* sums = static_cast<float*>(scratch(size_t(rows * n) * sizeof(float), kSlotSteps));
  multiply(h, rows, sums, 0);
  for (int64_t row = 0; row < rows; ++row) f(row, sums + row * n, size, 0, size);
}

// By multiply-adds, from where the rows lie.
template <class K> class LyingStep {
 public:
  LyingStep(const Product<K, float>& p, const PackedShape<K>& s, const float* packed)
      : s_(s), packed_(packed), n_(p.n) {}

  void operator()(const float* a, int64_t rows, float* c, double beta) const {
    Epilogue e{};
    e.c = c;
    e.c_row = n_;
    e.c_type = kFloat32;
    e.act = Activation::None;
    e.alpha = 1;
    e.beta = beta;
    multiply_row_blocks<1>(LyingRows<1>{{a}, s_.k}, s_, packed_, n_, 0, rows, 0, s_.strips, StoreTile(e));
  }
  template <int64_t kGates, class F> void gated(const float* h, int64_t rows, int64_t size, const F& f) const {
    gated_by_rows(*this, h, rows, n_, size, f);
  }

 private:
  const PackedShape<K>& s_;
  const float* packed_;
  int64_t n_;
};

// weight^T[H, G H] for the forward pass, weight[G H, H] for the backward pass, packed. rest: watch_packing().
template <class K> Product<K, float> weight_operand(const TensorView& w, bool transposed, bool* rest) {
  const int64_t wide = w.sizes[0], size = w.sizes[1];
  if (transposed) return {0, wide, size, nullptr, 0, 0, w.as<const float>(), 1, size, {}, rest};
  return {0, size, wide, nullptr, 0, 0, w.as<const float>(), size, 1, {}, rest};
}

template <class K, template <class> class Step> void forward_by(const RecurrentForward& a, bool* rest = nullptr) {
  using Unit = typename K::Unit;
  const auto p = weight_operand<K>(a.weight, true, rest);
  const PackedShape<K> s(p.k, p.n);
  auto fill = [&](void* to) {
    pack_whole_b<K>(p, s, static_cast<Unit*>(to));
    remember_rest<K>(p, s, to);
  };
  auto run = [&](const void* packed) {
    recall_rest<K>(p, s, packed);
    if (rest && *rest) return;
    visit_cell(a.steps.cell, [&](auto cell) {
      parallel_for(a.h0.sizes[0], kLeastRows, [&](int64_t from, int64_t to) {
        forward_sequences<cell.value>(a, Step<K>(p, s, static_cast<const Unit*>(packed)), from, to);
      });
    });
  };
  const cpu::PackedKey key{
      p.b, a.weight_version, 1 + SF_ISA_PRIORITY, {int64_t(kFloat32), p.k, p.n, p.b_k, p.b_n}, sizeof(Unit)};
  cpu::PackedWeight kept(key, s.bytes(), fill);
  if (kept.get()) return run(kept.get());
  void* packed = scratch(s.bytes(), kSlotB);
  fill(packed);
  run(packed);
}

template <class K, template <class> class Step> void backward_by(const RecurrentBackward& a, bool* rest = nullptr) {
  using Unit = typename K::Unit;
  const auto p = weight_operand<K>(a.weight, false, rest);
  const PackedShape<K> s(p.k, p.n);
  auto* packed = static_cast<Unit*>(scratch(s.bytes(), kSlotB));
  pack_whole_b<K>(p, s, packed);
  if (rest && *rest) return;
  visit_cell(a.steps.cell, [&](auto cell) {
    parallel_for(a.h0.sizes[0], kLeastRows,
                 [&](int64_t from, int64_t to) { backward_sequences<cell.value>(a, Step<K>(p, s, packed), from, to); });
  });
}

}  // namespace SF_ISA
}  // namespace sf
