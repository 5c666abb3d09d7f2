#include "scaffolding/optim/grad_scaler.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/optim/kernel.h"

namespace sf::optim {

constinit KernelTable<UnscaleStep> unscale_step{"unscale"};

constinit KernelTable<ScaleUpdate> scale_update{"scale_update"};

static void unscale(const Tensors& grads, double factor, const float* scale, const Tensor& found_inf) {
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
  UnscaleStep s{list.data(), int64_t(list.size()), factor, scale, found_inf.data<float>()};
  auto kernel = unscale_step.find(grads[0].device(), s);
  SF_CHECK_AS(NotSupported, kernel, "unscale_: no kernel on ", grads[0].device());
  kernel(s);
  for (auto& [view, dense] : views) view.detach().copy_(dense);
  for (const Tensor& g : grads) autograd::bump_version(g);
}

void unscale_(const Tensors& grads, double factor, const Tensor& found_inf) {
  unscale(grads, factor, nullptr, found_inf);
}

static void check_there(const char* op, const char* name, const Tensor& t) {
  check_shape(op, name, t, {});
  SF_CHECK(t.dtype() == kFloat32 && t.device().is_cuda(), op, ": ", name, " must be float32 on CUDA, got ", t.dtype(),
           " on ", t.device());
}

void unscale_there_(const Tensors& grads, const Tensor& scale, const Tensor& found_inf) {
  check_there("unscale_", "scale", scale);
  check_there("unscale_", "found_inf", found_inf);
  unscale(grads, 1, scale.data<float>(), found_inf);
}

void update_scale_there(const Tensor& scale, const Tensor& tracker, const Tensor& found_inf,
                        const GradScalerOptions& o) {
  const char* op = "GradScaler.update";
  check_there(op, "scale", scale);
  check_there(op, "the growth tracker", tracker);
  check_there(op, "found_inf", found_inf);
  ScaleUpdate s{.scale = scale.data<float>(),
                .tracker = tracker.data<float>(),
                .found_inf = found_inf.data<float>(),
                .growth = float(o.growth_factor),
                .backoff = float(o.backoff_factor),
                .interval = float(o.growth_interval),
                .device = scale.device()};
  auto kernel = scale_update.find(scale.device(), s);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", scale.device());
  kernel(s);
  autograd::bump_version(scale);
  autograd::bump_version(tracker);
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

static void refuse_host_scale(const char* method) {
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), "GradScaler.", method,
              ": the scale would stay that of the capture in every replay; make the scaler with capturable=true, and "
              "call it once before the capture");
}

const Tensor& GradScaler::scale_there(Device device) {
  SF_CHECK(device.is_cuda(), "GradScaler: capturable=true needs CUDA tensors, got one on ", device);
  if (!scale_there_) {
    refuse_host_scale("scale");
    scale_there_ = full({}, state_.scale, kFloat32, device);
    tracker_there_ = full({}, double(state_.growth_tracker), kFloat32, device);
  }
  return scale_there_;
}

ScaleState GradScaler::state() const {
  if (!scale_there_) return state_;
  return {scale_there_.item(), int64_t(tracker_there_.item())};
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  if (options_.capturable) return mul(loss, scale_there(loss.device()));
  refuse_host_scale("scale");
  return mul(loss, wrapped(state_.scale));
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  Stage& stage = stages_[&optimizer];
  SF_CHECK_AS(RuntimeError, !stage.stepped, "unscale_() is being called after step().");
  SF_CHECK_AS(RuntimeError, !stage.found_inf,
              "unscale_() has already been called on this optimizer since the last update().");
  Tensors grads;
  for (size_t g = 0; g < optimizer.num_groups(); ++g)
    for (const Tensor& p : optimizer.params(g))
      if (Tensor grad = p.grad()) {
        SF_CHECK(grad.dtype() != kFloat16, "Attempting to unscale FP16 gradients.");
        grads.push_back(std::move(grad));
      }
  SF_CHECK_AS(RuntimeError, !grads.empty(), "No inf checks were recorded for this optimizer.");
  Tensor found = zeros({}, kFloat32, grads[0].device());
  if (options_.capturable) {
    unscale_there_(grads, scale_there(grads[0].device()), found);
  } else {
    refuse_host_scale("unscale_");
    optim::unscale_(grads, 1 / state_.scale, found);
  }
  stage.found_inf = found;
}

void GradScaler::also_skip(Optimizer& optimizer, const Tensor& flag) {
  Stage& stage = stages_[&optimizer];
  SF_CHECK_AS(RuntimeError, options_.capturable && stage.found_inf,
              "GradScaler.also_skip: needs capturable=true, and a call of unscale_() before");
  stage.found_inf = maximum(stage.found_inf, flag);
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  SF_CHECK_AS(RuntimeError, !stages_[&optimizer].stepped, "step() has already been called since the last update().");
  if (!stages_[&optimizer].found_inf) unscale_(optimizer);
  Stage& stage = stages_[&optimizer];
  bool fine = options_.capturable || stage.found_inf.item() == 0;
  if (options_.capturable) optimizer.step_unless(stage.found_inf);
  else if (fine) optimizer.step();
  stage.stepped = true;
  return fine;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    SF_CHECK(*new_scale > 0, "GradScaler: the new scale must be positive, got ", python_number(*new_scale));
    load_state({*new_scale, state().growth_tracker});
  } else if (options_.capturable) {
    Tensor found;
    for (auto& [optimizer, stage] : stages_)
      if (stage.found_inf) found = found ? found + stage.found_inf : stage.found_inf;
    SF_CHECK_AS(RuntimeError, found, "No inf checks were recorded prior to update.");
    update_scale_there(scale_there_, tracker_there_, found, options_);
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
  SF_CHECK(state.scale > 0 && state.growth_tracker >= 0, "GradScaler: the saved scale must be positive, got ",
           python_number(state.scale));
  state_ = state;
  if (!scale_there_) return;
  refuse_host_scale("load_state");
  scale_there_.fill_(state.scale);
  tracker_there_.fill_(double(state.growth_tracker));
}

}  // namespace sf::optim
