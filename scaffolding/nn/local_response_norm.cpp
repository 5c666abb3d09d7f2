#include "scaffolding/nn/local_response_norm.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/ops/local_response_norm/local_response_norm.h"

namespace sf::nn {

LocalResponseNorm::LocalResponseNorm(int64_t n, Number a, Number b, Number bias) : size(n), alpha(a), beta(b), k(bias) {
  SF_CHECK(n > 0, "LocalResponseNorm: size must be positive, got ", n);
}
Tensor LocalResponseNorm::forward(const Tensor& x) const { return local_response_norm(x, size, alpha, beta, k); }
std::string LocalResponseNorm::extra_repr() const {
  return text(size) + ", alpha=" + text(alpha) + ", beta=" + text(beta) + ", k=" + text(k);
}

SF_LAYER(LocalResponseNorm, "size, alpha=0.0001, beta=0.75, k=1.0",
         [](int64_t size, Number alpha, Number beta, Number k) {
           return std::make_unique<LocalResponseNorm>(size, alpha, beta, k);
         })
    .doc("input[N, C, ...] / (k + alpha * mean of input^2 over size neighbouring channels)^beta.")
    .forward<&LocalResponseNorm::forward>("input")
    .field<&LocalResponseNorm::size>("size")
    .field<&LocalResponseNorm::alpha>("alpha")
    .field<&LocalResponseNorm::beta>("beta")
    .field<&LocalResponseNorm::k>("k");

}  // namespace sf::nn
