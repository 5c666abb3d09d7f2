#include "scaffolding/optim/adam.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/adamw/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/optim/capturable.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

void check_adam(double lr, const std::array<double, 2>& betas, double eps, double weight_decay) {
  SF_CHECK(lr >= 0, "Invalid learning rate: ", python_number(lr));
  SF_CHECK(eps >= 0, "Invalid epsilon value: ", python_number(eps));
  for (int i = 0; i < 2; ++i)
    SF_CHECK(betas[size_t(i)] >= 0 && betas[size_t(i)] < 1, "Invalid beta parameter at index ", i, ": ",
             python_number(betas[size_t(i)]));
  SF_CHECK(weight_decay >= 0, "Invalid weight_decay value: ", python_number(weight_decay));
}

template <bool decoupled> void AdamFamily<decoupled>::check() const { check_adam(lr, betas, eps, weight_decay); }

namespace {

enum { kStep, kAvg, kSquare, kLargest, kMaster };

void run(Device device, AdamWStep& s, double count, const std::array<double, 2>& betas) {
  s.bias_correction1 = 1 - std::pow(betas[0], count);
  s.bias_correction2 = 1 - std::pow(betas[1], count);
  auto kernel = adamw_step.find(device, s);
  SF_CHECK_AS(NotSupported, kernel, "adamw: no kernel on ", device);
  kernel(s);
}

// All numbers of the step are on the device.
void run_there(const char* rule, AdamWStep& s, const Tensor& numbers) {
  s.numbers = numbers.data<double>();
  auto kernel = adamw_step.find(numbers.device(), s);
  SF_CHECK_AS(NotSupported, kernel, rule, ": no kernel on ", numbers.device());
  kernel(s);
}

}  // namespace

template <bool decoupled> void AdamFamily<decoupled>::step(std::span<Update> updates) const {
  if (updates.empty()) return;
  autograd::NoGrad off;
  for (Update& u : updates) check_update(kName, u);
  with_dense_params(updates, [&](std::span<Update> dense) {
    size_t n = dense.size();
    std::vector<AdamWTensor> list(n);
    Tensors keep;  // gradients that had to be converted
    for (size_t i = 0; i < n; ++i) {
      Update& u = dense[i];
      auto& [count, avg, square, largest, master, f5, f6, f7] = u.slots;
      DType moment = state_dtype(u.param);
      if (!capturable) prepare_step(count);
      prepare_slot(kName, "exp_avg", avg, u.param, moment);
      prepare_slot(kName, "exp_avg_sq", square, u.param, moment);
      if (amsgrad) prepare_slot(kName, "max_exp_avg_sq", largest, u.param, moment);
      bool behind = master_weights && is_reduced(u.param.dtype());
      if (behind) prepare_master(kName, master, u.param);
      const Tensor* grad = &u.grad;
      if (u.grad.dtype() != u.param.dtype() && (moment == kFloat64 || u.grad.dtype() == kFloat64))
        grad = &keep.emplace_back(to_dtype(*grad, u.param.dtype()));
      if (!same_layout(*grad, u.param)) {
        Tensor moved = laid_out_as(*grad, u.param);
        grad = &keep.emplace_back(std::move(moved));
      }
      list[i] = {.param = u.param.data_ptr(),
                 .grad = grad->data_ptr(),
                 .exp_avg = avg.data_ptr(),
                 .exp_avg_sq = square.data_ptr(),
                 .max_exp_avg_sq = amsgrad ? largest.data_ptr() : nullptr,
                 .master = behind ? static_cast<float*>(master.data_ptr()) : nullptr,
                 .numel = u.param.numel(),
                 .param_dtype = u.param.dtype(),
                 .grad_dtype = grad->dtype()};
    }
    AdamWStep s{.lr = lr,
                .beta1 = betas[0],
                .beta2 = betas[1],
                .eps = eps,
                .weight_decay = weight_decay,
                .maximize = maximize,
                .decoupled = decoupled_weight_decay};
    // One kernel call for each run of params with the same step count and device: nearly always one.
    if (capturable) {
      for (const DeviceCount& d : device_counts(kName, dense, kStep)) {
        std::vector<AdamWTensor> some;
        for (size_t i : d.members) some.push_back(list[i]);
        s.tensors = some.data();
        s.count = int64_t(some.size());
        run_there(kName, s, numbers_of(kName, settings_there, d.count, found_inf));
      }
    }
    for (size_t begin = capturable ? n : 0, end; begin < n; begin = end) {
      double count = advance_step(dense[begin].slots[kStep]);
      Device device = dense[begin].param.device();
      for (end = begin + 1; end < n && dense[end].param.device() == device &&
                            *static_cast<float*>(dense[end].slots[kStep].data_ptr()) + 1 == count;
           ++end)
        advance_step(dense[end].slots[kStep]);
      s.tensors = &list[begin];
      s.count = int64_t(end - begin);
      run(device, s, count, betas);
    }
    for (Update& u : dense)
      for (const Tensor* t : {&u.param, &u.slots[kAvg], &u.slots[kSquare], &u.slots[kLargest], &u.slots[kMaster]})
        if (*t) autograd::bump_version(*t);
  });
}

template struct AdamFamily<false>;
template struct AdamFamily<true>;

SF_OPTIMIZER(AdamOptions);
SF_OPTIMIZER(AdamWOptions);

}  // namespace sf::optim
