#include "apps/cli/quantize_option.h"

#include <CLI/CLI.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf::cli {

void add_quantize_option(CLI::App& command, std::string& value) {
  command.add_option(
      "--quantize", value,
      "Weights in few bits, made so while they are read: q8_0, q6_K, q5_K, q4_K, q4_0, nf4, int8, float8_e4m3fn and "
      "others. With -dynamic behind it, as int8-dynamic or q8_0-dynamic, activations become int8 too: quickest on "
      "CPUs");
}

diffusion::QuantizeConfigs quantize_configs(const std::string& value) {
  if (value.empty()) return {};
  constexpr std::string_view kDynamic = "dynamic";
  nn::QuantizeConfig config;
  std::string name = value;
  if (name.size() > kDynamic.size() + 1 && name.ends_with(kDynamic)) {
    const char before = name[name.size() - kDynamic.size() - 1];
    if (before == '-' || before == '_') {
      config.options.dynamic = true;
      name.resize(name.size() - kDynamic.size() - 1);
    }
  }
  config.format = nn::known_quantized_format("--quantize", name);
  SF_CHECK(!config.options.dynamic || config.format == "int8" || find_gguf_format(config.format),
           "--quantize: ", config.format,
           " has no products with int8 activations; leave '-dynamic' out, or take int8-dynamic");
  return {{"", std::make_shared<const nn::QuantizeConfig>(std::move(config))}};
}

}  // namespace sf::cli
