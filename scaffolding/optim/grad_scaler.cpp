#include "scaffolding/optim/grad_scaler.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/kernel.h"

namespace sf::optim {

constinit KernelTable<UnscaleStep> unscale_step{"unscale"};

void unscale_(const Tensors& grads, double factor, const Tensor& found_inf) {
  check_shape("unscale_", "found_inf", found_inf, {});
  SF_CHECK_AS(TypeError, found_inf.dtype() == kFloat32, "unscale_: found_inf must be float32, got ", found_inf.dtype());
  if (grads.empty()) return;
  autograd::NoGrad off;
  for (const Tensor& g : grads) {
    check_floating("unscale_", "grad", g);
    check_same_device("unscale_", found_inf, g);
  }
  std::vector<UnscaleTensor> list;
  std::vector<std::pair<Tensor, Tensor>> views;  // gradients with holes, and their copies
  for (const Tensor& g : grads) {
    Tensor dense = g;
    if (!is_dense(g)) views.push_back({g, dense = g.detach().contiguous()});
    list.push_back({dense.data_ptr(), dense.numel(), dense.dtype()});
  }
  UnscaleStep s{list.data(), int64_t(list.size()), factor, found_inf.data<float>()};
  auto kernel = unscale_step.find(grads[0].device(), s);
  SF_CHECK_AS(NotSupported, kernel, "unscale_: no kernel on ", grads[0].device());
  kernel(s);
  for (auto& [view, dense] : views) view.detach().copy_(dense);
  for (const Tensor& g : grads) autograd::bump_version(g);
}

ScaleState next_scale(const ScaleState& now, bool found_inf, const GradScalerOptions& o) {
  if (found_inf) return {now.scale * o.backoff_factor, 0};
  if (now.growth_tracker + 1 < o.growth_interval) return {now.scale, now.growth_tracker + 1};
  double grown = now.scale * o.growth_factor;
  return {std::isfinite(float(grown)) ? grown : now.scale, 0};
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), state_{options.init_scale, 0} {
  if (!options.enabled) return;
  SF_CHECK(options.init_scale > 0, "GradScaler: init_scale must be positive, got ", python_number(options.init_scale));
  SF_CHECK(options.growth_factor > 1, "The growth factor must be > 1.0.");
  SF_CHECK(options.backoff_factor < 1 && options.backoff_factor > 0, "The backoff factor must be < 1.0.");
  SF_CHECK(options.growth_interval > 0, "GradScaler: growth_interval must be positive, got ", options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& loss) const { return options_.enabled ? mul(loss, wrapped(state_.scale)) : loss; }

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  Stage& stage = stages_[&optimizer];
  SF_CHECK_AS(RuntimeError, !stage.stepped, "unscale_() is being called after step().");
  SF_CHECK_AS(RuntimeError, !stage.found_inf, "unscale_() has already been called on this optimizer since the last update().");
  Tensors grads;
  for (size_t g = 0; g < optimizer.num_groups(); ++g)
    for (const Tensor& p : optimizer.params(g))
      if (Tensor grad = p.grad()) {
        SF_CHECK(grad.dtype() != kFloat16, "Attempting to unscale FP16 gradients.");
        grads.push_back(std::move(grad));
      }
  SF_CHECK_AS(RuntimeError, !grads.empty(), "No inf checks were recorded for this optimizer.");
  Tensor found = zeros({}, kFloat32, grads[0].device());
  optim::unscale_(grads, 1 / state_.scale, found);
  stage.found_inf = found;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  SF_CHECK_AS(RuntimeError, !stages_[&optimizer].stepped, "step() has already been called since the last update().");
  if (!stages_[&optimizer].found_inf) unscale_(optimizer);
  Stage& stage = stages_[&optimizer];
  bool fine = stage.found_inf.item() == 0;
  if (fine) optimizer.step();
  stage.stepped = true;
  return fine;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    SF_CHECK(*new_scale > 0, "GradScaler: the new scale must be positive, got ", python_number(*new_scale));
    state_.scale = *new_scale;
  } else {
    bool found = false, any = false;
    for (auto& [optimizer, stage] : stages_)
      if (stage.found_inf) any = true, found |= stage.found_inf.item() != 0;
    SF_CHECK_AS(RuntimeError, any, "No inf checks were recorded prior to update.");
    state_ = next_scale(state_, found, options_);
  }
  stages_.clear();
}

void GradScaler::load_state(const ScaleState& state) {
  SF_CHECK(state.scale > 0 && state.growth_tracker >= 0, "GradScaler: the saved scale must be positive, got ", python_number(state.scale));
  state_ = state;
}

}  // namespace sf::optim
