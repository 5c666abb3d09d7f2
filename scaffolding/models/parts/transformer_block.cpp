#include "scaffolding/models/parts/transformer_block.h"

#include "scaffolding/core/error.h"

namespace sf::models {

namespace {
std::optional<int64_t> embeddings_of(const char* who, const TransformerBlockOptions& o) {
  if (o.norm_type == "layer_norm") return {};
  SF_CHECK_AS(NotSupported, o.norm_type == "ada_norm", who, ": norm_type must be layer_norm or ada_norm, got '",
              o.norm_type, "'");
  SF_CHECK(o.num_embeds_ada_norm, who, ": norm_type 'ada_norm' needs num_embeds_ada_norm");
  return o.num_embeds_ada_norm;
}
constexpr double kAdaNormEps = 1e-5;  // AdaLayerNorm has its own
}  // namespace

BasicTransformerBlock::BasicTransformerBlock(const char* who, int64_t dim, const TransformerBlockOptions& o)
    : only_cross_attention(o.only_cross_attention),
      norm1(dim, o.norm_type == "ada_norm" ? kAdaNormEps : o.norm_eps, o.norm_elementwise_affine,
            embeddings_of(who, o)),
      attn1(dim, attention_options_of(o, o.only_cross_attention ? o.cross_attention_dim : std::nullopt)),
      norm3(dim, o.norm_eps, o.norm_elementwise_affine),
      ff(dim, {.activation_fn = o.activation_fn, .dropout = o.dropout}) {
  if (!o.cross_attention_dim && !o.double_self_attention) return;
  norm2.emplace(dim, o.norm_type == "ada_norm" ? kAdaNormEps : o.norm_eps, o.norm_elementwise_affine,
                embeddings_of(who, o));
  attn2.emplace(dim, attention_options_of(o, o.double_self_attention ? std::nullopt : o.cross_attention_dim));
}

Tensor BasicTransformerBlock::compute(const Tensor& x, const Tensor& mask, const Tensor& context,
                                      const Tensor& context_mask, const Tensor& timestep) const {
  auto attend = [&](const Attention& attention, const TransformerNorm& norm, const Tensor& h, const Tensor& encoder,
                    const Tensor& bias) {
    return attention.beside(h, norm.before(attention.takes_float8(bool(encoder)), h, timestep), encoder, bias);
  };
  Tensor h = attend(attn1, norm1, x, only_cross_attention ? context : Tensor(), mask);
  if (attn2) h = attend(*attn2, *norm2, h, context, context_mask);
  return ff.beside(h, norm3.before(ff.takes_float8(), h));
}

Tensor BasicTransformerBlock::forward(const Tensor& hidden_states, const Tensor& mask, const Tensor& context,
                                      const Tensor& context_mask, const Tensor& timestep) const {
  return run(
      [=, this](const Tensors& in) -> Tensors { return {compute(in[0], mask, context, context_mask, timestep)}; },
      {hidden_states})[0];
}

}  // namespace sf::models
