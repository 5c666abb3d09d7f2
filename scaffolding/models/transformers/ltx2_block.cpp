#include "scaffolding/models/transformers/ltx2_block.h"

#include <cmath>

#include "scaffolding/models/parts/norm.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// Tokens x[B, N, C] as samples of one token each where there are as many rows of what they are modulated by.
Tensor as_samples(const Tensor& x, const Tensor& rows) {
  return rows.size(0) == x.size(0) ? x : x.reshape({rows.size(0), 1, x.size(2)});
}

Tensor gated_tokens(const Tensor& residual, const Tensor& gate, const Tensor& x) {
  return gated_residual(as_samples(residual, gate), gate, as_samples(x, gate)).reshape(residual.shape());
}

// Rows of given[R, n, C] with a block's table [n, C] added, each [R, C]. Those of samples are made together, those of
// tokens, which are as large as the tokens, when they are asked for.
class ModulationRows {
 public:
  ModulationRows(const Tensor& table, const Tensor& given, int64_t batch) : table_(table), given_(given) {
    if (given.size(0) == batch) rows_ = rows_with_table(table, given);
  }
  Tensor operator[](int64_t i) const {
    return rows_.empty() ? given_.select(1, i) + table_.select(0, i) : rows_[size_t(i)];
  }

 private:
  Tensor table_, given_;
  Tensors rows_;
};

enum : int64_t { kShift, kScale, kGate, kShiftMlp, kScaleMlp, kGateMlp, kShiftQuery, kScaleQuery, kGateQuery };
enum : int64_t { kA2VScale, kA2VShift, kV2AScale, kV2AShift };

// What a block has for one of its streams.
struct Stream {
  const nn::RMSNorm &norm1, &norm2, &norm3;
  const LTX2Attention &attn1, &attn2;
  const FeedForward& ff;
  const Tensor &table, &prompt_table;
};

Tensor self_attended(const Stream& s, const Tensor& x, const ModulationRows& m, const LTX2Rotary& rotary,
                     const Tensor& mask, bool only_values, const Tensor& perturbation_mask) {
  const Tensor y = s.attn1(NormedTokens(s.norm1, x).modulated(m[kScale], m[kShift]), Tensor(), mask, rotary.cos,
                           rotary.sin, Tensor(), Tensor(), only_values, perturbation_mask);
  return gated_tokens(x, m[kGate], y);
}

// prompt[B, 2, C]: what is added to the text's table; absent: nothing.
Tensor told(const Stream& s, const Tensor& x, const ModulationRows& m, const Tensor& text, const Tensor& prompt,
            const Tensor& mask) {
  Tensor context = text;
  if (s.prompt_table) {
    const int64_t batch = text.size(0), channels = text.size(2);
    const Tensors rows =
        rows_with_table(s.prompt_table, prompt ? prompt : zeros({batch, 2, channels}, text.dtype(), text.device()));
    context = modulate(text, rows[kScale], rows[kShift]);
  }
  if (s.table.size(0) <= kGateQuery) return s.attn2.beside(x, s.norm2(x), context, mask);
  const Tensor query = NormedTokens(s.norm2, x).modulated(m[kScaleQuery], m[kShiftQuery]);
  return gated_tokens(x, m[kGateQuery], s.attn2(query, context, mask));
}

Tensor fed_forward(const Stream& s, const Tensor& x, const ModulationRows& m) {
  return gated_tokens(x, m[kGateMlp], s.ff(NormedTokens(s.norm3, x).modulated(m[kScaleMlp], m[kShiftMlp])));
}

Tensor table_of(int64_t rows, int64_t channels, double deviation) {
  return nn::parameter(randn({rows, channels}) * deviation);
}

LTX2AttentionOptions attention_of(const LTX2BlockOptions& o, bool audio, std::optional<int64_t> of_other = {}) {
  return {.heads = audio ? o.audio_heads : o.heads,
          .dim_head = audio ? o.audio_dim_head : o.dim_head,
          .cross_attention_dim = of_other,
          .bias = o.attention_bias,
          .out_bias = o.attention_out_bias,
          .rope_type = o.rope_type,
          .gated = audio ? o.audio_gated : o.gated};
}
LTX2AttentionOptions text_attention_of(const LTX2BlockOptions& o, bool audio) {
  LTX2AttentionOptions made = attention_of(o, audio, audio ? o.audio_text_dim : o.text_dim);
  made.of_text = !o.modulates_text;  // else it is another one in each call
  return made;
}
// Both streams attend to each other with the audio's heads; the result is gated as the queries' stream is.
LTX2AttentionOptions cross_attention_of(const LTX2BlockOptions& o, bool gated, int64_t other_dim) {
  LTX2AttentionOptions made = attention_of(o, true, other_dim);
  made.gated = gated;
  return made;
}

int64_t video_dim(const LTX2BlockOptions& o) { return o.heads * o.dim_head; }
int64_t audio_dim(const LTX2BlockOptions& o) { return o.audio_heads * o.audio_dim_head; }
nn::RMSNorm norm_of(const LTX2BlockOptions& o, bool audio) {
  return nn::RMSNorm(Shape{audio ? audio_dim(o) : video_dim(o)}, o.norm_eps, o.norm_elementwise_affine);
}

}  // namespace

template <class Norm>
NormedTokens<Norm>::NormedTokens(const Norm& norm, const Tensor& x)
    : norm_(norm), x_(x), normed_(is_plain(norm) ? Tensor() : norm(x)) {}

template <class Norm> Tensor NormedTokens<Norm>::modulated(const Tensor& scale, const Tensor& shift) const {
  if (normed_) return modulate(as_samples(normed_, scale), scale, shift).reshape(x_.shape());
  const Tensor samples = as_samples(x_, scale);
  Tensor y;
  if constexpr (std::is_same_v<Norm, nn::RMSNorm>)
    y = rms_norm_modulate(samples, scale, shift, norm_.weight, *norm_.eps);
  else y = layer_norm_modulate(samples, scale, shift, norm_.weight, norm_.bias, norm_.eps);
  return y.reshape(x_.shape());
}

template class NormedTokens<nn::RMSNorm>;
template class NormedTokens<nn::LayerNorm>;

LTX2VideoTransformerBlock::LTX2VideoTransformerBlock(const LTX2BlockOptions& o)
    : norm1(norm_of(o, false)),
      attn1(video_dim(o), attention_of(o, false)),
      audio_norm1(norm_of(o, true)),
      audio_attn1(audio_dim(o), attention_of(o, true)),
      norm2(norm_of(o, false)),
      attn2(video_dim(o), text_attention_of(o, false)),
      audio_norm2(norm_of(o, true)),
      audio_attn2(audio_dim(o), text_attention_of(o, true)),
      audio_to_video_norm(norm_of(o, false)),
      audio_to_video_attn(video_dim(o), cross_attention_of(o, o.gated, audio_dim(o))),
      video_to_audio_norm(norm_of(o, true)),
      video_to_audio_attn(audio_dim(o), cross_attention_of(o, o.audio_gated, video_dim(o))),
      norm3(norm_of(o, false)),
      ff(video_dim(o), {.activation_fn = o.activation_fn, .bias = o.ff_bias}),
      audio_norm3(norm_of(o, true)),
      audio_ff(audio_dim(o), {.activation_fn = o.activation_fn, .bias = o.audio_ff_bias}),
      scale_shift_table(table_of(o.modulates_queries ? 9 : 6, video_dim(o), 1 / std::sqrt(double(video_dim(o))))),
      audio_scale_shift_table(
          table_of(o.audio_modulates_queries ? 9 : 6, audio_dim(o), 1 / std::sqrt(double(audio_dim(o))))),
      video_a2v_cross_attn_scale_shift_table(table_of(5, video_dim(o), 1)),
      audio_a2v_cross_attn_scale_shift_table(table_of(5, audio_dim(o), 1)) {
  if (!o.modulates_text) return;
  prompt_scale_shift_table = table_of(2, video_dim(o), 1);
  audio_prompt_scale_shift_table = table_of(2, audio_dim(o), 1);
}

Tensors LTX2VideoTransformerBlock::forward(const Tensor& hidden_states, const Tensor& audio_hidden_states,
                                           const Tensor& encoder_hidden_states,
                                           const Tensor& audio_encoder_hidden_states, const Tensors& modulation,
                                           const Tensors& rotary, const Tensor& encoder_attention_mask,
                                           const Tensor& audio_encoder_attention_mask,
                                           const Tensor& video_self_attention_mask, bool isolate_modalities,
                                           bool only_values, const Tensor& perturbation_mask) const {
  auto block = [=, this](const Tensors& in) -> Tensors {
    const Stream video{norm1, norm2, norm3, attn1, attn2, ff, scale_shift_table, prompt_scale_shift_table};
    const Stream audio{audio_norm1,
                       audio_norm2,
                       audio_norm3,
                       audio_attn1,
                       audio_attn2,
                       audio_ff,
                       audio_scale_shift_table,
                       audio_prompt_scale_shift_table};
    const int64_t batch = in[0].size(0);
    const Tensor *given = &in[4], *prompts = in.size() > 10 ? &in[10] : nullptr;
    auto rotary_of = [&](size_t i) { return LTX2Rotary{rotary[2 * i], rotary[2 * i + 1]}; };

    const ModulationRows mv(scale_shift_table, given[0], batch), ma(audio_scale_shift_table, given[3], batch);
    Tensor x = self_attended(video, in[0], mv, rotary_of(0), video_self_attention_mask, only_values, perturbation_mask);
    Tensor a = self_attended(audio, in[1], ma, rotary_of(1), Tensor(), only_values, perturbation_mask);
    x = told(video, x, mv, in[2], prompts ? prompts[0] : Tensor(), encoder_attention_mask);
    a = told(audio, a, ma, in[3], prompts ? prompts[1] : Tensor(), audio_encoder_attention_mask);

    if (!isolate_modalities) {
      const Tensor &video_table = video_a2v_cross_attn_scale_shift_table,
                   &audio_table = audio_a2v_cross_attn_scale_shift_table;
      const ModulationRows cv(video_table.narrow(0, 0, 4), given[1], batch),
          ca(audio_table.narrow(0, 0, 4), given[4], batch), gv(video_table.narrow(0, 4, 1), given[2], batch),
          ga(audio_table.narrow(0, 4, 1), given[5], batch);
      const LTX2Rotary rv = rotary_of(2), ra = rotary_of(3);
      // Each sees the other as it was before either attended.
      const NormedTokens nv(audio_to_video_norm, x), na(video_to_audio_norm, a);
      const Tensor of_audio =
          audio_to_video_attn(nv.modulated(cv[kA2VScale], cv[kA2VShift]), na.modulated(ca[kA2VScale], ca[kA2VShift]),
                              Tensor(), rv.cos, rv.sin, ra.cos, ra.sin);
      const Tensor of_video =
          video_to_audio_attn(na.modulated(ca[kV2AScale], ca[kV2AShift]), nv.modulated(cv[kV2AScale], cv[kV2AShift]),
                              Tensor(), ra.cos, ra.sin, rv.cos, rv.sin);
      x = gated_tokens(x, gv[0], of_audio);
      a = gated_tokens(a, ga[0], of_video);
    }
    return {fed_forward(video, x, mv), fed_forward(audio, a, ma)};
  };
  Tensors inputs{hidden_states, audio_hidden_states, encoder_hidden_states, audio_encoder_hidden_states};
  inputs.insert(inputs.end(), modulation.begin(), modulation.end());
  return run(block, inputs);
}

}  // namespace sf::models
