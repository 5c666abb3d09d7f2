// The JSON files of this folder, which cmake/embedded.cmake compiles into the library: what is known of
// published models, so that their files are recognised, and not_supported.json, by which files of other families are.
// single_file/kinds.cpp reads them.
#pragma once
#include <vector>

namespace sf::models {

struct EmbeddedConfig {
  const char* name;  // of the file, without ".json"
  const char* text;
};
const std::vector<EmbeddedConfig>& embedded_configs();  // sorted by name

}  // namespace sf::models
