# scaffolding/models/configs/*.json as text in the library, so that known models are recognised without any file beside
# it.
file(GLOB sf_configs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/models/configs/*.json)
set(sf_config_entries "")
foreach(file ${sf_configs})
  file(READ ${file} text)
  cmake_path(GET file STEM name)
  string(APPEND sf_config_entries "    {\"${name}\", R\"json(${text})json\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/embedded_configs.cpp @ONLY CONTENT [[
#include "scaffolding/models/configs/embedded_configs.h"

namespace sf::models {
const std::vector<EmbeddedConfig>& embedded_configs() {
  static const std::vector<EmbeddedConfig> files = {
@sf_config_entries@  };
  return files;
}
}  // namespace sf::models
]])
target_sources(sf_core PRIVATE ${PROJECT_BINARY_DIR}/generated/embedded_configs.cpp)
