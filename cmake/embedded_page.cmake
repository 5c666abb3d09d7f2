# scaffolding/server/page/: the page's files as text in the server, so that the program needs none beside it.
file(GLOB sf_page CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.js
     ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.css ${PROJECT_SOURCE_DIR}/scaffolding/server/page/*.html)
set(sf_page_entries "")
foreach(file ${sf_page})
  file(READ ${file} text)
  cmake_path(GET file FILENAME name)
  string(APPEND sf_page_entries "    {\"${name}\", R\"page(${text})page\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/page_files.cpp @ONLY CONTENT [[
#include "scaffolding/server/page/page.h"

namespace sf::server {
const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> files = {
@sf_page_entries@  };
  return files;
}
}  // namespace sf::server
]])
target_sources(scaffolding_server PRIVATE ${PROJECT_BINARY_DIR}/generated/page_files.cpp)
