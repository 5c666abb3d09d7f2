#include "scaffolding/models/adapters/fuse_lora.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// Of a weight's rows, so many that their float32 sums stay in a core's cache: 512 KB.
constexpr int64_t kPieceElements = 1 << 17;

// up[N, R] @ down[R, K] is what is added to a weight, float32.
struct Factors {
  Tensor up, down;
};
Factors factors_of(const WeightUpdate& u, double scale) {
  Tensors ups, downs;
  for (auto& t : u.terms) {
    const LoraTerm ready = LoraPath::ready(*u.layer, t, kFloat32, u.weight.device());
    ups.push_back(ready.up.flatten(1) * (ready.scale * scale));
    downs.push_back(ready.down.flatten(1));
  }
  if (ups.size() == 1) return {ups[0], downs[0]};
  return {cat(ups, 1), cat(downs, 0)};
}

struct Piece {
  size_t update;
  int64_t row, rows;
};
std::vector<Piece> pieces_of(const std::vector<WeightUpdate>& updates) {
  std::vector<Piece> out;
  for (size_t i = 0; i < updates.size(); ++i) {
    const Tensor& weight = updates[i].weight;
    const int64_t n = weight.size(0),
                  each = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, weight.numel() / n));
    const int64_t step = weight.device().is_cpu() ? each : n;  // on a GPU a piece is some launches
    for (int64_t row = 0; row < n; row += step) out.push_back({i, row, std::min(step, n - row)});
  }
  return out;
}

template <class F> void for_each(int64_t n, bool on_cpu, const F& f) {
  auto run = [&](int64_t begin, int64_t end) {
    autograd::NoGrad off;  // a worker's own mode
    for (int64_t i = begin; i < end; ++i) f(size_t(i));
  };
  if (on_cpu) parallel_for(n, 1, run);
  else run(0, n);
}

}  // namespace

Tensor fused_weight(nn::Module& layer) {
  if (auto* linear = dynamic_cast<nn::Linear*>(&layer)) return linear->weight;
  if (auto* conv = dynamic_cast<nn::Conv2d*>(&layer); conv && !dynamic_cast<nn::StoredWeight*>(conv))
    return conv->weight;
  return {};
}

std::map<std::string, Tensor> fuse_lora(const std::vector<WeightUpdate>& updates, double scale, bool safe) {
  if (updates.empty()) return {};
  autograd::NoGrad off;
  const bool on_cpu = updates[0].weight.device().is_cpu();
  std::vector<Factors> factors(updates.size());
  std::vector<Tensor> old(updates.size());
  for_each(int64_t(updates.size()), on_cpu, [&](size_t i) {
    factors[i] = factors_of(updates[i], scale);
    const Tensor& w = updates[i].weight;
    old[i] = on_cpu ? empty_strided(w.shape(), w.strides(), w.dtype(), w.device()) : Tensor();
  });
  const std::vector<Piece> pieces = pieces_of(updates);
  auto sum_of = [&](const Piece& p) {
    const Factors& f = factors[p.update];
    const Tensor rows = updates[p.update].weight.narrow(0, p.row, p.rows);
    Tensor sum = matmul(f.up.narrow(0, p.row, p.rows), f.down).reshape(rows.shape());
    return sum.add_(rows);
  };
  if (safe)
    for_each(int64_t(pieces.size()), on_cpu, [&](size_t i) {
      SF_CHECK(all_finite(sum_of(pieces[i])), "fuse_lora: the sum of ", updates[pieces[i].update].name,
               " is NaN or infinite; the adapter is broken");
    });
  for_each(int64_t(pieces.size()), on_cpu, [&](size_t i) {
    const Piece& p = pieces[i];
    Tensor rows = updates[p.update].weight.narrow(0, p.row, p.rows);
    if (on_cpu) old[p.update].narrow(0, p.row, p.rows).copy_(rows);
    else old[p.update] = rows.clone().to(Device());
    rows.copy_(sum_of(p));
  });
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < updates.size(); ++i) out.emplace(updates[i].name, old[i]);
  return out;
}

void put_back(const std::vector<std::pair<Tensor, Tensor>>& weights) {
  for (auto& [weight, was] : weights)
    SF_CHECK(weight,
             "unfuse_lora: the weights were quantised after fuse_lora(), with the adapters in them; load the "
             "model anew");
  const bool on_cpu = std::all_of(weights.begin(), weights.end(), [](auto& w) { return w.first.device().is_cpu(); });
  for_each(int64_t(weights.size()), on_cpu, [&](size_t i) {
    Tensor weight = weights[i].first;
    weight.copy_(weights[i].second);
  });
}

}  // namespace sf::models
