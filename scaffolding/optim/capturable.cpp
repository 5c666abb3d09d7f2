#include "scaffolding/optim/capturable.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::optim {

std::vector<DeviceCount> advance_device_counts(const char* rule, std::span<Update> updates, size_t slot) {
  const bool capturing = cuda::CudaGraph::recording() != nullptr;
  std::vector<DeviceCount> counts;
  for (size_t i = 0; i < updates.size(); ++i) {
    Tensor& c = updates[i].slots[slot];
    if (!c || c.device() != updates[i].param.device()) {
      SF_CHECK_AS(RuntimeError, !capturing, rule, ".step: the first step makes the state and cannot be captured; call step() once before the capture");
      c = full({}, c ? c.item() : 0.0, kFloat32, updates[i].param.device());
    }
    auto known = std::find_if(counts.begin(), counts.end(), [&](const DeviceCount& d) { return d.count.is_same(c); });
    if (known == counts.end()) known = counts.insert(counts.end(), {c, {}});
    known->members.push_back(i);
  }
  if (counts.size() > 1 && !capturing) {  // new ones, or loaded ones
    std::vector<DeviceCount> merged;
    std::vector<double> values;
    for (DeviceCount& d : counts) {
      double value = d.count.item();
      size_t at = size_t(std::find(values.begin(), values.end(), value) - values.begin());
      while (at < merged.size() && !(values[at] == value && merged[at].count.device() == d.count.device())) ++at;
      if (at == merged.size()) merged.push_back({d.count, {}}), values.push_back(value);
      for (size_t i : d.members) {
        updates[i].slots[slot] = merged[at].count;
        merged[at].members.push_back(i);
      }
    }
    counts = std::move(merged);
  }
  for (DeviceCount& d : counts) d.count.add_(Scalar(1.0));
  return counts;
}

Tensor step_numbers(const Tensor& lr, const Tensor& count, const std::array<double, 2>& betas) {
  Tensor t = to_dtype(count, kFloat64), one = ones({}, kFloat64, count.device());
  auto power = [&](double beta) { return exp(mul(t, wrapped(beta > 0 ? std::log(beta) : -std::numeric_limits<double>::infinity()))); };
  return stack({lr, div(lr, sub(one, power(betas[0]))), sqrt(sub(one, power(betas[1]))), one, zeros({}, kFloat64, count.device())});
}

void write_device_lr(const char* rule, double lr, const Tensors& params, Tensor& device_lr) {
  for (const Tensor& p : params)
    SF_CHECK(p.device().is_cuda() && p.device() == params[0].device(), rule, ": capturable needs parameters on one CUDA device, got one on ", p.device());
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), rule,
              ": a learning rate that is set while a graph is captured would be set in every replay; set it between replays");
  if (device_lr) device_lr.fill_(lr);
  else device_lr = full({}, lr, kFloat64, params[0].device());
}

}  // namespace sf::optim
