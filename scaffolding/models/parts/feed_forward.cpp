#include "scaffolding/models/parts/feed_forward.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/error.h"
#include "scaffolding/nn/joined.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Tensor two_layers(const nn::Linear& first, const std::string& activation, const nn::Dropout* between,
                  const nn::Linear& second, const Tensor& x, const Tensor& residual) {
  // Elsewhere the second product has a residual to add, and the first one takes the activation along anyway.
  if (autograd::any_requires_grad({x, first.weight, first.bias}))
    if (Tensor y = nn::joined(x, first, activation, between, second)) return residual ? residual + y : y;
  const Tensor h = project(first, x, {.activation = activation});
  return project(second, between ? (*between)(h) : h, {.residual = residual});
}

Tensor gated(const nn::Linear& gate, const nn::Linear& up, const Tensor& x) {
  return project(gate, x, {.activation = "silu"}) * project(up, x);
}

FeedForwardProjection::FeedForwardProjection(int64_t dim, int64_t inner_dim, const std::string& activation, bool bias)
    : proj(dim, activation == "geglu" || activation == "swiglu" ? 2 * inner_dim : inner_dim, bias),
      activation_fn(activation) {
  for (const char* known : {"geglu", "gelu", "gelu-approximate", "geglu-approximate", "swiglu", "linear-silu"})
    if (activation == known) return;
  fail<NotSupported>(
      "FeedForward: activation_fn must be geglu, gelu, gelu-approximate, geglu-approximate, swiglu or linear-silu, got "
      "'",
      activation, "'");
}

Tensor FeedForwardProjection::forward(const Tensor& x) const {
  if (activation_fn == "geglu-approximate") return quick_gelu(proj(x));  // no gate, whatever the name says
  const std::string activation = activation_fn == "gelu-approximate" ? "gelu_tanh"
                                 : activation_fn == "linear-silu"    ? "silu"
                                                                     : activation_fn;
  return project(proj, x, {.activation = activation});
}

FeedForward::FeedForward(int64_t dim, const FeedForwardOptions& o)
    : net(FeedForwardProjection(dim, o.inner_dim.value_or(4 * dim), o.activation_fn, o.bias), nn::Dropout(o.dropout),
          nn::Linear(o.inner_dim.value_or(4 * dim), dim, o.bias)) {}

Tensor FeedForward::compute(const ProjectionInput& x, const Tensor& residual) const {
  const nn::WeightsHere here(*this);  // beside() goes past the call
  const auto& [first, dropout, second] = std::tie(net.get<0>(), net.get<1>(), net.get<2>());
  if (x.is_float8())
    return project(second, ProjectionInput(geglu_fp8(project(first.proj, x)), x.dtype), {.residual = residual});
  if (first.activation_fn == "gelu-approximate" && is_plain(first))
    return two_layers(first.proj, "gelu_tanh", &dropout, second, x.x, residual);
  return project(second, dropout(first(x.x)), {.residual = residual});
}

Tensor FeedForward::forward(const Tensor& x) const { return compute(x, {}); }
Tensor FeedForward::beside(const Tensor& residual, const ProjectionInput& x) const {
  return is_plain(*this) ? compute(x, residual) : residual + (*this)(x.x);
}

bool FeedForward::takes_float8() const {
  const FeedForwardProjection& first = net.get<0>();
  return first.activation_fn == "geglu" && !drops(net.get<1>()) && is_plain(*this) && is_plain(first) &&
         take_float8({&first.proj, &net.get<2>()});
}

}  // namespace sf::models
