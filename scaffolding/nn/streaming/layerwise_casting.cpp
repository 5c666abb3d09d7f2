#include "scaffolding/nn/streaming/layerwise_casting.h"

#include <regex>
#include <unordered_map>
#include <unordered_set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_groups.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::nn {

struct LayerwiseCasting::Part final : Residence {
  std::vector<Module*> owners;  // within whose calls the weights are wide
  DType compute = kFloat32;
  Tensors tensors, stored;
  int inside = 0;

  void live_in(Module& m) {
    add_residence(m, this);
    owners.push_back(&m);
  }
  void move_out() {
    for (Module* m : owners) remove_residence(*m, this);
    owners.clear();
  }
  bool may_move() const override { return inside == 0; }
  bool is_cast() const override { return true; }
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

namespace {

// Of diffusers: layers whose weights it casts, of whatever module.
bool is_cast(const Module& m) {
  static const std::unordered_set<std::string_view> types{
      "Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"};
  return types.count(m.type()) > 0;
}

// Whether a pattern is found in the module's name, or in that of one that it is in.
bool is_skipped(const std::string& name, const std::vector<std::regex>& patterns) {
  for (size_t end = name.find('.');; end = name.find('.', end + 1)) {
    const std::string outer = name.substr(0, end);
    for (auto& pattern : patterns)
      if (std::regex_search(outer, pattern)) return true;
    if (end == name.npos) return false;
  }
}

}  // namespace

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
  // Whoever calls a part has its weights; others that are read past calls, or by two, are rounded and stay wide.
  std::unordered_map<TensorImpl*, Module*> part_of;
  for (auto& group : stream_groups(model, StreamLevel::Leaf).groups)
    for (const Tensor& t : group.tensors) part_of[t.impl()] = group.owners[0];
  std::unordered_map<TensorImpl*, int> uses;
  for (auto& each : named_modules(model)) {
    if (auto* reads = dynamic_cast<ReadsBelow*>(each.module))
      for (const Tensor& t : reads->read_below())
        if (t) uses[t.impl()] = 2;
    for (auto& p : named_parameters(*each.module, "", false)) ++uses[p.tensor.impl()];
  }

  std::unordered_map<Module*, Module*> parents;
  for (auto& each : named_modules(model)) parents[each.module] = each.parent;
  auto caller_of = [&](Module* m) {  // lists are not called
    while (m && is_container(*m)) m = parents[m];
    return m;
  };

  const autograd::NoGrad off;
  std::unordered_map<Module*, Part*> parts;
  std::vector<std::pair<Tensor, Tensor>> before;
  auto change = [&](const Tensor& t, const Tensor& to) {
    before.emplace_back(t, t.detach());
    autograd::set_data(t, to);
  };
  try {
    for (auto& layer : named_modules(model)) {
      if (!is_cast(*layer.module) || is_skipped(layer.name, patterns)) continue;
      for (auto& p : named_parameters(*layer.module, "", false)) {
        const Tensor& t = p.tensor;
        if (!is_floating(t.dtype()) || size_of(t.dtype()) <= size_of(storage)) continue;
        const Tensor narrow = to_dtype(t.detach(), storage);
        const auto part = part_of.find(t.impl());
        if (part == part_of.end() && uses[t.impl()] > 1) {
          change(t, to_dtype(narrow, compute));
          continue;
        }
        Module* owner = part == part_of.end() ? layer.module : part->second;
        Part*& in = parts[owner];
        if (!in) {
          parts_.push_back(std::make_unique<Part>());
          in = parts_.back().get();
          in->compute = compute;
          in->live_in(*owner);
          places_.push_back({layer.name, owner, in});
          // A layer of no part: whoever has it may read its weights instead of calling it.
          if (Module* outer = part == part_of.end() ? caller_of(layer.parent) : nullptr) {
            in->live_in(*outer);
            places_.push_back({layer.name, outer, in});
          }
        }
        in->tensors.push_back(t);
        change(t, narrow);
      }
    }
  } catch (...) {
    for (auto& part : parts_) part->move_out();
    for (auto& [t, value] : before) autograd::set_data(t, value);
    throw;
  }
  model_ = &model;
  set_cast(model, compute);
}

LayerwiseCasting::~LayerwiseCasting() {
  for (auto& part : parts_) part->move_out();
  set_cast(*model_, {});
}

int64_t LayerwiseCasting::tensors() const {
  int64_t n = 0;
  for (auto& part : parts_) n += int64_t(part->tensors.size());
  return n;
}

}  // namespace sf::nn
