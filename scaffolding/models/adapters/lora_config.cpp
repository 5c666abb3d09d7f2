#include "scaffolding/models/adapters/lora_config.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/io/config.h"

namespace sf::models {

namespace {

// Ways of PEFT to begin with something else than the model's own weights.
constexpr const char* kChangesTheModel[] = {"pissa", "olora", "corda", "loftq"};

// Each module's name is matched with each of them.
constexpr size_t kMostRegexes = 100, kLongestRegex = 200;

bool is_plain(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

}  // namespace

LoraConfig::Patterns::Patterns(const io::Object& dict, const std::string& where, const char* field) {
  if (dict.is(io::Object::None)) return;
  SF_CHECK_AS(TypeError, dict.is_dict(), where, ": ", field, " must be a dict, got ", io::Object::name(dict.kind()));
  for (size_t i = 0; i + 1 < dict.items().size(); i += 2) {
    const std::string& key = dict.items()[i].text();
    const io::Object& value = dict.items()[i + 1];
    SF_CHECK_AS(TypeError, value.is(io::Object::Int) || value.is(io::Object::Float), where, ": ", field, " of '", key,
                "' must be a number, got ", io::Object::name(value.kind()));
    if (is_plain(key)) {
      names_.try_emplace(key, values_.size());
    } else {
      SF_CHECK(regexes_.size() < kMostRegexes && key.size() <= kLongestRegex, where, ": ", field, " has more than ",
               kMostRegexes, " regular expressions, or one of more than ", kLongestRegex, " characters");
      regexes_.emplace_back(values_.size(), tokenizers::Regex("^(?:.*\\.)?(?:" + key + ")$", where + ": " + field));
    }
    values_.push_back(value.as_float());
  }
}

std::optional<double> LoraConfig::Patterns::find(const std::string& module) const {
  size_t best = values_.size();
  for (size_t at = 0; !names_.empty();) {
    if (auto found = names_.find(module.substr(at)); found != names_.end()) best = std::min(best, found->second);
    if ((at = module.find('.', at)) == std::string::npos) break;
    ++at;
  }
  for (auto& [place, regex] : regexes_)
    if (place < best && !regex.find_all(module).empty()) best = place;
  return best < values_.size() ? std::optional(values_[best]) : std::nullopt;
}

LoraConfig::Part LoraConfig::read(const io::Object& dict) {
  Part part;
  std::optional<std::string> type;
  std::optional<bool> rslora, dora;
  io::Object ranks, alphas, init;
  io::read_fields(where_.c_str(),
                  {{"peft_type", &type},
                   {"r", &part.all.rank},
                   {"lora_alpha", &part.all.alpha},
                   {"rank_pattern", &ranks},
                   {"alpha_pattern", &alphas},
                   {"use_rslora", &rslora},
                   {"use_dora", &dora},
                   {"init_lora_weights", &init}},
                  dict);
  SF_CHECK_AS(NotSupported, !type || *type == "LORA", where_, ": is of a ", type.value_or(""),
              " adapter, which is not supported yet; LoRA is");
  SF_CHECK_AS(NotSupported, !dora.value_or(false), where_, ": use_dora: DoRA is not supported yet; LoRA is");
  if (init.is(io::Object::String))
    for (auto* name : kChangesTheModel)
      SF_CHECK_AS(NotSupported, !init.text().starts_with(name), where_, ": init_lora_weights '", init.text(),
                  "' changes the model's own weights besides, which is not supported; let PEFT convert it to a plain "
                  "LoRA");
  part.all.rslora = rslora.value_or(false);
  part.ranks = Patterns(ranks, where_, "rank_pattern");
  part.alphas = Patterns(alphas, where_, "alpha_pattern");
  return part;
}

LoraConfig LoraConfig::of_peft(const io::Object& dict, const std::string& where) {
  LoraConfig out;
  out.where_ = where;
  out.parts_[""] = out.read(dict);
  if (auto* mapping = dict.find("auto_mapping"); mapping && mapping->is_dict())
    if (auto* name = mapping->find("base_model_class"); name && name->is(io::Object::String))
      out.class_name_ = name->text();
  return out;
}

LoraConfig LoraConfig::of_diffusers(const io::Object& dict, const std::string& where) {
  std::map<std::string, std::vector<io::Object>> items;  // of each component
  for (size_t i = 0; i + 1 < dict.items().size(); i += 2) {
    const std::string& key = dict.items()[i].text();
    const size_t dot = key.find('.');
    const std::string component = dot == std::string::npos ? "" : key.substr(0, dot);
    auto& of = items[component];
    of.push_back(io::Object(std::string_view(key).substr(component.empty() ? 0 : dot + 1)));
    of.push_back(dict.items()[i + 1]);
  }
  LoraConfig out;
  out.where_ = where;
  for (auto& [component, list] : items)
    out.parts_[component] = out.read(io::Object::container(io::Object::Dict, std::move(list)));
  return out;
}

LoraConfig LoraConfig::of_components(std::map<std::string, LoraConfig> configs, const std::string& where) {
  LoraConfig out;
  out.where_ = where;
  for (auto& [component, config] : configs)
    if (auto all = config.parts_.find(""); all != config.parts_.end()) out.parts_[component] = std::move(all->second);
  return out;
}

LoraConfig::Strength LoraConfig::of(const std::string& component, const std::string& module) const {
  auto part = parts_.find(component);
  if (part == parts_.end()) part = parts_.find("");
  if (part == parts_.end()) return {};
  Strength out = part->second.all;
  if (auto rank = part->second.ranks.find(module)) out.rank = std::abs(*rank) < 1e9 ? int64_t(*rank) : -1;
  if (auto alpha = part->second.alphas.find(module)) out.alpha = *alpha;
  return out;
}

}  // namespace sf::models
