// Modules written to streams as torch prints them: std::cout << net.
#pragma once
#include <iosfwd>

#include "scaffolding/nn/module.h"

namespace sf::nn {

std::ostream& operator<<(std::ostream& out, Module& m);

}  // namespace sf::nn
