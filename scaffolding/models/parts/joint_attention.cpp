#include "scaffolding/models/parts/joint_attention.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

JointAttention::JointAttention(int64_t dim, const JointAttentionOptions& o)
    : heads(o.heads),
      to_q(dim, o.heads * o.dim_head),
      to_k(dim, o.heads * o.dim_head),
      to_v(dim, o.heads * o.dim_head) {
  const int64_t inner = o.heads * o.dim_head;
  auto make_norms = [&](std::optional<nn::RMSNorm>& q, std::optional<nn::RMSNorm>& k) {
    if (!o.qk_rms_norm_eps) return;
    q.emplace(Shape{o.dim_head}, *o.qk_rms_norm_eps);
    k.emplace(Shape{o.dim_head}, *o.qk_rms_norm_eps);
  };
  make_norms(norm_q, norm_k);
  if (!o.pre_only) to_out.emplace(nn::Linear(inner, dim), nn::Dropout(0.0));
  if (!o.has_text) return;
  for (auto* added : {&add_q_proj, &add_k_proj, &add_v_proj}) added->emplace(dim, inner);
  make_norms(norm_added_q, norm_added_k);
  if (!o.context_pre_only) to_add_out.emplace(inner, dim);
}

Tensors JointAttention::forward(const Tensor& hidden_states, const Tensor& text, const Tensor& rotary_cos,
                                const Tensor& rotary_sin) const {
  SF_CHECK(bool(text) == bool(add_q_proj),
           "JointAttention: ", text ? "has no projections for a text" : "needs a text [B, M, C]");
  // [B, tokens, heads * D], each head's channels normalised
  auto normed = [&](const std::optional<nn::RMSNorm>& norm, const Tensor& x) {
    return norm ? (*norm)(x.reshape({x.size(0), x.size(1), heads, -1})).flatten(2) : x;
  };
  Tensors all = project_each({&to_q, &to_k, &to_v}, hidden_states);
  all[0] = normed(norm_q, all[0]), all[1] = normed(norm_k, all[1]);
  const int64_t words = text ? text.size(1) : 0;
  if (text) {
    Tensors added = project_each({&*add_q_proj, &*add_k_proj, &*add_v_proj}, text);
    added[0] = normed(norm_added_q, added[0]), added[1] = normed(norm_added_k, added[1]);
    for (size_t i = 0; i < all.size(); ++i) all[i] = cat({added[i], all[i]}, 1);
  }
  const RotaryPositions rotary{rotary_cos, rotary_sin};
  const Tensor y = attend(all[0], all[1], all[2], heads, {.rotary = rotary_cos ? &rotary : nullptr});
  const Tensor own = y.narrow(1, words, hidden_states.size(1));
  return {to_out ? project(to_out->get<0>(), own, {.dropout = &to_out->get<1>()}) : own,
          to_add_out ? project(*to_add_out, y.narrow(1, 0, words)) : Tensor()};
}

bool JointAttention::pack() {
  if (!is_plain(*this)) return false;
  const bool own = models::pack({&to_q, &to_k, &to_v});
  return (add_q_proj && models::pack({&*add_q_proj, &*add_k_proj, &*add_v_proj})) || own;
}

}  // namespace sf::models
