# Files as text in a library, so that it needs none beside it.
#   sf_embed(target <library> out <name>.cpp header <with struct and declaration> namespace <name>
#            type <struct of name and text> function <name> names <FILENAME or STEM> files ...)
# makes `const std::vector<type>& function()`, by name.
function(sf_embed)
  cmake_parse_arguments(PARSE_ARGV 0 sf "" "target;out;header;namespace;type;function;names" "files")
  set(sf_entries "")
  foreach(file ${sf_files})
    file(READ ${file} text)
    cmake_path(GET file ${sf_names} name)
    string(APPEND sf_entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${sf_out} @ONLY CONTENT [[
#include "@sf_header@"

namespace @sf_namespace@ {
const std::vector<@sf_type@>& @sf_function@() {
  static const std::vector<@sf_type@> files = {
@sf_entries@  };
  return files;
}
}  // namespace @sf_namespace@
]])
  target_sources(${sf_target} PRIVATE ${PROJECT_BINARY_DIR}/generated/${sf_out})
endfunction()
