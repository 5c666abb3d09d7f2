// Errors in Python that C++ adds to on their way out. Everything here needs the GIL.
#pragma once

#include <optional>

#include "scaffolding/core/out_of_memory.h"

namespace sf::py {

extern PyObject* out_of_memory_type;               // the exception that is an OutOfMemory in Python
std::optional<OutOfMemory>& last_out_of_memory();  // the calling thread's, to which modules in Python add their names

}  // namespace sf::py
