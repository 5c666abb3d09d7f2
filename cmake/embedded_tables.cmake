# Deflated tables that the library has in it as bytes: sf_embed_table(FUNCTION FILE) makes the function that
# tokenizers/embedded.h declares.
function(sf_embed_table function file)
  file(READ ${PROJECT_SOURCE_DIR}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${function}.cpp @ONLY CONTENT [[
#include "scaffolding/tokenizers/embedded.h"

namespace sf::tokenizers {
std::span<const unsigned char> @function@() {
  static constexpr unsigned char bytes[] = {@bytes@};
  return bytes;
}
}  // namespace sf::tokenizers
]])
  target_sources(sf_core PRIVATE ${PROJECT_BINARY_DIR}/generated/${function}.cpp)
endfunction()

# tools/clip_merges.py writes it. Checkpoints of Stable Diffusion hold no tokenizer, and all of them were trained with
# this one.
sf_embed_table(clip_merges_file scaffolding/tokenizers/clip/merges.z)
sf_embed_table(html_entities_file scaffolding/tokenizers/html_entities.z)   # tools/make_html_entities.py
