#include "scaffolding/models/parts/config_checks.h"

namespace sf::models {

void check_sizes(const char* who, std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (auto& [name, value] : sizes)
    SF_CHECK(value > 0 && value <= kMostChannels, who, ": ", name, " must be between 1 and ", kMostChannels, ", got ",
             value);
}

void check_num_layers(const char* who, int64_t num_layers) {
  SF_CHECK(num_layers > 0 && num_layers <= kMostLayers, who, ": num_layers must be between 1 and ", kMostLayers,
           ", got ", num_layers);
}

}  // namespace sf::models
