#include "scaffolding/ops/batch_norm/batch_norm.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/batch_norm/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<BatchNormForward> batch_norm_forward{"batch_norm"};
constinit KernelTable<BatchNormBackward> batch_norm_backward{"batch_norm_backward"};

namespace {

Shape per_channel(const Tensor& x) {
  Shape s = Shape::filled(x.ndim(), 1);
  s[1] = x.size(1);
  return s;
}

// Inputs x, weight, bias; mean and var are the running ones outside training.
Tensor batch_norm_reference(const Tensors& in, const Tensor& running_mean, const Tensor& running_var, bool training,
                            double eps) {
  Tensor x = is_reduced(in[0].dtype()) ? in[0].to(kFloat32) : in[0], mean, var;
  Shape channel = per_channel(x), dims{0};
  for (int64_t i = 2; i < x.ndim(); ++i) dims.push_back(i);
  mean = training ? x.mean(dims, true) : running_mean.reshape(channel).to(x.dtype());
  Tensor centred = x - mean;
  var = training ? square(centred).mean(dims, true) : running_var.reshape(channel).to(x.dtype());
  Tensor y = centred * rsqrt(var + eps);
  if (in[1]) y = y * in[1].reshape(channel);
  if (in[2]) y = y + in[2].reshape(channel);
  return y.to(in[0].dtype());
}

Tensor in_kernel_layout(const Tensor& x) {
  return x.is_contiguous() || x.is_contiguous(MemoryFormat::ChannelsLast) ? x : dense(x);
}

void check_channels(const char* op, const Tensor& x,
                    std::initializer_list<std::pair<const char*, const Tensor*>> tensors) {
  for (auto& [name, t] : tensors)
    if (*t) {
      check_shape(op, name, *t, {x.size(1)});
      check_floating(op, name, *t);
      check_same_device(op, x, *t);
    }
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  const char* op = "batch_norm";
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() >= 2, op, ": input must be [N, C, ...], got ", x.shape());
  check_channels(
      op, x, {{"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}});
  SF_CHECK(training || (running_mean && running_var), op, ": running_mean and running_var are needed outside training");
  SF_CHECK(!training || x.size(1) == 0 || x.numel() / x.size(1) > 1, op,
           ": training needs more than one value per channel, got input ", x.shape());
  for (const Tensor* t : {&running_mean, &running_var})
    SF_CHECK(!*t || t->is_contiguous(), op, ": running statistics must be contiguous, they are written in place");
  if (training) cpu::will_write(running_mean), cpu::will_write(running_var);
  Tensor xs = in_kernel_layout(x), w = dense(weight), b = dense(bias), y = empty_like(xs);
  DType stats = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor mean = empty({x.size(1)}, stats, x.device()), rstd = empty({x.size(1)}, stats, x.device());
  BatchNormForward f{xs, w, b, running_mean, running_var, training, momentum, eps, y, mean, rstd};
  auto kernel = batch_norm_forward.find(x.device(), f);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  if (y.numel() > 0) kernel(f);
  if (training)
    for (const Tensor* t : {&running_mean, &running_var})
      if (*t) autograd::bump_version(*t);
  return autograd::record(
      op, y, {x, weight, bias},
      [x = save(x), w = save(weight), mean = save(mean), rstd = save(rstd), training, nw = weight.requires_grad(),
       nb = bias.requires_grad(), channels = x.size(1)](const Tensor& dy) -> Tensors {
        Tensor xs = in_kernel_layout(x.get()), weight = dense(w.get());
        Tensor g = dy;
        if (dy.strides() != xs.strides()) {
          g = empty_strided(xs.shape(), xs.strides(), dy.dtype(), dy.device());
          copy_bytes(g, dy);
        }
        Tensor dx = empty_strided(xs.shape(), xs.strides(), xs.dtype(), xs.device()), dw = gradient_for(weight, nw);
        Tensor db = nb ? empty({channels}, weight ? weight.dtype() : xs.dtype(), xs.device()) : Tensor();
        if (dx.numel() == 0) return {dx, dw ? dw.zero_() : dw, db ? db.zero_() : db};
        BatchNormBackward k{xs, g, weight, training, mean.get(), rstd.get(), dx, dw, db};
        auto kernel = batch_norm_backward.find(xs.device(), k);
        SF_CHECK_AS(NotSupported, kernel, "batch_norm: no backward kernel on ", xs.device());
        kernel(k);
        return {dx, dw, db};
      },
      [running_mean, running_var, training, eps](const Tensors& in) -> Tensors {
        return {batch_norm_reference(in, running_mean, running_var, training, eps)};
      });
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  const char* op = "instance_norm";
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() >= 3, op, ": input must be [N, C, *], got ", x.shape());
  if (!use_input_stats) return batch_norm(x, running_mean, running_var, weight, bias, false, momentum, eps);
  check_channels(
      op, x, {{"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}});
  int64_t n = x.size(0), c = x.size(1), space = n * c > 0 ? x.numel() / (n * c) : 0;
  SF_CHECK(x.numel() == 0 || space > 1, op, ": needs more than one value per sample and channel, got input ",
           x.shape());
  if (running_mean || running_var) {
    autograd::NoGrad off;  // the average over samples of each one's statistics, as torch
    Tensor flat = x.reshape({n, c, space}).to(x.dtype() == kFloat64 ? kFloat64 : kFloat32), mean = flat.mean({2}, true);
    Tensor var = square(flat - mean).sum({2}) / double(space - 1);
    auto update = [&](Tensor t, const Tensor& now) { t.copy_(t * (1 - momentum) + now.to(t.dtype()) * momentum); };
    if (running_mean) update(running_mean, mean.squeeze(2).mean({0}));
    if (running_var) update(running_var, var.mean({0}));
  }
  return group_norm(x, std::max<int64_t>(c, 1), weight, bias, eps);
}

SF_OP(batch_norm, "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5")
    .doc(
        "Normalise each channel of input[N, C, ...] over batch and space; running statistics are updated in training "
        "and used otherwise.")
    .like(
        "torch.nn.functional.batch_norm(input, None if running_mean is None else running_mean.detach().clone(), None "
        "if running_var is None else "
        "running_var.detach().clone(), weight, bias, training, momentum, eps)")
    .kernels(batch_norm_forward, batch_norm_backward);
SF_OP(
    instance_norm,
    "input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5")
    .doc("Normalise each channel of each sample of input[N, C, *] over space.")
    .like("torch.nn.functional.instance_norm");

}  // namespace sf
