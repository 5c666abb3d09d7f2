#include "scaffolding/optim/sgd.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/optim/capturable.h"
#include "scaffolding/optim/kernel.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

constinit KernelTable<SgdStep> sgd_step{"sgd"};

void SGDOptions::check() const {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  SF_CHECK(momentum >= 0, "Invalid momentum value: ", python_number(momentum));
  SF_CHECK(weight_decay >= 0, "Invalid weight_decay value: ", python_number(weight_decay));
  SF_CHECK(!nesterov || (momentum > 0 && dampening == 0), "Nesterov momentum requires a momentum and zero dampening");
}

void SGDOptions::step(std::span<Update> updates) const {
  if (updates.empty()) return;
  autograd::NoGrad off;
  for (Update& u : updates) check_update(kName, u);
  with_dense_params(updates, [&](std::span<Update> dense) {
    size_t n = dense.size();
    std::vector<SgdTensor> list(n);
    Tensors keep;  // gradients that had to be converted
    for (size_t i = 0; i < n; ++i) {
      Update& u = dense[i];
      Tensor &buffer = u.slots[0], &master = u.slots[1];
      DType wide = state_dtype(u.param);
      bool first = !buffer, behind = master_weights && is_reduced(u.param.dtype());
      if (momentum != 0) {
        // What a step leaves out that found_inf skips must not be there as it came.
        if (first) buffer = found_inf ? zeros_like(u.param, wide) : empty_like(u.param, wide);
        else prepare_slot(kName, "momentum_buffer", buffer, u.param, wide);
      }
      if (behind) prepare_master(kName, master, u.param);
      Tensor grad = u.grad;
      if (grad.dtype() != u.param.dtype() && (wide == kFloat64 || grad.dtype() == kFloat64))
        grad = to_dtype(grad, u.param.dtype());
      grad = laid_out_as(grad, u.param);
      list[i] = {.param = u.param.data_ptr(),
                 .grad = grad.data_ptr(),
                 .buffer = momentum != 0 ? buffer.data_ptr() : nullptr,
                 .master = behind ? static_cast<float*>(master.data_ptr()) : nullptr,
                 .numel = u.param.numel(),
                 .param_dtype = u.param.dtype(),
                 .grad_dtype = grad.dtype(),
                 .first = first};
      if (!grad.is_same(u.grad)) keep.push_back(std::move(grad));
    }
    SgdStep s{nullptr, 0, lr, momentum, dampening, weight_decay, nesterov, maximize};
    Tensor numbers;
    if (capturable) numbers = numbers_of(kName, settings_there, {}, found_inf), s.numbers = numbers.data<double>();
    for (size_t begin = 0, end; begin < n; begin = end) {
      Device device = dense[begin].param.device();
      for (end = begin + 1; end < n && dense[end].param.device() == device;) ++end;
      s.tensors = &list[begin];
      s.count = int64_t(end - begin);
      auto kernel = sgd_step.find(device, s);
      SF_CHECK_AS(NotSupported, kernel, "sgd: no kernel on ", device);
      kernel(s);
    }
    for (Update& u : dense)
      for (const Tensor* t : {&u.param, &u.slots[0], &u.slots[1]})
        if (*t) autograd::bump_version(*t);
  });
}

SF_OPTIMIZER(SGDOptions);

}  // namespace sf::optim
