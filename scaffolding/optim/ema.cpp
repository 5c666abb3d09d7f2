#include "scaffolding/optim/ema.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/optim/kernel.h"
#include "scaffolding/optim/update.h"

namespace sf::optim {

constinit KernelTable<LerpStep> lerp_step{"ema_lerp"};

static void lerp(const Tensors& averages, const Tensors& values, double weight, const Tensor& there) {
  SF_CHECK(averages.size() == values.size(), "lerp_: lists must be equally long, got ", averages.size(),
           " averages and ", values.size(), " values");
  autograd::NoGrad off;
  std::vector<LerpTensor> list;
  Tensors keep;
  for (size_t i = 0; i < averages.size(); ++i) {
    check_floating("lerp_", "average", averages[i]);
    check_floating("lerp_", "value", values[i]);
    check_shape("lerp_", "value", values[i], averages[i].shape());
    check_same_device("lerp_", averages[i], values[i]);
    check_same_device("lerp_", averages[0], averages[i]);
  }
  for (size_t i = 0; i < averages.size(); ++i) {
    const Tensor& average = averages[i];
    if (!is_dense(average)) {  // a view with holes: through the op
      SF_CHECK(!there,
               "lerp_: an average that is a view with holes cannot follow in a captured step; make it contiguous");
      average.detach().copy_(average.detach().clone().mul_(1 - weight).add_(values[i].detach(), weight));
      continue;
    }
    Tensor value = values[i].detach();
    if ((average.dtype() == kFloat64) != (value.dtype() == kFloat64)) value = to_dtype(value, average.dtype());
    value = keep.emplace_back(laid_out_as(value, average));
    cpu::will_write(average);
    list.push_back({average.data_ptr(), value.data_ptr(), average.numel(), average.dtype(), value.dtype()});
  }
  if (list.empty()) return;
  LerpStep s{list.data(), int64_t(list.size()), weight, there ? there.data<double>() : nullptr};
  auto kernel = lerp_step.find(averages[0].device(), s);
  SF_CHECK_AS(NotSupported, kernel, "lerp_: no kernel on ", averages[0].device());
  kernel(s);
  for (const Tensor& t : averages) autograd::bump_version(t);
}

void lerp_(const Tensors& averages, const Tensors& values, double weight) { lerp(averages, values, weight, {}); }

void lerp_(const Tensors& averages, const Tensors& values, const Tensor& weight) {
  check_shape("lerp_", "weight", weight, {});
  SF_CHECK(weight.dtype() == kFloat64 && weight.device().is_cuda(), "lerp_: weight must be float64 on CUDA, got ",
           weight.dtype(), " on ", weight.device());
  for (const Tensor& t : averages) check_same_device("lerp_", weight, t);
  lerp(averages, values, 0, weight);
}

double ema_decay(const EmaOptions& o, int64_t optimization_step) {
  int64_t step = std::max<int64_t>(0, optimization_step - o.update_after_step - 1);
  if (step <= 0) return 0;
  double n = double(step), decay = o.use_ema_warmup ? 1 - std::pow(1 + n / o.inv_gamma, -o.power) : (1 + n) / (10 + n);
  return std::max(std::min(decay, o.decay), o.min_decay);
}

static void check_options(const EmaOptions& o) {
  SF_CHECK(o.decay >= 0 && o.decay <= 1, "EMAModel: Decay must be between 0 and 1, got ", python_number(o.decay));
  SF_CHECK(o.min_decay >= 0 && o.min_decay <= 1, "EMAModel: min_decay must be between 0 and 1, got ",
           python_number(o.min_decay));
  SF_CHECK(o.inv_gamma > 0, "EMAModel: inv_gamma must be positive, got ", python_number(o.inv_gamma));
}

EMAModel::EMAModel(const Tensors& parameters, const EmaOptions& options) : progress_(std::make_shared<Progress>()) {
  progress_->options = options;
  check_options(options);
  SF_CHECK(!parameters.empty(), "EMAModel: got an empty parameter list");
  for (const Tensor& p : parameters) {
    check_defined("EMAModel", "parameter", p);
    shadow_.push_back(p.detach().clone());
  }
}

void EMAModel::check(const char* op, const Tensors& parameters) const {
  SF_CHECK(parameters.size() == shadow_.size(), op, ": made for ", shadow_.size(), " parameters, got ",
           parameters.size());
  for (size_t i = 0; i < shadow_.size(); ++i) {
    check_defined(op, "parameter", parameters[i]);
    SF_CHECK(parameters[i].shape() == shadow_[i].shape(), op, ": parameter ", i, " must have shape ",
             shadow_[i].shape(), ", got ", parameters[i].shape());
  }
}

void EMAModel::step(const Tensors& parameters) {
  check("EMAModel.step", parameters);
  autograd::NoGrad off;
  Progress& now = *progress_;
  const Device device = shadow_[0].device();
  if (cuda::CudaGraph* graph = cuda::CudaGraph::recording()) {
    SF_CHECK_AS(RuntimeError, now.weight_there,
                "EMAModel.step: the first step makes what captured ones read; call step() once before the capture");
    graph->before_replay([progress = progress_, revision = now.revision] {
      SF_CHECK_AS(RuntimeError, progress->revision == revision,
                  "EMAModel: averages were loaded or moved since the graph was captured, which would go on with those "
                  "before; capture again");
      progress->decay = ema_decay(progress->options, ++progress->step);
      progress->weight_there.fill_(1 - progress->decay);
    });
    return follow(parameters, now.weight_there);
  }
  now.decay = ema_decay(now.options, ++now.step);
  if (device.is_cuda() && !now.weight_there) now.weight_there = full({}, 1 - now.decay, kFloat64, device);
  follow(parameters, {});
}

void EMAModel::follow(const Tensors& parameters, const Tensor& weight_there) {
  Tensors averages, values;
  for (size_t i = 0; i < shadow_.size(); ++i) {
    Tensor value = to_device(parameters[i].detach(), shadow_[i].device());
    if (parameters[i].requires_grad()) {
      averages.push_back(shadow_[i]);
      values.push_back(std::move(value));
    } else {
      shadow_[i].copy_(value);
    }
  }
  lerp(averages, values, 1 - progress_->decay, weight_there);
}

static void overwrite(const Tensors& to, const Tensors& from) {
  autograd::NoGrad off;
  for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
}

void EMAModel::copy_to(const Tensors& parameters) const {
  check("EMAModel.copy_to", parameters);
  overwrite(parameters, shadow_);
}

void EMAModel::store(const Tensors& parameters) {
  check("EMAModel.store", parameters);
  stored_.clear();
  for (const Tensor& p : parameters) stored_.push_back(p.detach().cpu().clone());
}

void EMAModel::restore(const Tensors& parameters) {
  SF_CHECK_AS(RuntimeError, !stored_.empty(),
              "This ExponentialMovingAverage has no `store()`ed weights to `restore()`");
  check("EMAModel.restore", parameters);
  overwrite(parameters, stored_);
  stored_.clear();
}

void EMAModel::to(std::optional<Device> device, std::optional<DType> dtype) {
  ++progress_->revision;
  progress_->weight_there = {};
  for (Tensor& t : shadow_) {
    if (device) t = to_device(t, *device);
    if (dtype && is_floating(t.dtype())) t = to_dtype(t, *dtype);
  }
}

void EMAModel::load(const EmaOptions& options, int64_t optimization_step, const Tensors& shadow_params) {
  check_options(options);
  SF_CHECK(optimization_step >= 0, "EMAModel: Invalid optimization_step ", optimization_step);
  check("EMAModel.load", shadow_params);
  progress_->options = options;
  progress_->step = optimization_step;
  ++progress_->revision;
  for (size_t i = 0; i < shadow_.size(); ++i) shadow_[i] = shadow_params[i].detach().clone();
}

}  // namespace sf::optim
