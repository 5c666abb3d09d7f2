# CLIP's merges (tokenizers/clip/merges.z, which tools/clip_merges.py writes) as bytes in the library: checkpoints of
# Stable Diffusion hold no tokenizer, and all of them were trained with this one.
set(sf_merges ${PROJECT_SOURCE_DIR}/scaffolding/tokenizers/clip/merges.z)
file(READ ${sf_merges} sf_merges_bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," sf_merges_bytes "${sf_merges_bytes}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sf_merges})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/clip_merges_file.cpp @ONLY CONTENT [[
#include "scaffolding/tokenizers/clip_merges.h"

namespace sf::tokenizers {
std::span<const unsigned char> clip_merges_file() {
  static constexpr unsigned char bytes[] = {@sf_merges_bytes@};
  return bytes;
}
}  // namespace sf::tokenizers
]])
target_sources(sf_core PRIVATE ${PROJECT_BINARY_DIR}/generated/clip_merges_file.cpp)
