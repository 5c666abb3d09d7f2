// What other packages' tokenizers made of strings (tests/golden/make_golden_tokenizers.py), for tests alone.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/formats/zip.h"

namespace sf::tokenizers {

inline const std::string kGolden = SF_SOURCE_DIR "/tests/golden/tokenizers/";

// The one file of an archive of that name.
inline nlohmann::json golden_cases(const std::string& name) {
  const io::ZipReader archive(io::Bytes::read(kGolden + name + ".zip"));
  const io::Bytes text = archive.read(archive.entries().at(0), true);
  return nlohmann::json::parse(std::string(reinterpret_cast<const char*>(text.data), text.size));
}

}  // namespace sf::tokenizers
