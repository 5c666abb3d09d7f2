// The two streams behind Generator.
#pragma once
#include "scaffolding/core/generator.h"

namespace sf {

Generator make_mt19937();
Generator make_philox(int64_t threads);

}  // namespace sf
