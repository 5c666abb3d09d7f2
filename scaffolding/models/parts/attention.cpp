#include "scaffolding/models/parts/attention.h"

#include "scaffolding/core/error.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, const AttendOptions& o) {
  const int64_t kv_heads = o.kv_heads ? o.kv_heads : heads;
  auto split = [](const Tensor& t, int64_t n) { return t.reshape({t.size(0), t.size(1), n, t.size(2) / n}); };
  auto placed = [&](const Tensor& t, int64_t n, const HeadNorm& norm) {
    const Tensor x = norm(split(t, n)).transpose(1, 2);
    return o.rotary ? apply_rotary_emb(x, o.rotary->cos, o.rotary->sin, o.rotary->interleaved) : x;
  };
  const Tensor mask = o.mask && o.mask.ndim() == 3 ? o.mask.unsqueeze(1) : o.mask;
  return scaled_dot_product_attention(placed(q, heads, o.norm_q), placed(k, kv_heads, o.norm_k),
                                      split(v, kv_heads).transpose(1, 2), mask, o.dropout, o.causal, o.scale,
                                      kv_heads != heads)
      .transpose(1, 2)
      .flatten(2);
}

Attention::Attention(int64_t query_dim, const AttentionOptions& o)
    : heads(o.heads),
      rescale_output_factor(o.rescale_output_factor),
      residual_connection(o.residual_connection),
      to_q(query_dim, o.heads * o.dim_head, o.bias),
      to_k(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_v(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_out(nn::Linear(o.heads * o.dim_head, query_dim, o.out_bias), nn::Dropout(o.dropout)) {
  if (o.norm_num_groups) group_norm.emplace(*o.norm_num_groups, query_dim, o.eps);
  if (!o.qk_layer_norm) return;
  norm_q.emplace(Shape{o.dim_head}, o.eps);
  norm_k.emplace(Shape{o.dim_head}, o.eps);
}

namespace {
// a view where the picture is channels-last
Tensor to_tokens(const Tensor& picture) { return picture.flatten(2).transpose(1, 2); }
}  // namespace

Tensor Attention::compute(const ProjectionInput& in, const Tensor& context, const Tensor& mask, const Tensor& residual,
                          const RotaryPositions* rotary) const {
  const nn::WeightsHere here(*this);  // beside() goes past the call
  ProjectionInput x = in;
  if (const bool picture = !x.is_float8() && x.x.ndim() == 4; picture || group_norm) {
    if (group_norm) x.x = picture ? (*group_norm)(x.x) : (*group_norm)(x.x.transpose(1, 2)).transpose(1, 2);
    if (picture) x.x = to_tokens(x.x);
  }
  const Tensors qkv = context ? Tensors{project(to_q, x), project_text(to_k, context), project_text(to_v, context)}
                              : project_each({&to_q, &to_k, &to_v}, x);
  AttendOptions o{.mask = mask, .rotary = rotary};
  if (norm_q) o.norm_q = &*norm_q, o.norm_k = &*norm_k;
  return project(to_out.get<0>(), attend(qkv[0], qkv[1], qkv[2], heads, o),
                 {.dropout = &to_out.get<1>(), .residual = residual});
}

bool Attention::is_bare() const {
  return !group_norm && !residual_connection && rescale_output_factor == 1 && is_plain(*this);
}

bool Attention::takes_float8(bool has_encoder) const {
  return is_bare() && (has_encoder ? take_float8({&to_q}) : take_float8({&to_q, &to_k, &to_v}));
}

bool Attention::pack() { return is_plain(*this) && models::pack({&to_q, &to_k, &to_v}); }

Tensor Attention::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                          const Tensor& attention_mask, const Tensor& rotary_cos, const Tensor& rotary_sin) const {
  const RotaryPositions rotary{rotary_cos, rotary_sin};
  const bool picture = hidden_states.ndim() == 4,
             in_order = !picture || hidden_states.is_contiguous(MemoryFormat::ChannelsLast);
  Tensor residual;
  if (residual_connection && in_order) residual = picture ? to_tokens(hidden_states) : hidden_states;
  Tensor y = compute(hidden_states, encoder_hidden_states, attention_mask, residual, rotary_cos ? &rotary : nullptr);
  if (picture) y = y.transpose(1, 2).reshape(hidden_states.shape());
  if (residual_connection && !in_order) y = y + hidden_states;
  return rescale_output_factor == 1 ? y : y / rescale_output_factor;
}

Tensor Attention::beside(const Tensor& residual, const ProjectionInput& x, const Tensor& context,
                         const Tensor& mask) const {
  const bool adds =
      x.is_float8() || (x.x.ndim() == 3 && !residual_connection && rescale_output_factor == 1 && is_plain(*this));
  return adds ? compute(x, context, mask, residual) : residual + (*this)(x.x, context, mask);
}

Tensor attention_bias(const char* who, const char* name, const Tensor& mask, DType dtype) {
  if (!mask) return mask;
  SF_CHECK(mask.ndim() == 2 || mask.ndim() == 3, who, ": ", name,
           " must be [B, tokens] (1 where it is seen) or [B, 1, tokens] (added to scores), got ", mask.shape());
  return mask.ndim() == 3 ? mask : ((1 - mask.to(dtype)) * -10000.0).unsqueeze(1);
}

}  // namespace sf::models
