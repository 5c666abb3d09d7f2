#include "scaffolding/models/transformers/ltx2_attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

LTX2RopeType ltx2_rope_type(const char* who, const std::string& rope_type) {
  SF_CHECK(rope_type == "interleaved" || rope_type == "split", who,
           ": rope_type must be 'interleaved' or 'split', got '", rope_type, "'");
  return rope_type == "split" ? LTX2RopeType::Split : LTX2RopeType::Interleaved;
}

// ---- positions

namespace {

constexpr double kLTX2QueryKeyEps = 1e-6;

// Of latents, which stand for `scale` frames each but the first one, which stands for `offset`. All in float32, as
// diffusers computes it.
float first_frame(float latent, int64_t scale, int64_t offset) {
  return std::max(latent * float(scale) + float(offset) - float(scale), 0.0f);
}

}  // namespace

Tensor LTX2VideoGrid::prepare_video_coords(int64_t batch_size, int64_t num_frames, int64_t height, int64_t width,
                                           const Device& device, double fps) const {
  SF_CHECK(batch_size > 0 && num_frames > 0 && height > 0 && width > 0,
           "prepare_video_coords: batch_size, num_frames, height and width must be above 0, got ", batch_size, ", ",
           num_frames, ", ", height, " and ", width);
  SF_CHECK(fps > 0, "prepare_video_coords: fps must be above 0, got ", fps);
  auto patches = [](int64_t latents, int64_t patch) { return (latents + patch - 1) / patch; };
  const int64_t frames = patches(num_frames, patch_size_t), rows = patches(height, patch_size),
                columns = patches(width, patch_size);
  // bounds [n, 2] of one axis
  auto bounds = [](int64_t n, int64_t patch, auto place) {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t end = 0; end < 2; ++end) values.push_back(place(float((i + end) * patch)));
    return tensor(values, {n, 2}, kFloat32);
  };
  auto pixels = [this](size_t axis) { return [scale = float(scale_factors[axis])](float at) { return at * scale; }; };
  const Tensor seconds = bounds(
      frames, patch_size_t, [&](float at) { return first_frame(at, scale_factors[0], causal_offset) / float(fps); });
  const Shape grid{frames, rows, columns, 2};
  const Tensor axes[] = {seconds.reshape({frames, 1, 1, 2}),
                         bounds(rows, patch_size, pixels(1)).reshape({1, rows, 1, 2}),
                         bounds(columns, patch_size, pixels(2)).reshape({1, 1, columns, 2})};
  const int64_t n = frames * rows * columns;
  Tensors all;
  for (const Tensor& axis : axes) all.push_back(axis.expand(grid).reshape({1, 1, n, 2}));
  const Tensor coords = cat(all, 1).to(device);
  return batch_size == 1 ? coords : coords.expand({batch_size, 3, n, 2}).contiguous();
}

Tensor LTX2AudioGrid::prepare_audio_coords(int64_t batch_size, int64_t num_frames, const Device& device,
                                           int64_t shift) const {
  SF_CHECK(batch_size > 0 && num_frames > 0, "prepare_audio_coords: batch_size and num_frames must be above 0, got ",
           batch_size, " and ", num_frames);
  std::vector<float> values;
  for (int64_t at = shift; at < num_frames + shift; at += patch_size_t)
    for (const int64_t end : {at, at + patch_size_t})
      values.push_back(first_frame(float(end), scale_factor, causal_offset) * float(hop_length) / float(sampling_rate));
  const auto n = int64_t(values.size() / 2);
  const Tensor coords = tensor(values, {1, 1, n, 2}, kFloat32).to(device);
  return batch_size == 1 ? coords : coords.expand({batch_size, 1, n, 2}).contiguous();
}

Tensor ltx2_positions(const Tensor& coords) {
  autograd::NoGrad off;
  return (coords.select(-1, 0) + coords.select(-1, 1)) / 2.0;
}

// [F]
Tensor LTX2Rope::frequencies(int64_t numbers, const Tensor& like) const {
  return frequencies_.of({numbers}, like, kFloat32, [&] {
    const int64_t n = options_.dim / (2 * numbers);
    std::vector<float> values(static_cast<size_t>(n));
    // torch.linspace(0, 1, n), which counts from either end, in this type
    auto fill = [&](auto theta) {
      using T = decltype(theta);
      const T step = n > 1 ? T(1) / T(n - 1) : T(0);
      for (int64_t i = 0; i < n; ++i) {
        const T exponent = i < n / 2 ? step * T(i) : n > 1 ? T(1) - step * T(n - 1 - i) : T(0);
        values[size_t(i)] = float(std::pow(theta, exponent) * T(std::numbers::pi) / T(2));
      }
    };
    if (options_.double_precision) fill(options_.theta);
    else fill(float(options_.theta));
    return tensor(values, {n}, kFloat32);
  });
}

LTX2Rotary LTX2Rope::tables(const Tensor& positions) const {
  autograd::NoGrad off;
  const int64_t batch = positions.size(0), numbers = positions.size(1), n = positions.size(2), half = options_.dim / 2;
  Tensors axes;
  for (int64_t i = 0; i < numbers; ++i) axes.push_back(positions.select(1, i) / options_.max_positions[size_t(i)]);
  const Tensor places = stack(axes, 2).unsqueeze(2);  // [b, N, 1, P]
  const Tensor frequency = frequencies(numbers, positions);
  Tensor angles = ((places * 2.0 - 1.0) * frequency.unsqueeze(1)).reshape({batch, n, -1});  // [b, N, F * P]
  if (const int64_t rest = half - angles.size(2); rest > 0)
    angles = cat({zeros({batch, n, rest}, kFloat32, angles.device()), angles}, 2);
  const Shape by_heads{batch, n, options_.heads, options_.dim / options_.heads};
  // one entry for each channel of a pair
  auto twice = [&](const Tensor& t) {
    if (options_.type == LTX2RopeType::Interleaved)
      return t.unsqueeze(3).expand({batch, n, half, 2}).reshape({batch, n, options_.heads, -1});
    const Tensor of_heads = t.reshape({batch, n, options_.heads, half / options_.heads});
    return cat({of_heads, of_heads}, 3);
  };
  return {twice(cos(angles)), twice(sin(angles))};
}

// ---- attention

LTX2Attention::LTX2Attention(int64_t query_dim, const LTX2AttentionOptions& o)
    : heads(o.heads),
      rope_type(o.rope_type),
      of_text(o.of_text),
      of_other(bool(o.cross_attention_dim)),
      norm_q(Shape{o.heads * o.dim_head}, kLTX2QueryKeyEps),
      norm_k(Shape{o.heads * o.dim_head}, kLTX2QueryKeyEps),
      to_q(query_dim, o.heads * o.dim_head, o.bias),
      to_k(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_v(o.cross_attention_dim.value_or(query_dim), o.heads * o.dim_head, o.bias),
      to_out(nn::Linear(o.heads * o.dim_head, query_dim, o.out_bias), nn::Dropout(0.0)) {
  if (o.gated) to_gate_logits.emplace(query_dim, o.heads);
}

Tensor LTX2Attention::turned(const Tensor& x, const LTX2Rotary& rotary) const {
  if (!rotary.cos) return x;
  // the table's heads, by which channels are paired, need not be these
  const int64_t n = rotary.cos.size(2);
  return apply_rotary_emb(x.reshape({x.size(0), x.size(1), n, x.size(2) / n}), rotary.cos, rotary.sin,
                          rope_type == LTX2RopeType::Interleaved)
      .reshape(x.shape());
}

Tensor LTX2Attention::compute(const Tensor& x, const Tensor& context, const Tensor& mask, const Turns& turns,
                              bool only_values, const Tensor& perturbation_mask, const Tensor& residual) const {
  const nn::WeightsHere here(*this);  // beside() goes past the call
  auto value_of = [this](const Tensor& of) { return of_text ? project_text(to_v, of) : project(to_v, of); };
  Tensor y;
  if (only_values) {
    y = value_of(context ? context : x);
  } else {
    Tensors qkv;
    if (!context) qkv = project_each({&to_q, &to_k, &to_v}, x);
    else if (of_text) qkv = {project(to_q, x), project_text(to_k, context), value_of(context)};
    else {
      qkv = project_each({&to_k, &to_v}, context);
      qkv.insert(qkv.begin(), project(to_q, x));
    }
    y = attend(turned(norm_q(qkv[0]), turns.query), turned(norm_k(qkv[1]), turns.key), qkv[2], heads, {.mask = mask});
    if (perturbation_mask) y = lerp(qkv[2], y, perturbation_mask.to(y.dtype()));
  }
  if (to_gate_logits) {
    const Tensor gates = sigmoid(project(*to_gate_logits, x)) * 2.0;
    y = (y.reshape({y.size(0), y.size(1), heads, -1}) * gates.unsqueeze(3)).flatten(2);
  }
  return project(to_out.get<0>(), y, {.dropout = &to_out.get<1>(), .residual = residual});
}

Tensor LTX2Attention::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                              const Tensor& attention_mask, const Tensor& query_cos, const Tensor& query_sin,
                              const Tensor& key_cos, const Tensor& key_sin, bool only_values,
                              const Tensor& perturbation_mask) const {
  const LTX2Rotary query{query_cos, query_sin}, key{key_cos, key_sin};
  return compute(hidden_states, encoder_hidden_states, attention_mask, {query, key_cos ? key : query}, only_values,
                 perturbation_mask, Tensor());
}

Tensor LTX2Attention::beside(const Tensor& residual, const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                             const Tensor& attention_mask) const {
  return is_plain(*this) ? compute(hidden_states, encoder_hidden_states, attention_mask, {}, false, Tensor(), residual)
                         : residual + (*this)(hidden_states, encoder_hidden_states, attention_mask);
}

bool LTX2Attention::pack() {
  if (!is_plain(*this) || of_text) return false;
  return of_other ? models::pack({&to_k, &to_v}) : models::pack({&to_q, &to_k, &to_v});
}

}  // namespace sf::models
