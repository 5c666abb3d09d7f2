// Linear layers as models see them. A model says what is computed: products, the activation and the residual that
// belong to them, which layers read one input, that an input is the text. How that is done is decided here for all
// models: what a layer's weight is made of now, whether somebody wants to see its calls, which kernels may therefore go
// past them, what is kept. Layers stay nn::Linear members of their parts; the functions are called from any thread.
#pragma once
#include "scaffolding/models/parts/lora.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/ops/quantize/fp8_producers.h"

namespace sf::models {

// What stands where a model has a linear layer: the one answer that every fused path asks for. Another way to store
// weights is a kind here, with its product in project(). An adapter (lora.h) leaves the kind what it is, so that
// packing and text caches go on: project() and project_each() add the side product to theirs, before the activation.
struct Projection {
  enum class Kind {
    Called,  // hooks, a subclass or a module that is not known here want to see every call, and nothing goes past one
    // the layer's own weight [N, K] in a floating dtype, which products read together with bias, activation,
    // residual and neighbours
    Dense,
    // a LinearFP8 with scales of rows on both sides (nn.quantize_ with dynamic):
    // what comes before it can quantise its result itself
    Float8,
    // another quantised layer (LinearNF4, LinearFP8), which dequantises for each call;
    // its products of the text are kept
    Stored,
  };
  Kind kind = Kind::Called;
  const nn::LinearFP8* float8 = nullptr;  // of Float8
  std::shared_ptr<const LoraPath> lora;   // beside it, or null
};
Projection projection_of(const nn::Linear& layer);

// Whether kernels may read the tensors of a layer without kinds (a convolution, a norm, a whole part)
// past a call of it.
bool is_plain(const nn::Module& layer);
// and, of a convolution, whether zeros are around its input, as those kernels have it.
bool is_plain(const nn::Conv2d& conv);
// Whether a call of it changes what goes through it, or is seen.
bool drops(const nn::Dropout& dropout);

// The side path of a layer that nobody else wants to see called; null where it has none.
std::shared_ptr<const LoraPath> lora_of(const nn::Module& layer);
// Whether kernels may read the layer's tensors past a call of it, a side path apart.
bool is_plain_beside_lora(const nn::Conv2d& conv);

// What projections read: x[..., K], or the same quantised by rows as it was made, for layers that all take_float8.
struct ProjectionInput {
  Tensor x;                // absent where there are rows
  Float8Rows rows;         // of x
  DType dtype = kFloat32;  // of products of rows
  ProjectionInput(Tensor tokens) : x(std::move(tokens)) {}
  ProjectionInput(Float8Rows quantised, DType of_products) : rows(std::move(quantised)), dtype(of_products) {}
  bool is_float8() const { return bool(rows.q); }
};
bool take_float8(std::initializer_list<const nn::Linear*> layers);

// What is done with a product, in this order.
struct ProjectOptions {
  std::string activation =
      {};  // relu, gelu, gelu_tanh, silu, quick_gelu; geglu or swiglu of a product [hidden, gate], which halve it
  const nn::Dropout* dropout = nullptr;  // called unless that is the same as going past it
  Tensor residual = {};                  // added
};
// layer(x) with the options' part of it, in the product's own pass where a kernel does that.
Tensor project(const nn::Linear& layer, const ProjectionInput& x, const ProjectOptions& options = {});

// Each layer's product of one input, in order: one product for all where their weights lie side by side (pack)
// and no gradient is recorded.
Tensors project_each(std::initializer_list<const nn::Linear*> layers, const ProjectionInput& x);
// Lays their weights and biases side by side. False, and nothing moves, where they cannot be one: of several kinds, or
// seen by hooks or Python.
bool pack(std::initializer_list<const nn::Linear*> layers);

// layer(text), from the ContextCache where one is in force. Hooks, and what stands in for the layer unknown to us,
// see every call.
Tensor project_text(const nn::Linear& layer, const Tensor& text);
// The same of compute(text), which reads the text and these layers alone. What it captures lives as long as the layers.
Tensor project_text(std::initializer_list<const nn::Linear*> layers, const Tensor& text,
                    const std::function<Tensor(const Tensor& text)>& compute);

// An activation by its name in ProjectOptions.
Tensor activate(const Tensor& x, const std::string& activation);

}  // namespace sf::models
