// The version of the library, and how it was built.
#pragma once
#include <string>

namespace sf {

const char* version();     // "0.1.0"
std::string build_info();  // one line: compiler, oneDNN or not

}  // namespace sf
