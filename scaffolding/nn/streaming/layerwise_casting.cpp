#include "scaffolding/nn/streaming/layerwise_casting.h"

#include <regex>
#include <unordered_set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_groups.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::nn {

struct LayerwiseCasting::Part final : Residence {
  Module* owner = nullptr;
  DType compute = kFloat32;
  Tensors tensors, stored;
  int inside = 0;

  void enter() override {
    if (inside++ > 0) return;
    const autograd::NoGrad off;
    stored.clear();
    try {
      for (const Tensor& t : tensors) {
        stored.push_back(t.detach());
        autograd::set_data(t, to_dtype(stored.back(), compute));
      }
    } catch (...) {
      leave();
      throw;
    }
  }
  void leave() noexcept override {
    if (--inside > 0) return;
    for (size_t i = 0; i < stored.size(); ++i) autograd::set_data(tensors[i], stored[i]);
    stored.clear();
  }
};

LayerwiseCasting::LayerwiseCasting(Module& model, DType storage, DType compute, const std::vector<std::string>& skip) {
  SF_CHECK(is_floating(storage) && is_floating(compute), "layerwise casting: dtypes must be floating, got ", storage,
           " and ", compute);
  SF_CHECK(size_of(storage) < size_of(compute),
           "layerwise casting: storage_dtype must be narrower than compute_dtype, ", "got ", storage, " and ", compute);
  std::vector<std::regex> patterns;
  for (auto& text : skip) {
    try {
      patterns.emplace_back(text);
    } catch (const std::regex_error&) {
      fail<ValueError>("layerwise casting: '", text, "' is no regular expression");
    }
  }
  std::unordered_set<TensorImpl*> stays;
  for (auto& p : named_parameters(model)) {
    const std::string owner = p.name.substr(0, p.name.rfind('.') == p.name.npos ? 0 : p.name.rfind('.'));
    for (auto& pattern : patterns)
      if (std::regex_search(owner, pattern)) stays.insert(p.tensor.impl());
  }
  for (auto& b : named_buffers(model)) stays.insert(b.tensor.impl());

  const autograd::NoGrad off;
  try {
    for (auto& group : stream_groups(model, StreamLevel::Leaf).groups) {
      auto part = std::make_unique<Part>();
      part->compute = compute;
      for (const Tensor& t : group.tensors)
        if (is_floating(t.dtype()) && size_of(t.dtype()) > size_of(storage) && !stays.count(t.impl()))
          part->tensors.push_back(t);
      if (part->tensors.empty()) continue;
      Tensors narrow;
      for (const Tensor& t : part->tensors) narrow.push_back(to_dtype(t.detach(), storage));
      add_residence(*group.owners[0], part.get());
      part->owner = group.owners[0];
      for (size_t i = 0; i < narrow.size(); ++i) autograd::set_data(part->tensors[i], narrow[i]);
      parts_.push_back(std::move(part));
    }
  } catch (...) {
    for (auto& part : parts_) remove_residence(*part->owner, part.get());
    for (auto& part : parts_)
      for (const Tensor& t : part->tensors) autograd::set_data(t, to_dtype(t.detach(), compute));
    throw;
  }
}

LayerwiseCasting::~LayerwiseCasting() {
  for (auto& part : parts_) remove_residence(*part->owner, part.get());
}

int64_t LayerwiseCasting::tensors() const {
  int64_t n = 0;
  for (auto& part : parts_) n += int64_t(part->tensors.size());
  return n;
}

}  // namespace sf::nn
