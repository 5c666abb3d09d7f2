#include "scaffolding/optim/capturable.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/view/view.h"
#include "scaffolding/optim/kernel.h"

namespace sf::optim {

constinit KernelTable<NumbersOfStep> numbers_of_step{"optimizer_numbers"};

static void need_first_step(const char* rule, bool done) {
  SF_CHECK_AS(RuntimeError, done, rule,
              ".step: the first step makes the state and cannot be captured; call step() once before the capture");
}

const Tensor& DeviceSettings::there(const char* rule) const {
  need_first_step(rule, bool(there_));
  return there_;
}

const Tensor& DeviceSettings::write(const char* rule, const Settings& now, Device device) {
  autograd::NoGrad off;
  const bool capturing = cuda::CudaGraph::recording() != nullptr, moved = there_ && there_.device() != device;
  if (!there_ || moved) {
    need_first_step(rule, !capturing);
    there_ = empty({int64_t(now.size())}, kFloat64, device);
    for (size_t i = 0; i < now.size(); ++i) there_.narrow(0, int64_t(i), 1).fill_(now[i]);
  } else {
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] == written_[i]) continue;
      SF_CHECK_AS(
          RuntimeError, !capturing, rule,
          ": an option that is set while a graph is captured would be set in every replay; set it between replays");
      there_.narrow(0, int64_t(i), 1).fill_(now[i]);
    }
  }
  written_ = now;
  return there_;
}

Device capturable_device(const char* rule, const Tensors& params) {
  for (const Tensor& p : params)
    SF_CHECK(p.device().is_cuda() && p.device() == params[0].device(), rule,
             ": capturable=True needs parameters on one CUDA device, got one on ", p.device());
  return params.at(0).device();
}

std::vector<DeviceCount> device_counts(const char* rule, std::span<Update> updates, size_t slot) {
  const bool capturing = cuda::CudaGraph::recording() != nullptr;
  std::vector<DeviceCount> counts;
  for (size_t i = 0; i < updates.size(); ++i) {
    Tensor& c = updates[i].slots[slot];
    if (!c || c.device() != updates[i].param.device() || c.dtype() != kFloat32) {
      need_first_step(rule, !capturing);
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
      size_t at = 0;
      while (at < merged.size() && !(values[at] == value && merged[at].count.device() == d.count.device())) ++at;
      if (at == merged.size()) merged.push_back({d.count, {}}), values.push_back(value);
      for (size_t i : d.members) {
        updates[i].slots[slot] = merged[at].count;
        merged[at].members.push_back(i);
      }
    }
    counts = std::move(merged);
  }
  return counts;
}

Tensor numbers_of(const char* rule, const Tensor& settings, const Tensor& count, const Tensor& found_inf) {
  check_shape(rule, "settings", settings, {5});
  SF_CHECK(settings.dtype() == kFloat64 && settings.device().is_cuda(), rule,
           ": settings must be float64 on CUDA, got ", settings.dtype(), " on ", settings.device());
  if (found_inf) {
    SF_CHECK(found_inf.numel() == 1 && found_inf.dtype() == kFloat32, rule,
             ": found_inf must be one float32 element, got ", found_inf.dtype(), " ", found_inf.shape());
    check_same_device(rule, settings, found_inf);
  }
  Tensor numbers = empty({kStepNumbers}, kFloat64, settings.device());
  NumbersOfStep s{.settings = settings.data<double>(),
                  .count = count ? count.data<float>() : nullptr,
                  .found_inf = found_inf ? found_inf.data<float>() : nullptr,
                  .numbers = numbers.data<double>(),
                  .device = settings.device()};
  auto kernel = numbers_of_step.find(settings.device(), s);
  SF_CHECK_AS(NotSupported, kernel, rule, ": no kernel on ", settings.device());
  kernel(s);
  if (count) autograd::bump_version(count);
  return numbers;
}

void expect_revision(const char* rule, std::shared_ptr<const int64_t> revision) {
  cuda::CudaGraph* graph = cuda::CudaGraph::recording();
  if (!graph) return;
  graph->before_replay([rule, revision, then = *revision] {
    SF_CHECK_AS(RuntimeError, *revision == then, rule,
                ": its state was loaded, its groups or an option that a step is built from changed since the graph was "
                "captured, "
                "which would go on with what was; capture again (GraphedStep.reset)");
  });
}

}  // namespace sf::optim
