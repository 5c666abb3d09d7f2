// LoraConfig: what stands beside a LoRA's tensors about their strength: PEFT's adapter_config.json, or the same in the
// metadata of diffusers' files. Ranks are the tensors' own; the config may only agree with them.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "scaffolding/io/object.h"
#include "scaffolding/tokenizers/regex.h"

namespace sf::models {

class LoraConfig {
 public:
  LoraConfig() = default;
  // NotSupported for adapters of another type, and for those that change the model's own weights besides (PiSSA).
  static LoraConfig of_peft(const io::Object& dict, const std::string& where);
  // "lora_adapter_metadata": the same fields behind a component's name and a dot, or without one.
  static LoraConfig of_diffusers(const io::Object& dict, const std::string& where);
  // Of a pipeline, of whose components each has a config of PEFT's.
  static LoraConfig of_components(std::map<std::string, LoraConfig> configs, const std::string& where);

  struct Strength {
    std::optional<int64_t> rank;
    std::optional<double> alpha;
    bool rslora = false;  // alpha is divided by the rank's square root
  };
  Strength of(const std::string& component, const std::string& module) const;
  const std::string& where() const { return where_; }  // for errors
  const std::string& class_name() const {
    return class_name_;
  }  // of the model that it was made for; "" where none says

 private:
  // Values by the names of modules, or by ends of names that begin behind a dot: rank_pattern and alpha_pattern. Keys
  // are regular expressions as PEFT takes them, most of them plain names. The first that fits counts.
  class Patterns {
   public:
    Patterns() = default;
    Patterns(const io::Object& dict, const std::string& where, const char* field);
    std::optional<double> find(const std::string& module) const;

   private:
    std::vector<double> values_;
    std::unordered_map<std::string, size_t> names_;  // places in values_
    std::vector<std::pair<size_t, tokenizers::Regex>> regexes_;
  };
  struct Part {
    Strength all;
    Patterns ranks, alphas;
  };
  Part read(const io::Object& dict);
  std::string where_, class_name_;
  std::map<std::string, Part> parts_;  // by component; "": of all
};

}  // namespace sf::models
