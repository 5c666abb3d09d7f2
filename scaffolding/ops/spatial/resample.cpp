#include "scaffolding/ops/spatial/resample.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/parallel.h"

namespace sf {

constinit KernelTable<Resample> resample_kernel{"resample"};

namespace spatial {

Taps make_taps(int64_t inputs, const std::vector<std::vector<std::pair<int64_t, double>>>& lists) {
  Taps t;
  t.inputs = inputs;
  for (auto& list : lists) {
    int64_t first = list.empty() ? 0 : inputs, last = -1;
    for (auto& [i, w] : list) {
      first = std::min(first, i);
      last = std::max(last, i);
    }
    t.start.push_back(int32_t(first));
    t.count.push_back(int32_t(last < 0 ? 0 : last - first + 1));
    t.width = std::max<int64_t>(t.width, t.count.back());
  }
  int64_t n = t.outputs();
  t.weight.assign(size_t(n * t.width), 0);
  t.identity = n == inputs;
  for (int64_t o = 0; o < n; ++o) {
    for (auto& [i, w] : lists[size_t(o)]) t.weight[size_t(o * t.width + i - t.start[size_t(o)])] += w;
    t.identity = t.identity && t.start[size_t(o)] == o && t.count[size_t(o)] == 1 && t.weight[size_t(o * t.width)] == 1;
  }
  t.weight32.assign(t.weight.begin(), t.weight.end());
  t.by_tap.resize(t.weight.size());
  for (int64_t o = 0; o < n; ++o)
    for (int64_t k = 0; k < t.width; ++k) t.by_tap[size_t(k * n + o)] = t.weight32[size_t(o * t.width + k)];
  for (int64_t b = 0, o = 0; o <= n; ++o)
    if (o == n || t.count[size_t(o)] != t.width) {
      if (o - b > t.full_end - t.full_begin) {
        t.full_begin = b;
        t.full_end = o;
      }
      b = o + 1;
    }
  return t;
}

Taps transposed(const Taps& t) {
  std::vector<std::vector<std::pair<int64_t, double>>> lists(size_t(t.inputs));
  for (int64_t o = 0; o < t.outputs(); ++o)
    for (int64_t k = 0; k < t.count[size_t(o)]; ++k)
      lists[size_t(t.start[size_t(o)] + k)].push_back({o, t.weight[size_t(o * t.width + k)]});
  return make_taps(t.outputs(), lists);
}

Window adaptive_window(int64_t o, int64_t inputs, int64_t outputs) {
  return {o * inputs / outputs, ((o + 1) * inputs + outputs - 1) / outputs};
}

Taps adaptive_average(int64_t inputs, int64_t outputs) {
  std::vector<std::vector<std::pair<int64_t, double>>> lists(static_cast<size_t>(outputs));
  for (int64_t o = 0; o < outputs; ++o) {
    Window w = adaptive_window(o, inputs, outputs);
    for (int64_t i = w.begin; i < w.end; ++i) lists[size_t(o)].push_back({i, 1 / double(w.end - w.begin)});
  }
  return make_taps(inputs, lists);
}

namespace {

struct Plan {
  Taps forward[3], backward[3];
  Shape in_sizes, out_sizes;
};

TapsView view_of(const Taps& t) {
  return {t.start.data(), t.count.data(), t.weight.data(), t.weight32.data(), t.by_tap.data(),
          t.width,        t.full_begin,   t.full_end,      t.identity};
}

// Channels done together: a row of them is to stay in the second-level cache.
int64_t channels_together(int64_t width, int64_t channels) {
  constexpr int64_t kRow = 1 << 15, kStep = 16;  // 128 KB of float32; whole vectors
  return std::min(channels, std::max(kStep, kRow / std::max<int64_t>(width, 1) / kStep * kStep));
}

Tensor apply(const char* op, const Tensor& x, const std::shared_ptr<const Plan>& p, bool back) {
  Layout l = layout_of(x, p->in_sizes.size());
  const Shape& sizes = back ? p->in_sizes : p->out_sizes;
  Tensor y = empty_result(l, sizes);
  if (y.numel() > 0 && x.numel() == 0) y.zero_();  // the transpose of a map without outputs
  if (y.numel() > 0 && x.numel() > 0) {
    Resample k{l.x.data_ptr(), y.data_ptr(), y.dtype(), l.extent, with_sizes(l, sizes), {}, nullptr, 0, 0};
    for (int d = 0; d < 3; ++d) k.taps[d] = view_of(back ? p->backward[d] : p->forward[d]);
    k.block = channels_together(k.from.size[2], k.from.inner);
    k.scratch_per_thread = k.from.size[2] * k.block + k.to.size[2];
    Tensor scratch =
        empty({num_threads() * k.scratch_per_thread}, x.dtype() == kFloat64 ? kFloat64 : kFloat32, x.device());
    k.scratch = scratch.data_ptr();
    auto kernel = resample_kernel.find(x.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
    kernel(k);
  }
  return autograd::record(op, y, {x}, [op, p, back](const Tensor& dy) -> Tensors { return {apply(op, dy, p, !back)}; });
}

}  // namespace

Tensor resample(const char* op, const Tensor& x, const std::vector<Taps>& taps) {
  auto p = std::make_shared<Plan>();
  int64_t dims = int64_t(taps.size());
  Taps one = make_taps(1, {{{0, 1.0}}});
  for (int64_t d = 0; d < 3; ++d) {
    int64_t i = d - (3 - dims);
    p->forward[d] = i < 0 ? one : taps[size_t(i)];
    p->backward[d] = autograd::any_requires_grad({x}) ? transposed(p->forward[d]) : Taps{};
    if (i < 0) continue;
    p->in_sizes.push_back(p->forward[d].inputs);
    p->out_sizes.push_back(p->forward[d].outputs());
  }
  return apply(op, x, p, false);
}

}  // namespace spatial
}  // namespace sf
