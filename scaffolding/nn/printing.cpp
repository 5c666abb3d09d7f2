#include "scaffolding/nn/printing.h"

#include <ostream>

namespace sf::nn {

std::ostream& operator<<(std::ostream& out, Module& m) { return out << repr(m); }

}  // namespace sf::nn
