#include "scaffolding/ops/fuse/fuse.h"

#include <atomic>
#include <mutex>

#include "scaffolding/autograd/anomaly.h"
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fuse/cuda_source.h"
#include "scaffolding/ops/fuse/kernel.h"

namespace sf {

using pointwise::Trace;
using pointwise::TracedProgram;

constinit KernelTable<FusedCall> fused_kernel{"fuse"};

namespace {

// Everything that what the function does may depend on, as bytes. Strides count:
// some ops compute otherwise for dense tensors.
std::string key_of(const Tensors& arguments) {
  std::string key;
  auto put = [&](int64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (auto& x : arguments) {
    put(int64_t(x.dtype()) << 32 | int64_t(x.device().type) << 8 | int64_t(x.impl()->is_scalar));
    put(x.ndim());
    for (int64_t d : x.shape()) put(d);
    for (int64_t d : x.strides()) put(x.is_contiguous() ? 0 : d);
  }
  const autocast::State& s = autocast::state();
  put(int64_t(default_dtype()));
  put(s.any ? int64_t(s.cpu.enabled) << 24 | int64_t(s.cuda.enabled) << 16 | int64_t(s.cpu.dtype) << 8 |
                  int64_t(s.cuda.dtype)
            : -1);
  return key;
}

Device device_of(const Tensors& arguments) {
  SF_CHECK(!arguments.empty(), "fuse: a fused function must be given a tensor");
  for (size_t i = 0; i < arguments.size(); ++i) {
    check_defined("fuse", "argument", arguments[i]);
    SF_CHECK(arguments[i].device() == arguments[0].device(), "fuse: tensors must be on one device, got ",
             arguments[0].device(), " and ", arguments[i].device());
  }
  return arguments[0].device();
}

TracedProgram traced(const Fused::Function& f, const Tensors& arguments, Device device) {
  Trace trace(device);
  autograd::InferenceMode off(false);
  autograd::EnableGrad on;
  autograd::AnomalyMode watch;  // record() then tells the trace of ops that are not pointwise
  // not the caller's: there are no values to move
  autograd::SavedTensorHooks keep([](const Tensor&) -> std::function<Tensor()> { return nullptr; });
  Tensors stand_ins;
  for (auto& x : arguments) {
    Tensor s = empty_strided(x.shape(), x.strides(), x.dtype(), Device(Device::Meta));
    if (is_floating(s.dtype())) s.requires_grad_();
    trace.add_argument(s);
    stand_ins.push_back(s);
  }
  autograd::ObserverScope scope(trace);
  Tensor y = f(stand_ins);
  return std::move(trace).finish(y);
}

TensorView broadcast(const Tensor& x, const Shape& shape) {
  TensorView v = x, full = v;
  full.ndim = int32_t(shape.size());
  int lead = full.ndim - v.ndim;
  for (int i = 0; i < full.ndim; ++i) {
    full.sizes[i] = shape[i];
    full.strides[i] = i < lead || v.sizes[i - lead] != shape[i] ? 0 : v.strides[i - lead];
  }
  return full;
}

std::vector<TensorView> views(const TracedProgram& p, const Tensors& arguments) {
  std::vector<TensorView> in;
  for (auto& x : arguments) in.push_back(broadcast(x, p.shape));
  return in;
}

Tensor run(const TracedProgram& p, const Tensors& arguments, Device device) {
  Tensor y = empty_strided(p.shape, p.strides, p.dtype_of(p.result), device);
  std::vector<TensorView> in = views(p, arguments);
  FusedCall call{&p, y, in.data()};
  auto kernel = fused_kernel.find(device, call);
  SF_CHECK_AS(NotSupported, kernel, "fuse: no kernel on ", device);
  if (y.numel() > 0) kernel(call);
  return y;
}

// The function's own gradients, by its own ops.
Tensors gradients(const Fused::Function& f, const Tensors& arguments, const std::vector<bool>& wanted, const Tensor& dy,
                  const autocast::State& autocast) {
  autograd::EnableGrad on;
  autocast::Within as_before(autocast);
  Tensors inputs, leaves, result(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    Tensor x = arguments[i].detach();
    if (wanted[i]) leaves.push_back(x.requires_grad_());
    inputs.push_back(x);
  }
  Tensors g = autograd::grad({f(inputs)}, leaves, {dy}, {}, true);
  for (size_t i = 0, next = 0; i < arguments.size(); ++i)
    if (wanted[i]) result[i] = g[next++];
  return result;
}

}  // namespace

struct Fused::State {
  Function f;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const TracedProgram>> programs;
  std::atomic<int64_t> traces{0};

  std::shared_ptr<const TracedProgram> program(const Tensors& arguments, Device target) {
    std::string key = key_of(arguments) + char('0' + int(target.type));
    {
      std::lock_guard lock(mutex);
      if (auto at = programs.find(key); at != programs.end()) return at->second;
    }
    // unlocked: f may call other fused functions, or wait for Python
    auto made = std::make_shared<const TracedProgram>(traced(f, arguments, target));
    ++traces;
    std::lock_guard lock(mutex);
    if (programs.size() >= 1024) programs.clear();  // shapes without end
    return programs.emplace(key, made).first->second;
  }
};

Fused::Fused(Function f) : state_(std::make_shared<State>()) { state_->f = std::move(f); }
int64_t Fused::traces() const { return state_->traces; }

Tensor Fused::operator()(const Tensors& arguments) const {
  if (Trace::current()) return state_->f(arguments);  // inside another fused function: a part of it
  Device device = device_of(arguments);
  if (device.is_meta()) return state_->f(arguments);
  auto program = state_->program(arguments, device);
  if (program->result < int(arguments.size())) return arguments[size_t(program->result)];
  Tensor y;
  {
    autograd::NoGrad off;
    y = run(*program, arguments, device);
  }
  if (!autograd::any_requires_grad(arguments) || !is_floating(y.dtype())) return y;
  std::vector<bool> wanted;
  for (auto& x : arguments) wanted.push_back(x.requires_grad());
  auto backward = [state = state_, saved = autograd::save(arguments), wanted,
                   autocast = autocast::state()](const Tensor& dy) -> Tensors {
    Tensors inputs;
    for (auto& s : saved) inputs.push_back(s.get());
    return gradients(state->f, inputs, wanted, dy, autocast);
  };
  auto reference = [state = state_, autocast = autocast::state()](const Tensors& inputs) -> Tensors {
    autocast::Within as_before(autocast);
    return {state->f(inputs)};
  };
  return autograd::record("fuse", y, arguments, backward, reference);
}

std::string Fused::cuda_source(const Tensors& arguments) const {
  device_of(arguments);
  auto program = state_->program(arguments, Device(Device::CUDA));
  std::vector<TensorView> in = views(*program, arguments);
  Tensor y = empty_strided(program->shape, program->strides, program->dtype_of(program->result), arguments[0].device());
  FusedCall call{program.get(), y, in.data()};
  return fused_cuda_source(*program, FusedLayout(call, FusedWalk(call)));
}

}  // namespace sf
