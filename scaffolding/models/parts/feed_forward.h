// Feed-forward layers of tokens: two linear layers with an activation between them, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/parts/projections.h"

namespace sf::models {

// second(between(act(first(x)))) + residual. activation: as ProjectOptions names it; between and residual may be
// absent. In training on CUDA the two are one op where that is faster (nn/joined.h) and nobody looks at them.
Tensor two_layers(const nn::Linear& first, const std::string& activation, const nn::Dropout* between,
                  const nn::Linear& second, const Tensor& x, const Tensor& residual = {});

// silu(gate(x)) * up(x): the widening half of a SwiGLU whose gate is a layer of its own.
Tensor gated(const nn::Linear& gate, const nn::Linear& up, const Tensor& x);

// The widening half of a feed-forward layer: a projection with its activation, twice as wide where that is a gate.
struct FeedForwardProjection : nn::Module {
  nn::Linear proj;
  std::string activation_fn;
  SF_MODULE(FeedForwardProjection, proj)
  FeedForwardProjection(int64_t dim, int64_t inner_dim, const std::string& activation_fn, bool bias);
  Tensor forward(const Tensor& hidden_states) const;
};

struct FeedForwardOptions {
  std::string activation_fn = "geglu";  // or gelu, gelu-approximate, geglu-approximate, swiglu, linear-silu
  double dropout = 0;
  bool bias = true;
  std::optional<int64_t> inner_dim;  // absent: 4 dim
};

struct FeedForward : nn::Module {
  nn::ModuleTuple<FeedForwardProjection, nn::Dropout, nn::Linear> net;
  SF_MODULE(FeedForward, net)
  FeedForward(int64_t dim, const FeedForwardOptions& options = {});
  Tensor forward(const Tensor& hidden_states) const;
  // residual + (*this)(hidden_states)
  Tensor beside(const Tensor& residual, const ProjectionInput& hidden_states) const;
  bool takes_float8() const;  // both projections are in float8, and a GEGLU is between them

 private:
  Tensor compute(const ProjectionInput& x, const Tensor& residual) const;
};

}  // namespace sf::models
