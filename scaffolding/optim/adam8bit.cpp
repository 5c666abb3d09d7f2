#include "scaffolding/optim/adam8bit.h"

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/adamw/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/capturable.h"
#include "scaffolding/optim/kernel.h"
#include "scaffolding/optim/rule_optimizer.h"

namespace sf::optim {

constinit KernelTable<QuantizedAdamStep> quantized_adam_step{"adamw_8bit"};

namespace {

// Seven decades below 1; the i-th from below is split into 2^i parts (2^(i+1) without a sign) whose middles are levels.
std::unique_ptr<DynamicMap> make_map(bool has_sign) {
  auto map = std::make_unique<DynamicMap>();
  int n = 0;
  map->levels[n++] = 0;
  for (int i = 0; i < 7; ++i) {
    int parts = (has_sign ? 1 : 2) << i;
    for (int k = 0; k < parts; ++k) map->levels[n++] = float(std::pow(10.0, i - 6) * (0.1 + 0.9 * (k + 0.5) / parts));
  }
  map->levels[n++] = 1;
  map->count = n;
  for (int k = n; k < 257; ++k) map->levels[k] = std::numeric_limits<float>::infinity();
  for (int k = 0; k < 256; ++k) map->midpoints[k] = (map->levels[k] + map->levels[k + 1]) / 2;
  for (int cell = 0, k = 0; cell < DynamicMap::kCells; ++cell) {
    float smallest = std::bit_cast<float>((uint32_t(DynamicMap::kLowestExponent) << 23) + (uint32_t(cell) << 15));
    while (k + 1 < n && smallest > map->midpoints[k]) ++k;
    map->cells[cell] = k;
  }
  return map;
}
const DynamicMap& map_of(bool has_sign) {
  static const std::unique_ptr<DynamicMap> with = make_map(true), without = make_map(false);
  return has_sign ? *with : *without;
}

enum { kStep, kAvg, kSquare, kAvgScale, kSquareScale, kMaster };

// One scale for each block; zero at first, which makes every index of a block a zero.
void prepare_scales(const char* name, Tensor& slot, const Tensor& param) {
  Shape blocks = AdamW8bitOptions::slot_shape(kAvgScale, param);
  if (!slot) slot = zeros(blocks, kFloat32, param.device());
  check_shape(AdamW8bitOptions::kName, name, slot, blocks);
  SF_CHECK_AS(TypeError, slot.dtype() == kFloat32, AdamW8bitOptions::kName, ": ", name, " must be float32, got ",
              slot.dtype());
  slot = slot.contiguous();
}

void prepare_codes(const char* name, Tensor& slot, const Tensor& param) {
  SF_CHECK_AS(TypeError, !slot || slot.dtype() == kUInt8, AdamW8bitOptions::kName, ": ", name, " of a param of ",
              param.numel(), " elements must be uint8, got ", slot ? slot.dtype() : kUInt8,
              "; was min_8bit_size another?");
  prepare_slot(AdamW8bitOptions::kName, name, slot, param, kUInt8);
}

}  // namespace

std::vector<float> dynamic_map(bool has_sign) {
  const DynamicMap& map = map_of(has_sign);
  std::vector<float> out;
  if (has_sign)
    for (int k = 127; k > 0; --k) out.push_back(-map.levels[k]);
  out.insert(out.end(), map.levels, map.levels + map.count);
  return out;
}

Shape AdamW8bitOptions::slot_shape(size_t slot, const Tensor& param) {
  if (slot == kStep) return {};
  if (slot == kAvgScale || slot == kSquareScale) return {(param.numel() + kBlock - 1) / kBlock};
  return param.shape();
}

void AdamW8bitOptions::check() const {
  check_adam(lr, betas, eps, weight_decay);
  SF_CHECK(min_8bit_size >= 0, "Invalid min_8bit_size value: ", min_8bit_size);
}

void AdamW8bitOptions::step(std::span<Update> updates) const {
  autograd::NoGrad off;
  for (Update& u : updates) check_update(kName, u);
  with_dense_params(updates, [&](std::span<Update> dense) {
    std::vector<Tensor> there(dense.size());  // the numbers of each update's step
    if (capturable) {
      for (const DeviceCount& d : device_counts(kName, dense, kStep)) {
        Tensor of_these = numbers_of(kName, settings_there, d.count, found_inf);
        for (size_t i : d.members) there[i] = of_these;
      }
    }
    for (Update& u : dense) {
      auto& slots = u.slots;
      const Tensor& given = there[size_t(&u - dense.data())];
      const double* on_device = given ? given.data<double>() : nullptr;
      bool small = u.param.numel() < min_8bit_size || u.param.dtype() == kFloat64;
      DType moment = state_dtype(u.param);
      if (small) {
        prepare_slot(kName, "state1", slots[kAvg], u.param, moment);
        prepare_slot(kName, "state2", slots[kSquare], u.param, moment);
      } else {
        prepare_codes("state1", slots[kAvg], u.param);
        prepare_codes("state2", slots[kSquare], u.param);
        prepare_scales("absmax1", slots[kAvgScale], u.param);
        prepare_scales("absmax2", slots[kSquareScale], u.param);
      }
      bool behind = master_weights && is_reduced(u.param.dtype());
      if (behind) prepare_master(kName, slots[kMaster], u.param);
      if (!on_device) prepare_step(slots[kStep]);
      double count = on_device ? 1 : advance_step(slots[kStep]), correction1 = 1 - std::pow(betas[0], count),
             correction2 = 1 - std::pow(betas[1], count);
      Tensor grad = u.grad;
      if (grad.dtype() != u.param.dtype() && (moment == kFloat64 || grad.dtype() == kFloat64))
        grad = to_dtype(grad, u.param.dtype());
      grad = laid_out_as(grad, u.param);
      float* master = behind ? static_cast<float*>(slots[kMaster].data_ptr()) : nullptr;
      if (small) {
        AdamWTensor t{.param = u.param.data_ptr(),
                      .grad = grad.data_ptr(),
                      .exp_avg = slots[kAvg].data_ptr(),
                      .exp_avg_sq = slots[kSquare].data_ptr(),
                      .master = master,
                      .numel = u.param.numel(),
                      .param_dtype = u.param.dtype(),
                      .grad_dtype = grad.dtype()};
        AdamWStep s{&t,          1,           lr, betas[0], betas[1], eps,      weight_decay,
                    correction1, correction2, 1,  maximize, true,     on_device};
        auto kernel = adamw_step.find(u.param.device(), s);
        SF_CHECK_AS(NotSupported, kernel, kName, ": no kernel on ", u.param.device());
        kernel(s);
      } else {
        QuantizedTensor t{.param = u.param.data_ptr(),
                          .grad = grad.data_ptr(),
                          .avg = static_cast<uint8_t*>(slots[kAvg].data_ptr()),
                          .square = static_cast<uint8_t*>(slots[kSquare].data_ptr()),
                          .avg_scale = static_cast<float*>(slots[kAvgScale].data_ptr()),
                          .square_scale = static_cast<float*>(slots[kSquareScale].data_ptr()),
                          .master = master,
                          .numel = u.param.numel(),
                          .param_dtype = u.param.dtype(),
                          .grad_dtype = grad.dtype()};
        QuantizedAdamStep s{&t,           1,           &map_of(true), &map_of(false), lr,       betas[0], betas[1], eps,
                            weight_decay, correction1, correction2,   maximize,       on_device};
        auto kernel = quantized_adam_step.find(u.param.device(), s);
        SF_CHECK_AS(NotSupported, kernel, kName, ": no kernel on ", u.param.device());
        kernel(s);
      }
      for (const Tensor* t :
           {&u.param, &slots[kAvg], &slots[kSquare], &slots[kAvgScale], &slots[kSquareScale], &slots[kMaster]})
        if (*t) autograd::bump_version(*t);
    }
  });
}

SF_OPTIMIZER(AdamW8bitOptions);

}  // namespace sf::optim
