#include "apps/cli/quantize_option.h"

#include <CLI/CLI.hpp>

#include "scaffolding/nn/quantize.h"

namespace sf::cli {

void add_quantize_option(CLI::App& command, std::string& value) {
  command.add_option(
      "--quantize", value,
      "Weights in few bits, made so while they are read: q8_0, q6_K, q5_K, q4_K, q4_0, nf4, int8, float8_e4m3fn and "
      "others. With -dynamic behind it, as int8-dynamic or q8_0-dynamic, activations become int8 too: quickest on "
      "CPUs");
}

std::vector<std::string> quantize_words() {
  std::vector<std::string> words = nn::quantized_formats();
  for (const char* more : {"int8-dynamic", "Q8_0-dynamic", "Q4_K-dynamic"}) words.emplace_back(more);
  return words;
}

}  // namespace sf::cli
