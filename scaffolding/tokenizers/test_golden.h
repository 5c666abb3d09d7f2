// What other packages' tokenizers made of strings (tests/golden/make_golden_tokenizers.py), for tests alone.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_packed.h"

namespace sf::tokenizers {

inline const std::string kGolden = SF_SOURCE_DIR "/tests/golden/tokenizers/";

inline nlohmann::json golden_cases(const std::string& name) {
  return nlohmann::json::parse(sf::test::unpacked(kGolden + name + ".json.xz"));
}

}  // namespace sf::tokenizers
