#include "scaffolding/ops/adamw/adamw.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/adamw/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"

namespace sf {

constinit KernelTable<AdamWStep> adamw_step{"adamw"};

void adamw_(const Tensors& params, const Tensors& grads, const Tensors& exp_avgs, const Tensors& exp_avg_sqs,
            int64_t step, const AdamWOptions& o, const Tensors& masters) {
  size_t n = params.size();
  SF_CHECK(
      grads.size() == n && exp_avgs.size() == n && exp_avg_sqs.size() == n && (masters.empty() || masters.size() == n),
      "adamw_: lists must be equally long, got ", n, " params, ", grads.size(), " grads, ", exp_avgs.size(), " and ",
      exp_avg_sqs.size(), " moments");
  SF_CHECK(step >= 1, "adamw_: step counts from 1, got ", step);
  if (n == 0) return;
  autograd::NoGrad off;
  std::vector<AdamWTensor> list(n);
  Tensors keep(n);  // gradients in row-major memory
  for (size_t i = 0; i < n; ++i) {
    const Tensor &p = params[i], &m = exp_avgs[i], &v = exp_avg_sqs[i];
    for (auto [name, t] : {std::pair{"param", &p}, {"grad", &grads[i]}, {"exp_avg", &m}, {"exp_avg_sq", &v}}) {
      check_defined("adamw_", name, *t);
      check_floating("adamw_", name, *t);
      check_shape("adamw_", name, *t, p.shape());
      check_same_device("adamw_", params[0], *t);
    }
    DType moment = p.dtype() == kFloat64 ? kFloat64 : kFloat32;
    SF_CHECK_AS(TypeError, m.dtype() == moment && v.dtype() == moment, "adamw_: moments of a ", p.dtype(),
                " param must be ", moment, ", got ", m.dtype(), " and ", v.dtype());
    SF_CHECK(p.is_contiguous() && m.is_contiguous() && v.is_contiguous(),
             "adamw_: params and moments must be contiguous");
    keep[i] = dense(p.dtype() == kFloat64 || grads[i].dtype() == kFloat64 ? grads[i].to(p.dtype()) : grads[i]);
    const Tensor master = masters.empty() ? Tensor() : masters[i];
    if (master) {
      check_shape("adamw_", "master", master, p.shape());
      SF_CHECK_AS(TypeError, master.dtype() == kFloat32 && is_reduced(p.dtype()),
                  "adamw_: a master is float32 behind a 16-bit param, got ", master.dtype(), " behind ", p.dtype());
      SF_CHECK(master.is_contiguous(), "adamw_: masters must be contiguous");
    }
    for (const Tensor* t : {&p, &m, &v, &master}) cpu::will_write(*t);
    list[i] = {.param = p.data_ptr(),
               .grad = keep[i].data_ptr(),
               .exp_avg = m.data_ptr(),
               .exp_avg_sq = v.data_ptr(),
               .master = master ? master.data<float>() : nullptr,
               .numel = p.numel(),
               .param_dtype = p.dtype(),
               .grad_dtype = keep[i].dtype()};
    for (const Tensor* t : {&p, &m, &v})
      if (t->storage()->bytes) autograd::bump_version(*t);
    if (master) autograd::bump_version(master);
  }
  AdamWStep s{list.data(),
              int64_t(n),
              o.lr,
              o.beta1,
              o.beta2,
              o.eps,
              o.weight_decay,
              1 - std::pow(o.beta1, double(step)),
              1 - std::pow(o.beta2, double(step)),
              o.grad_scale,
              o.maximize};
  auto kernel = adamw_step.find(params[0].device(), s);
  SF_CHECK_AS(NotSupported, kernel, "adamw_: no kernel on ", params[0].device());
  kernel(s);
}

static void fused_adamw_(const Tensors& params, const Tensors& grads, const Tensors& exp_avgs,
                         const Tensors& exp_avg_sqs, int64_t step, double lr, double beta1, double beta2, double eps,
                         double weight_decay, double grad_scale, bool maximize, const std::optional<Tensors>& masters) {
  adamw_(params, grads, exp_avgs, exp_avg_sqs, step, {lr, beta1, beta2, eps, weight_decay, grad_scale, maximize},
         masters.value_or(Tensors{}));
}

SF_OP(fused_adamw_,
      "params, grads, exp_avgs, exp_avg_sqs, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-2, "
      "grad_scale=1.0, maximize=False, masters=None")
    .doc("One AdamW step over lists of tensors, in place and in one pass; step counts from 1.")
    .like("")
    .no_gradient()
    .kernels(adamw_step);

}  // namespace sf
