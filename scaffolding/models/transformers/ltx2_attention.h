// What LTX-2's networks have in common (Lightricks 2026, arXiv 2601.03233): positions of video and audio tokens in
// seconds and pixels, the tables of angles that are made of them, and attention whose queries and keys are turned by
// tables of their own. Under diffusers' names and keys (LTX2Attention).
#pragma once
#include "scaffolding/models/parts/kept_table.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

enum class LTX2RopeType : uint8_t {
  Interleaved,  // neighbouring channels are turned as a pair
  Split,        // channel i of a head and channel i + half a head
};
// ValueError naming both for any other word than "interleaved" and "split".
LTX2RopeType ltx2_rope_type(const char* who, const std::string& rope_type);

// What tokens' channels are turned by, float32: [b, N, heads, D] each, b = 1 where all samples have one. Absent: they
// are not turned.
struct LTX2Rotary {
  Tensor cos, sin;
};

struct LTX2RopeOptions {
  int64_t dim = 4096;                                 // channels of all heads
  int64_t heads = 32;                                 // whose channels `Split` pairs
  std::vector<double> max_positions{20, 2048, 2048};  // by which the numbers of a position are divided
  double theta = 10000;
  bool double_precision = true;  // of the frequencies, before they are rounded to float32
  LTX2RopeType type = LTX2RopeType::Interleaved;
};

// The angles of positions: each number of a position turns as many pairs of channels as another, at frequencies from
// pi / 2 to theta pi / 2. Pairs that are left over are not turned, and come first.
class LTX2Rope {
 public:
  explicit LTX2Rope(LTX2RopeOptions options) : options_(std::move(options)) {}
  // positions[b, P, N] float32, P of max_positions -> cosines and sines, on the positions' device, without a gradient.
  LTX2Rotary tables(const Tensor& positions) const;
  const LTX2RopeOptions& options() const { return options_; }

 private:
  Tensor frequencies(int64_t numbers, const Tensor& like) const;
  LTX2RopeOptions options_;
  KeptTable frequencies_;
};

// The middles [b, P, N] of bounds coords[b, P, N, 2] of patches.
Tensor ltx2_positions(const Tensor& coords);

// Where a video's patches are: bounds [start, end) of each, in seconds, rows and columns of pixels.
struct LTX2VideoGrid {
  int64_t patch_size = 1, patch_size_t = 1;       // in latents
  std::vector<int64_t> scale_factors{8, 32, 32};  // frames, rows and columns of pixels for each latent
  int64_t causal_offset = 1;                      // frames that the first latent stands for
  // A video of this many frames, rows and columns of latents, at fps frames of pixels a second: float32 [batch, 3,
  // patches, 2] with patches in the order frame, row, column.
  Tensor prepare_video_coords(int64_t batch_size, int64_t num_frames, int64_t height, int64_t width,
                              const Device& device, double fps = 24) const;
};

// When an audio's latents sound: bounds [start, end) of each in seconds.
struct LTX2AudioGrid {
  int64_t patch_size_t = 1;
  int64_t scale_factor = 4;  // mel spectra for each latent
  int64_t sampling_rate = 16000, hop_length = 160, causal_offset = 1;
  // float32 [batch, 1, patches, 2] of num_frames latents, the first of which is number `shift`.
  Tensor prepare_audio_coords(int64_t batch_size, int64_t num_frames, const Device& device, int64_t shift = 0) const;
};

struct LTX2AttentionOptions {
  int64_t heads = 8, dim_head = 64;
  std::optional<int64_t> cross_attention_dim;  // channels of what is attended to; absent: query_dim
  bool bias = true, out_bias = true;
  LTX2RopeType rope_type = LTX2RopeType::Interleaved;
  bool gated = false;  // each head's result is multiplied by 2 sigmoid of a number made of the query's token
  // What is attended to stays the same from call to call: what is made of it may be kept (project_text).
  bool of_text = false;
};

struct LTX2Attention : nn::Module, PackedPart {
  int64_t heads;
  LTX2RopeType rope_type;
  bool of_text, of_other;      // keys and values are not of the queries' tokens
  nn::RMSNorm norm_q, norm_k;  // over the channels of all heads
  nn::Linear to_q, to_k, to_v;
  nn::ModuleTuple<nn::Linear, nn::Dropout> to_out;
  std::optional<nn::Linear> to_gate_logits;  // [heads, query_dim]
  SF_MODULE(LTX2Attention, norm_q, norm_k, to_q, to_k, to_v, to_out, to_gate_logits)

  LTX2Attention(int64_t query_dim, const LTX2AttentionOptions& options);
  // hidden_states[B, N, query_dim]; encoder_hidden_states[B, M, cross_attention_dim], absent: the tokens themselves.
  // attention_mask is added to the scores and broadcasts to [B, N, M]. query_cos to key_sin as LTX2Rotary has them,
  // keys' absent: queries'. only_values: nothing is attended to, each token has its value. perturbation_mask[B, 1, 1]:
  // the share of the attention, beside the values, of each sample (Hyung et al. 2024, arXiv 2411.18664).
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states = {},
                 const Tensor& attention_mask = {}, const Tensor& query_cos = {}, const Tensor& query_sin = {},
                 const Tensor& key_cos = {}, const Tensor& key_sin = {}, bool only_values = false,
                 const Tensor& perturbation_mask = {}) const;
  // residual + (*this)(...), which the last product adds where nobody looks at the parts.
  Tensor beside(const Tensor& residual, const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                const Tensor& attention_mask) const;
  // Queries, keys and values; keys and values of another sequence that changes from call to call.
  bool pack() override;

 private:
  struct Turns {
    LTX2Rotary query, key;
  };
  Tensor compute(const Tensor& x, const Tensor& context, const Tensor& mask, const Turns& turns, bool only_values,
                 const Tensor& perturbation_mask, const Tensor& residual) const;
  Tensor turned(const Tensor& x, const LTX2Rotary& rotary) const;
};

}  // namespace sf::models
