#include <cstdio>

#include "scaffolding/scaffolding.h"

int main() {
  sf::Tensor x = sf::tensor({2, 3}).requires_grad_();
  (x * x + x).sum().backward();
  sf::Tensor g = x.grad();
  std::printf("%s: gradient %g %g\n", sf::version(), g[0].item(), g[1].item());
  return g[0].item<float>() == 5 && g[1].item() == 7 ? 0 : 1;
}
