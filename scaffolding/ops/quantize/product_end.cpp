#include "scaffolding/ops/quantize/product_end.h"

#include <string_view>
#include <utility>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/activation/activation.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

Activation pointwise_activation(const char* op, const std::string& name) {
  constexpr std::pair<std::string_view, Activation> all[] = {
      {"none", Activation::None},          {"relu", Activation::Relu}, {"gelu", Activation::GeluErf},
      {"gelu_tanh", Activation::GeluTanh}, {"silu", Activation::Silu}, {"quick_gelu", Activation::QuickGelu}};
  for (auto& [n, act] : all)
    if (n == name) return act;
  fail(op, ": activation must be none, relu, gelu, gelu_tanh, silu or quick_gelu, got '", name, "'");
}

Tensor activated(const Tensor& x, Activation act) {
  switch (act) {
    case Activation::Relu: return relu(x);
    case Activation::GeluErf: return gelu(x);
    case Activation::GeluTanh: return gelu(x, "tanh");
    case Activation::Silu: return silu(x);
    case Activation::QuickGelu: return quick_gelu(x);
    default: return x;
  }
}

}  // namespace sf
