#include "scaffolding/models/adapters/new_lora.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/lora.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::models {

namespace {

constexpr size_t kLongestPattern = 2000;
constexpr const char* kEveryLinear = "all-linear";

bool is_of(const std::string& module, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](auto& name) {
    return module == name || (module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
  });
}

// Which modules are meant.
class Targets {
 public:
  explicit Targets(const NewLora& config) : config_(config) {
    const auto& names = config.target_modules;
    SF_CHECK(names.empty() != config.target_pattern.empty(),
             "add_adapter: target_modules must say which layers get a LoRA, such as [\"to_q\", \"to_k\", \"to_v\", "
             "\"to_out.0\"] or \"all-linear\"");
    SF_CHECK(std::none_of(names.begin(), names.end(), [](auto& n) { return n.empty(); }),
             "add_adapter: a name in target_modules is empty");
    every_linear_ = names.size() == 1 && names[0] == kEveryLinear;
    SF_CHECK(config.target_pattern.size() <= kLongestPattern, "add_adapter: target_modules has more than ",
             kLongestPattern, " characters");
    if (!config.target_pattern.empty()) regex_.emplace("^(?:" + config.target_pattern + ")$", "add_adapter");
  }
  bool include(const std::string& name, const nn::Module& module) const {
    if (is_of(name, config_.exclude_modules)) return false;
    if (every_linear_) return LoraPath::goes_beside(module) && !dynamic_cast<const nn::Conv2d*>(&module);
    return regex_ ? !regex_->find_all(name).empty() : is_of(name, config_.target_modules);
  }
  std::string text() const {
    if (regex_) return "'" + config_.target_pattern + "'";
    std::string all;
    for (auto& name : config_.target_modules) all += (all.empty() ? "'" : ", '") + name + "'";
    return all;
  }

 private:
  const NewLora& config_;
  bool every_linear_ = false;
  std::optional<tokenizers::Regex> regex_;
};

// What reads PEFT's files knows how patterns count.
LoraConfig strengths_of(const NewLora& config) {
  std::vector<io::Object> ranks, alphas;
  for (auto& [name, rank] : config.rank_pattern)
    ranks.insert(ranks.end(), {io::Object(std::string_view(name)), io::Object(rank)});
  for (auto& [name, alpha] : config.alpha_pattern)
    alphas.insert(alphas.end(), {io::Object(std::string_view(name)), io::Object(alpha)});
  auto dict = [](std::vector<io::Object> items) { return io::Object::container(io::Object::Dict, std::move(items)); };
  return LoraConfig::of_peft(dict({"r", io::Object(config.r), "lora_alpha", io::Object(config.lora_alpha),
                                   "rank_pattern", dict(std::move(ranks)), "alpha_pattern", dict(std::move(alphas)),
                                   "use_rslora", io::Object(config.use_rslora)}),
                             "add_adapter");
}

// As PEFT draws them: both begin as layers of their own, then A, or both, begin anew.
void draw(Tensor a, Tensor b, NewLora::Init init, const Generator& generator) {
  const double of_layers = std::sqrt(5.0);
  nn::init::kaiming_uniform_(a, of_layers, "fan_in", "leaky_relu", generator);
  nn::init::kaiming_uniform_(b, of_layers, "fan_in", "leaky_relu", generator);
  if (init == NewLora::Init::Random) return;
  if (init == NewLora::Init::Gaussian) nn::init::normal_(a, 0, 1.0 / double(a.size(0)), generator);
  else nn::init::kaiming_uniform_(a, of_layers, "fan_in", "leaky_relu", generator);
  nn::init::zeros_(b);
}

}  // namespace

std::vector<LoraLayer> new_lora_layers(Model& model, const NewLora& config, const Generator& generator) {
  SF_CHECK(config.lora_dropout >= 0 && config.lora_dropout < 1,
           "add_adapter: lora_dropout must be from 0 to below 1, "
           "got ",
           config.lora_dropout);
  const Targets targets(config);
  const LoraConfig strengths = strengths_of(config);
  std::vector<LoraLayer> out;
  for (auto& m : nn::named_modules(model)) {
    if (m.name.empty() || !targets.include(m.name, *m.module)) continue;
    SF_CHECK(LoraPath::goes_beside(*m.module), "add_adapter: '", m.name, "' is a ", m.module->type(),
             "; a LoRA goes beside linear layers and 2-D convolutions of one group");
    const LoraConfig::Strength s = strengths.of("", m.name);
    SF_CHECK(*s.rank > 0 && *s.rank <= kMostLoraRank, "add_adapter: r must be from 1 to ", kMostLoraRank, ", got ",
             *s.rank, " for '", m.name, "'");
    SF_CHECK(std::isfinite(*s.alpha) && *s.alpha != 0, "add_adapter: lora_alpha must be finite and not 0, got ",
             *s.alpha, " for '", m.name, "'");
    LoraLayer layer;
    layer.module = layer.stem = m.name;
    layer.rank = *s.rank, layer.alpha = *s.alpha;
    layer.scale = *s.alpha / (s.rslora ? std::sqrt(double(*s.rank)) : double(*s.rank));
    const LoraPath shapes(*m.module, layer.rank, kFloat32, Device());
    layer.down = empty(shapes.down.shape(), kFloat32), layer.up = empty(shapes.up.shape(), kFloat32);
    layer.rows = layer.up.size(0);
    draw(layer.down, layer.up, config.init_lora_weights, generator);
    for (Tensor* t : {&layer.down, &layer.up}) *t = t->to(model.device()).requires_grad_();
    out.push_back(std::move(layer));
  }
  SF_CHECK(!out.empty(), "add_adapter: no module of ", model.type(), " is meant by target_modules ", targets.text(),
           "; names and their ends are given as named_modules() has them");
  return out;
}

}  // namespace sf::models
