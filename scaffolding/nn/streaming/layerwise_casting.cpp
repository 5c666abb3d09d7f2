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

LayerwiseCasting::LayerwiseCasting(Module& model, DType storage, DType compute, const std::vector<std::string>& skip)
    : model_(model) {
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
  const autograd::NoGrad off;
  auto parts = std::make_unique<CastParts>(model, compute);
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
        if (parts->is_read_elsewhere(t)) {
          change(t, to_dtype(narrow, compute));
          continue;
        }
        parts->add(layer, t);
        change(t, narrow);
      }
    }
  } catch (...) {
    for (auto& [t, value] : before) autograd::set_data(t, value);
    throw;
  }
  parts_ = std::move(parts);
  set_cast(model, compute);
}

LayerwiseCasting::~LayerwiseCasting() { set_cast(model_, {}); }

}  // namespace sf::nn
