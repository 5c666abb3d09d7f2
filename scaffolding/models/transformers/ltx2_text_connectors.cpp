#include "scaffolding/models/transformers/ltx2_text_connectors.h"

#include <cmath>
#include <limits>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields LTX2TextConnectorsConfig::fields() {
  return {{"caption_channels", &caption_channels},
          {"text_proj_in_factor", &text_proj_in_factor},
          {"video_connector_num_attention_heads", &video_connector_num_attention_heads},
          {"video_connector_attention_head_dim", &video_connector_attention_head_dim},
          {"video_connector_num_layers", &video_connector_num_layers},
          {"video_connector_num_learnable_registers", &video_connector_num_learnable_registers},
          {"video_gated_attn", &video_gated_attn},
          {"audio_connector_num_attention_heads", &audio_connector_num_attention_heads},
          {"audio_connector_attention_head_dim", &audio_connector_attention_head_dim},
          {"audio_connector_num_layers", &audio_connector_num_layers},
          {"audio_connector_num_learnable_registers", &audio_connector_num_learnable_registers},
          {"audio_gated_attn", &audio_gated_attn},
          {"connector_rope_base_seq_len", &connector_rope_base_seq_len},
          {"rope_theta", &rope_theta},
          {"rope_double_precision", &rope_double_precision},
          {"causal_temporal_positioning", &causal_temporal_positioning},
          {"rope_type", &rope_type},
          {"per_modality_projections", &per_modality_projections},
          {"video_hidden_dim", &video_hidden_dim},
          {"audio_hidden_dim", &audio_hidden_dim},
          {"proj_bias", &proj_bias}};
}

namespace {

using ConnectorsConfig = LTX2TextConnectorsConfig;
const char* const kConnectors = LTX2TextConnectors::kName;
constexpr double kConnectorEps = 1e-6;

LTX2ConnectorOptions connector_of(const ConnectorsConfig& c, bool audio) {
  return {.heads = audio ? c.audio_connector_num_attention_heads : c.video_connector_num_attention_heads,
          .dim_head = audio ? c.audio_connector_attention_head_dim : c.video_connector_attention_head_dim,
          .num_layers = audio ? c.audio_connector_num_layers : c.video_connector_num_layers,
          .registers = audio ? c.audio_connector_num_learnable_registers : c.video_connector_num_learnable_registers,
          .gated = audio ? c.audio_gated_attn : c.video_gated_attn,
          .base_seq_len = c.connector_rope_base_seq_len,
          .theta = c.rope_theta,
          .double_precision = c.rope_double_precision,
          .rope_type = ltx2_rope_type(kConnectors, c.rope_type)};
}
int64_t channels_of(const LTX2ConnectorOptions& o) { return o.heads * o.dim_head; }

ConnectorsConfig checked(ConnectorsConfig c) {
  check_sizes(kConnectors,
              {{"caption_channels", c.caption_channels},
               {"text_proj_in_factor", c.text_proj_in_factor},
               {"video_connector_num_attention_heads", c.video_connector_num_attention_heads},
               {"video_connector_attention_head_dim", c.video_connector_attention_head_dim},
               {"video_connector_num_learnable_registers", c.video_connector_num_learnable_registers.value_or(1)},
               {"audio_connector_num_attention_heads", c.audio_connector_num_attention_heads},
               {"audio_connector_attention_head_dim", c.audio_connector_attention_head_dim},
               {"audio_connector_num_learnable_registers", c.audio_connector_num_learnable_registers.value_or(1)},
               {"connector_rope_base_seq_len", c.connector_rope_base_seq_len},
               {"video_hidden_dim", c.video_hidden_dim},
               {"audio_hidden_dim", c.audio_hidden_dim}});
  SF_CHECK(c.rope_theta > 0, kConnectors, ": rope_theta must be above 0, got ", c.rope_theta);
  const bool splits = ltx2_rope_type(kConnectors, c.rope_type) == LTX2RopeType::Split;
  for (const bool audio : {false, true}) {
    const LTX2ConnectorOptions o = connector_of(c, audio);
    const std::string stream = audio ? "audio" : "video";
    SF_CHECK(o.num_layers >= 0 && o.num_layers <= kMostLayers, kConnectors, ": ", stream,
             "_connector_num_layers must be between 0 and ", kMostLayers, ", got ", o.num_layers);
    SF_CHECK((splits ? o.dim_head : channels_of(o)) % 2 == 0, kConnectors, ": ", stream,
             "_connector_attention_head_dim must be even, got ", o.dim_head);
    const int64_t given = !c.per_modality_projections ? c.caption_channels
                          : audio                     ? c.audio_hidden_dim
                                                      : c.video_hidden_dim;
    SF_CHECK(channels_of(o) == given, kConnectors, ": ", stream, "_connector_num_attention_heads * ", stream,
             "_connector_attention_head_dim must be ",
             !c.per_modality_projections ? std::string("caption_channels") : stream + "_hidden_dim", ", got ",
             channels_of(o), " and ", given);
  }
  return c;
}

// LTX-2.0's: each state of all of a text's tokens by their mean and range. x[B, M, C, L], seen[B, M, 1, 1] of bool,
// lengths[B] of the texts -> [B, M, C * L], 0 where nothing is seen.
Tensor normalised_by_text(const Tensor& x, const Tensor& seen, const Tensor& lengths, double scale) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor unseen = logical_not(seen);
  const Tensor numbers = (lengths * x.size(2)).reshape({-1, 1, 1, 1});
  const Tensor mean = masked_fill(x, unseen, 0.0).sum({1, 2}, true) / (numbers + kConnectorEps),
               least = amin(masked_fill(x, unseen, inf), {1, 2}, true),
               most = amax(masked_fill(x, unseen, -inf), {1, 2}, true);
  const Tensor y = (x - mean) / (most - least + kConnectorEps) * scale;
  return masked_fill(y, unseen, 0.0).flatten(2).to(x.dtype());
}

// LTX-2.3's: each state of each token by itself.
Tensor normalised_by_token(const Tensor& x, const Tensor& seen) {
  const Tensor y = x * rsqrt((x * x).mean({2}, true) + kConnectorEps);
  return masked_fill(y, logical_not(seen), 0.0).flatten(2);
}

}  // namespace

LTX2TransformerBlock1d::LTX2TransformerBlock1d(const LTX2ConnectorOptions& o)
    : norm1(Shape{channels_of(o)}, kConnectorEps, false),
      attn1(channels_of(o), {.heads = o.heads, .dim_head = o.dim_head, .rope_type = o.rope_type, .gated = o.gated}),
      norm2(Shape{channels_of(o)}, kConnectorEps, false),
      ff(channels_of(o), {.activation_fn = "gelu-approximate"}) {}

Tensor LTX2TransformerBlock1d::forward(const Tensor& hidden_states, const Tensor& attention_mask, const Tensor& cos,
                                       const Tensor& sin) const {
  const Tensor x = hidden_states + attn1(norm1(hidden_states), Tensor(), attention_mask, cos, sin);
  return ff.beside(x, norm2(x));
}

LTX2ConnectorTransformer1d::LTX2ConnectorTransformer1d(const LTX2ConnectorOptions& o)
    : norm_out(Shape{channels_of(o)}, kConnectorEps, false),
      angles_({channels_of(o), o.heads, {double(o.base_seq_len)}, o.theta, o.double_precision, o.rope_type}) {
  if (o.registers) learnable_registers = nn::parameter(rand({*o.registers, channels_of(o)}) * 2.0 - 1.0);
  for (int64_t i = 0; i < o.num_layers; ++i) transformer_blocks.emplace_back(o);
}

Tensor LTX2ConnectorTransformer1d::with_registers(const Tensor& x, const Tensor& mask) const {
  const int64_t batch = x.size(0), n = x.size(1), registers = learnable_registers.size(0), channels = x.size(2);
  SF_CHECK(n % registers == 0, kConnectors, ": the number of tokens must be a multiple of the ", registers,
           " registers, got ", n);
  // tokens in their order, then the others
  const Tensor order = argsort(1 - mask, 1, false, true);
  const Tensor first = gather(x, 1, order.unsqueeze(2).expand({batch, n, channels}));
  const Tensor is_token = lt(arange(0, n, 1, kInt64, x.device()).unsqueeze(0), mask.sum({1}, true)).unsqueeze(2);
  const Tensor repeated = learnable_registers.to(x.dtype())
                              .unsqueeze(0)
                              .expand({n / registers, registers, channels})
                              .reshape({1, n, channels});
  return where(is_token, first, repeated);
}

Tensor LTX2ConnectorTransformer1d::forward(const Tensor& hidden_states, const Tensor& attention_mask) const {
  Tensor x = hidden_states, bias;
  if (learnable_registers) {
    x = with_registers(x, attention_mask);
  } else {
    const double lowest = x.dtype() == kFloat16 ? 65504.0 : double(std::numeric_limits<float>::max());
    bias = ((attention_mask - 1).to(x.dtype()) * lowest).unsqueeze(1);
  }
  const int64_t n = x.size(1);
  const Tensor places = places_.of({n}, x, kFloat32, [&] {
    return arange(0, n, 1, kFloat32, x.device()).reshape({1, 1, n});
  });
  const LTX2Rotary rotary = angles_.tables(places);
  for (auto& block : transformer_blocks) x = block(x, bias, rotary.cos, rotary.sin);
  return norm_out(x);
}

LTX2TextConnectors::LTX2TextConnectors(Config config)
    : ConfiguredModel(checked(std::move(config))),
      video_connector(connector_of(options, false)),
      audio_connector(connector_of(options, true)) {
  const int64_t states = options.caption_channels * options.text_proj_in_factor;
  if (options.per_modality_projections) {
    video_text_proj_in.emplace(states, options.video_hidden_dim, options.proj_bias);
    audio_text_proj_in.emplace(states, options.audio_hidden_dim, options.proj_bias);
  } else {
    text_proj_in.emplace(states, options.caption_channels, options.proj_bias);
  }
}

Tensors LTX2TextConnectors::forward(const Tensor& text_encoder_hidden_states, const Tensor& attention_mask,
                                    const std::string& padding_side, double scale_factor) const {
  const Config& c = options;
  check_defined(kConnectors, "text_encoder_hidden_states", text_encoder_hidden_states);
  const Shape& given = text_encoder_hidden_states.shape();
  const bool flat = given.size() == 3 && given[2] == c.caption_channels * c.text_proj_in_factor,
             apart = given.size() == 4 && given[2] == c.caption_channels && given[3] == c.text_proj_in_factor;
  SF_CHECK((flat || apart) && text_encoder_hidden_states.numel() > 0, kConnectors,
           ": text_encoder_hidden_states must be [B, M, ", c.caption_channels, ", ", c.text_proj_in_factor,
           "], or with the last two as one, got ", given);
  const int64_t batch = given[0], n = given[1];
  check_defined(kConnectors, "attention_mask", attention_mask);
  check_shape(kConnectors, "attention_mask", attention_mask, {batch, n});
  SF_CHECK(padding_side == "left" || padding_side == "right", kConnectors,
           ": padding_side must be 'left' or 'right', got '", padding_side, "'");
  const Tensor x = text_encoder_hidden_states.reshape({batch, n, c.caption_channels, c.text_proj_in_factor});
  const Tensor mask = attention_mask.to(x.device()).to(kInt64);

  Tensor video, audio;
  if (c.per_modality_projections) {
    const Tensor normed = normalised_by_token(x, ne(mask, wrapped(0)).unsqueeze(2).unsqueeze(3));
    auto projected = [&](const nn::Linear& layer, int64_t channels) {
      return project(layer, normed * std::sqrt(double(channels) / double(c.caption_channels)));
    };
    video = projected(*video_text_proj_in, c.video_hidden_dim);
    audio = projected(*audio_text_proj_in, c.audio_hidden_dim);
  } else {
    const Tensor lengths = mask.sum({1}), places = arange(0, n, 1, kInt64, x.device()).unsqueeze(0),
                 seen = padding_side == "right" ? lt(places, lengths.unsqueeze(1))
                                                : ge(places, (n - lengths).unsqueeze(1));
    video = audio =
        project(*text_proj_in, normalised_by_text(x, seen.unsqueeze(2).unsqueeze(3), lengths, scale_factor));
  }
  return {video_connector(video, mask), audio_connector(audio, mask), ones({batch, n}, kInt64, x.device())};
}

SF_MODEL(LTX2TextConnectors)
    .doc(
        "diffusers' LTX2TextConnectors: the states of all layers of a text encoder [B, M, C, L] as the texts that "
        "LTX-2's denoiser is told, of its video and of its audio.")
    .forward<&LTX2TextConnectors::forward>(
        "text_encoder_hidden_states, attention_mask, padding_side='left', scale_factor=8");

}  // namespace sf::models
