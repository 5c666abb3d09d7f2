#include "scaffolding/models/parts/attention.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/context_cache.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/joined.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Attention::Attention(int64_t query_dim, const AttentionOptions& o)
    : heads(o.heads),
      rescale_output_factor(o.rescale_output_factor),
      residual_connection(o.residual_connection),
      to_q(query_dim, o.heads * o.dim_head, o.bias),
      to_k(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_v(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_out(nn::Linear(o.heads * o.dim_head, query_dim, o.out_bias), nn::Dropout(o.dropout)) {
  if (o.norm_num_groups) group_norm.emplace(*o.norm_num_groups, query_dim, o.eps);
}

Tensor linear_beside(const Tensor& residual, const nn::Linear& linear, const nn::Dropout* dropout, const Tensor& x) {
  const bool drops = dropout && (is_looked_at(*dropout) || (dropout->training && dropout->p.to_double() > 0));
  if (!drops && !is_looked_at(linear)) return linear_add(x, linear.weight, linear.bias, residual);
  Tensor y = linear(x);
  return residual + (dropout ? (*dropout)(y) : y);
}

namespace {
Tensor to_tokens(const Tensor& picture) { return picture.flatten(2).transpose(1, 2); }  // a view where the picture is channels-last
}  // namespace

Tensor Attention::attend(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& attention_mask, const Tensor& residual) const {
  Tensor x = hidden_states;
  const bool picture = x.ndim() == 4;
  if (group_norm) x = picture ? (*group_norm)(x) : (*group_norm)(x.transpose(1, 2)).transpose(1, 2);
  if (picture) x = to_tokens(x);
  const Tensor& context = encoder_hidden_states ? encoder_hidden_states : x;
  // The text's are the same in every step of a sampling run.
  auto projected = [&](const nn::Linear& to) { return encoder_hidden_states ? project_context(to, context) : to(context); };
  Tensors qkv = encoder_hidden_states ? Tensors() : packed(x);
  if (qkv.empty()) qkv = {to_q(x), projected(to_k), projected(to_v)};
  return mix(qkv[0], qkv[1], qkv[2], attention_mask, residual);
}

Tensor Attention::mix(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attention_mask, const Tensor& residual) const {
  auto split = [&](const Tensor& t) { return t.reshape({t.size(0), t.size(1), heads, -1}).transpose(1, 2); };
  Tensor y =
      scaled_dot_product_attention(split(q), split(k), split(v), attention_mask && attention_mask.ndim() == 3 ? attention_mask.unsqueeze(1) : attention_mask);
  y = y.transpose(1, 2).flatten(2);
  return residual ? linear_beside(residual, to_out.get<0>(), &to_out.get<1>(), y) : to_out.get<1>()(to_out.get<0>()(y));
}

// One product for queries, keys and values whose weights lie side by side; empty where they do not, or somebody wants to see the three.
Tensors Attention::packed(const Tensor& x) const {
  if (!x.device().is_cuda() || autocast::active() || autograd::any_requires_grad({x, to_q.weight, to_k.weight, to_v.weight}) || is_looked_at(to_q) ||
      is_looked_at(to_k) || is_looked_at(to_v))
    return {};
  const Tensor weight = side_by_side({to_q.weight, to_k.weight, to_v.weight}), bias = to_q.bias ? side_by_side({to_q.bias, to_k.bias, to_v.bias}) : Tensor();
  if (!weight || (to_q.bias && !bias)) return {};
  return chunk(linear(x, weight, bias), 3, -1);
}

bool Attention::takes_float8(bool has_encoder) const {
  const bool plain = !group_norm && !residual_connection && rescale_output_factor == 1 && !is_looked_at(*this);
  return plain && float8_layer(to_q) && (has_encoder || (float8_layer(to_k) && float8_layer(to_v)));
}

Tensor Attention::beside(const Tensor& residual, const Float8Rows& x, const Tensor& encoder_hidden_states, const Tensor& attention_mask) const {
  const nn::LinearFP8 *q = float8_layer(to_q), *k = float8_layer(to_k), *v = float8_layer(to_v);
  const DType dtype = residual.dtype();
  if (encoder_hidden_states)
    return mix(project_float8(*q, x, {}, dtype), project_context(to_k, encoder_hidden_states), project_context(to_v, encoder_hidden_states), attention_mask,
               residual);
  const Tensor weight = side_by_side({q->weight, k->weight, v->weight}), scale = side_by_side({q->scale, k->scale, v->scale}),
               bias = q->bias ? side_by_side({q->bias, k->bias, v->bias}) : Tensor();
  if (weight && scale && (bias || (!q->bias && !k->bias && !v->bias))) {
    const Tensors parts = chunk(linear_of_fp8(x, weight, scale, bias, {}, dtype), 3, -1);
    return mix(parts[0], parts[1], parts[2], attention_mask, residual);
  }
  return mix(project_float8(*q, x, {}, dtype), project_float8(*k, x, {}, dtype), project_float8(*v, x, {}, dtype), attention_mask, residual);
}

Tensor Attention::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& attention_mask) const {
  const bool picture = hidden_states.ndim() == 4, in_order = !picture || hidden_states.is_contiguous(MemoryFormat::ChannelsLast);
  Tensor residual;
  if (residual_connection && in_order) residual = picture ? to_tokens(hidden_states) : hidden_states;
  Tensor y = attend(hidden_states, encoder_hidden_states, attention_mask, residual);
  if (picture) y = y.transpose(1, 2).reshape(hidden_states.shape());
  if (residual_connection && !in_order) y = y + hidden_states;
  return rescale_output_factor == 1 ? y : y / rescale_output_factor;
}

Tensor Attention::beside(const Tensor& residual, const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& attention_mask) const {
  const bool plain = hidden_states.ndim() == 3 && !residual_connection && rescale_output_factor == 1 && !is_looked_at(*this);
  return plain ? attend(hidden_states, encoder_hidden_states, attention_mask, residual)
               : residual + (*this)(hidden_states, encoder_hidden_states, attention_mask);
}

FeedForwardProjection::FeedForwardProjection(int64_t dim, int64_t inner_dim, const std::string& activation, bool bias)
    : proj(dim, activation == "geglu" || activation == "swiglu" ? 2 * inner_dim : inner_dim, bias), activation_fn(activation) {
  for (const char* known : {"geglu", "gelu", "gelu-approximate", "geglu-approximate", "swiglu", "linear-silu"})
    if (activation == known) return;
  fail<NotSupported>("FeedForward: activation_fn must be geglu, gelu, gelu-approximate, geglu-approximate, swiglu or linear-silu, got '", activation, "'");
}

Tensor FeedForwardProjection::forward(const Tensor& x) const {
  if (is_looked_at(proj)) {
    Tensor y = proj(x);
    if (activation_fn == "geglu") return geglu(y);
    if (activation_fn == "swiglu") return swiglu(y);
    if (activation_fn == "geglu-approximate") return quick_gelu(y);
    return activation_fn == "linear-silu" ? silu(y) : gelu(y, activation_fn == "gelu" ? "none" : "tanh");
  }
  if (activation_fn == "geglu") return linear_geglu(x, proj.weight, proj.bias);
  if (activation_fn == "swiglu") return linear_swiglu(x, proj.weight, proj.bias);
  if (activation_fn == "geglu-approximate") return quick_gelu(proj(x));  // no gate, whatever the name says
  return linear_act(x, proj.weight, proj.bias, activation_fn == "gelu" ? "gelu" : activation_fn == "linear-silu" ? "silu" : "gelu_tanh");
}

FeedForward::FeedForward(int64_t dim, const FeedForwardOptions& o)
    : net(FeedForwardProjection(dim, o.inner_dim.value_or(4 * dim), o.activation_fn, o.bias), nn::Dropout(o.dropout),
          nn::Linear(o.inner_dim.value_or(4 * dim), dim, o.bias)) {}

// In training with GELU by tanh: the layer as one op, whose gradient passes the activation inside of a product. Elsewhere empty.
static Tensor in_training(const FeedForward& layer, const Tensor& x) {
  const FeedForwardProjection& first = layer.net.get<0>();
  if (first.activation_fn != "gelu-approximate" || is_looked_at(first) || !autograd::any_requires_grad({x, first.proj.weight, first.proj.bias})) return {};
  return nn::joined(x, first.proj, "gelu_tanh", &layer.net.get<1>(), layer.net.get<2>());
}

Tensor FeedForward::forward(const Tensor& x) const {
  if (Tensor y = in_training(*this, x)) return y;
  return net.get<2>()(net.get<1>()(net.get<0>()(x)));
}
Tensor FeedForward::beside(const Tensor& residual, const Tensor& x) const {
  if (!is_looked_at(*this))
    if (Tensor y = in_training(*this, x)) return residual + y;
  return is_looked_at(*this) ? residual + (*this)(x) : linear_beside(residual, net.get<2>(), nullptr, net.get<1>()(net.get<0>()(x)));
}

bool FeedForward::takes_float8() const {
  const FeedForwardProjection& first = net.get<0>();
  const nn::Dropout& dropout = net.get<1>();
  const bool drops = is_looked_at(dropout) || (dropout.training && dropout.p.to_double() > 0);
  return first.activation_fn == "geglu" && !drops && !is_looked_at(*this) && !is_looked_at(first) && float8_layer(first.proj) && float8_layer(net.get<2>());
}
Tensor FeedForward::beside(const Tensor& residual, const Float8Rows& x) const {
  const Tensor projection = project_float8(*float8_layer(net.get<0>().proj), x, {}, residual.dtype());
  return project_float8(*float8_layer(net.get<2>()), geglu_fp8(projection), residual, residual.dtype());
}

namespace {
std::optional<int64_t> embeddings_of(const char* who, const TransformerBlockOptions& o) {
  if (o.norm_type == "layer_norm") return {};
  SF_CHECK_AS(NotSupported, o.norm_type == "ada_norm", who, ": norm_type must be layer_norm or ada_norm, got '", o.norm_type, "'");
  SF_CHECK(o.num_embeds_ada_norm, who, ": norm_type 'ada_norm' needs num_embeds_ada_norm");
  return o.num_embeds_ada_norm;
}
AttentionOptions attention_options(const TransformerBlockOptions& o, std::optional<int64_t> cross_attention_dim) {
  return {.cross_attention_dim = cross_attention_dim,
          .heads = o.num_attention_heads,
          .dim_head = o.attention_head_dim,
          .dropout = o.dropout,
          .bias = o.attention_bias,
          .upcast_attention = o.upcast_attention};
}
constexpr double kAdaNormEps = 1e-5;  // AdaLayerNorm has its own
}  // namespace

BasicTransformerBlock::BasicTransformerBlock(const char* who, int64_t dim, const TransformerBlockOptions& o)
    : only_cross_attention(o.only_cross_attention),
      norm1(dim, o.norm_type == "ada_norm" ? kAdaNormEps : o.norm_eps, o.norm_elementwise_affine, embeddings_of(who, o)),
      attn1(dim, attention_options(o, o.only_cross_attention ? o.cross_attention_dim : std::nullopt)),
      norm3(dim, o.norm_eps, o.norm_elementwise_affine),
      ff(dim, {.activation_fn = o.activation_fn, .dropout = o.dropout}) {
  if (!o.cross_attention_dim && !o.double_self_attention) return;
  norm2.emplace(dim, o.norm_type == "ada_norm" ? kAdaNormEps : o.norm_eps, o.norm_elementwise_affine, embeddings_of(who, o));
  attn2.emplace(dim, attention_options(o, o.double_self_attention ? std::nullopt : o.cross_attention_dim));
}

Tensor BasicTransformerBlock::compute(const Tensor& x, const Tensor& mask, const Tensor& context, const Tensor& context_mask, const Tensor& timestep) const {
  // A norm whose result is quantised anyway writes it so.
  auto quantises = [](const TransformerNorm& norm) { return !norm.emb && !is_looked_at(norm) && !autograd::grad_enabled() && !autocast::active(); };
  auto attend = [&](const Attention& attention, const TransformerNorm& norm, const Tensor& h, const Tensor& encoder, const Tensor& bias) {
    return quantises(norm) && attention.takes_float8(bool(encoder)) ? attention.beside(h, layer_norm_fp8(h, norm.weight, norm.bias, norm.eps), encoder, bias)
                                                                    : attention.beside(h, norm(h, timestep), encoder, bias);
  };
  Tensor h = attend(attn1, norm1, x, only_cross_attention ? context : Tensor(), mask);
  if (attn2) h = attend(*attn2, *norm2, h, context, context_mask);
  return quantises(norm3) && ff.takes_float8() ? ff.beside(h, layer_norm_fp8(h, norm3.weight, norm3.bias, norm3.eps)) : ff.beside(h, norm3(h));
}

Tensor BasicTransformerBlock::forward(const Tensor& hidden_states, const Tensor& mask, const Tensor& context, const Tensor& context_mask,
                                      const Tensor& timestep) const {
  return run([=, this](const Tensors& in) -> Tensors { return {compute(in[0], mask, context, context_mask, timestep)}; }, {hidden_states})[0];
}

Tensor attention_bias(const char* who, const char* name, const Tensor& mask, DType dtype) {
  if (!mask) return mask;
  SF_CHECK(mask.ndim() == 2 || mask.ndim() == 3, who, ": ", name, " must be [B, tokens] (1 where it is seen) or [B, 1, tokens] (added to scores), got ",
           mask.shape());
  return mask.ndim() == 3 ? mask : ((1 - mask.to(dtype)) * -10000.0).unsqueeze(1);
}

}  // namespace sf::models
