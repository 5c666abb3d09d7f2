// --quantize: weights that become few bits while a model is read. Functions only.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sf::cli {

void add_quantize_option(CLI::App& command, std::string& value);
std::vector<std::string> quantize_words();  // its values, for completions

}  // namespace sf::cli
