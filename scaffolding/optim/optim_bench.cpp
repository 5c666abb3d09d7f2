#include "benchmarks/bench.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/optim/optim.h"

namespace sf::bench {

namespace {

constexpr int64_t kCount = 50'000'000;

// 50 million parameters, with gradients: each tensor has half of what is left, down to a thousand.
Tensors parameters(DType t) {
  Tensors out;
  for (int64_t left = kCount; left > 0;) {
    int64_t n = std::min(left, std::max<int64_t>(left / 2, 1000));
    left -= n;
    Tensor p = full({n}, 0.5, t), g = full({n}, 0.01, t);
    p.requires_grad_();
    p.set_grad(g);
    out.push_back(p);
  }
  return out;
}

template <class Optimizer, class Options> std::function<void()> stepping(DType t, const Options& options) {
  return [opt = std::make_shared<Optimizer>(parameters(t), options)] { opt->step(); };
}

}  // namespace

static Rows optim_rows([](std::vector<Row>& rows) {
  // Bytes a parameter: float32 AdamW reads p, g, m, v and writes p, m, v.
  rows.push_back({"AdamW 50M f32", Roof::Copy, 28.0 * kCount, share(0.8),
                  [] { return stepping<optim::AdamW>(kFloat32, optim::AdamWOptions{}); }});
  rows.push_back({"AdamW 50M bf16, master weights", Roof::Copy, 28.0 * kCount, share(0.8),
                  [] { return stepping<optim::AdamW>(kBFloat16, optim::AdamWOptions{.master_weights = true}); }});
  rows.push_back({"AdamW8bit 50M f32", Roof::Copy, 16.0 * kCount, {}, [] {
                    return stepping<optim::AdamW8bit>(kFloat32, optim::AdamW8bitOptions{});
                  }});
  rows.push_back({"SGD momentum 50M f32", Roof::Copy, 20.0 * kCount, share(0.8),
                  [] { return stepping<optim::SGD>(kFloat32, optim::SGDOptions{.momentum = 0.9}); }});
});

}  // namespace sf::bench
