#include "scaffolding/models/parts/embeddings.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/core/op.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Tensor timestep_embedding(const Tensor& timesteps, int64_t embedding_dim, const TimestepOptions& o) {
  SF_CHECK(timesteps.ndim() == 1, "timestep_embedding: timesteps must have one dimension, got ", timesteps.shape());
  SF_CHECK(embedding_dim > 1, "timestep_embedding: embedding_dim must be above 1, got ", embedding_dim);
  const int64_t half = embedding_dim / 2;
  SF_CHECK(double(half) != o.downscale_freq_shift,
           "timestep_embedding: downscale_freq_shift must not be half of embedding_dim, got ", o.downscale_freq_shift,
           " and ", embedding_dim);
  SF_CHECK(o.max_period > 0, "timestep_embedding: max_period must be positive, got ", o.max_period);
  Tensor exponent = arange(0, half, 1, kFloat32, timesteps.device()) * -std::log(double(o.max_period));
  Tensor frequencies = exp(exponent / (double(half) - o.downscale_freq_shift));
  Tensor angles = timesteps.to(kFloat32).unsqueeze(1) * frequencies.unsqueeze(0);
  if (o.scale != 1) angles = angles * o.scale;
  Tensor first = o.flip_sin_to_cos ? cos(angles) : sin(angles), second = o.flip_sin_to_cos ? sin(angles) : cos(angles);
  Tensor y = cat({first, second}, -1);
  return embedding_dim % 2 ? pad(y, {0, 1}) : y;
}

TimestepEmbedding::TimestepEmbedding(int64_t in_channels, int64_t time_embed_dim, std::optional<int64_t> cond_proj_dim)
    : linear_1(in_channels, time_embed_dim), linear_2(time_embed_dim, time_embed_dim) {
  if (cond_proj_dim) cond_proj.emplace(*cond_proj_dim, in_channels, false);
}

Tensor TimestepEmbedding::forward(const Tensor& sample, const Tensor& condition) const {
  Tensor x = condition && cond_proj ? sample + (*cond_proj)(condition) : sample;
  return linear_2(project(linear_1, x, {.activation = "silu"}));
}

AttentionPooling::AttentionPooling(int64_t heads, int64_t embed_dim)
    : num_heads(heads), k_proj(embed_dim, embed_dim), q_proj(embed_dim, embed_dim), v_proj(embed_dim, embed_dim) {
  SF_CHECK(heads > 0 && embed_dim % heads == 0, "AttentionPooling: embed_dim=", embed_dim,
           " must be a multiple of num_heads=", heads);
  positional_embedding = nn::parameter(randn({1, embed_dim}) / std::sqrt(double(embed_dim)));
}

Tensor AttentionPooling::forward(const Tensor& x) const {
  Tensor query = x.mean({1}, true) + positional_embedding;
  Tensor tokens = cat({query, x}, 1);
  return attend(q_proj(query), k_proj(tokens), v_proj(tokens), num_heads).reshape({x.size(0), -1});
}

TextTimeEmbedding::TextTimeEmbedding(int64_t encoder_dim, int64_t time_embed_dim, int64_t num_heads)
    : norm1(Shape{encoder_dim}),
      pool(num_heads, encoder_dim),
      proj(encoder_dim, time_embed_dim),
      norm2(Shape{time_embed_dim}) {}

Tensor TextTimeEmbedding::forward(const Tensor& hidden_states) const { return norm2(proj(pool(norm1(hidden_states)))); }

LabelEmbedding::LabelEmbedding(int64_t classes, int64_t hidden_size, double dropout)
    : num_classes(classes), dropout_prob(dropout), embedding_table(classes + (dropout > 0), hidden_size) {}

Tensor LabelEmbedding::forward(const Tensor& labels) const {
  if (!training || dropout_prob <= 0) return embedding_table(labels);
  Tensor dropped = lt(rand({labels.size(0)}, {}, kFloat32), wrapped(dropout_prob)).to(labels.device());
  return embedding_table(where(dropped, full({}, num_classes, labels.dtype(), labels.device()), labels));
}

namespace {
constexpr int64_t kTimestepChannels = 256;
}

CombinedTimestepLabelEmbeddings::CombinedTimestepLabelEmbeddings(int64_t num_classes, int64_t embedding_dim,
                                                                 double class_dropout_prob)
    : timestep_embedder(kTimestepChannels, embedding_dim),
      class_embedder(num_classes, embedding_dim, class_dropout_prob) {}

Tensor CombinedTimestepLabelEmbeddings::forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const {
  Tensor t = timestep_embedding(timestep, kTimestepChannels, {.flip_sin_to_cos = true});
  return timestep_embedder(t.to(dtype)) + class_embedder(class_labels);
}

CombinedTimestepTextProjEmbeddings::CombinedTimestepTextProjEmbeddings(int64_t embedding_dim,
                                                                       int64_t pooled_projection_dim,
                                                                       bool guidance_embeds)
    : timestep_embedder(kTimestepChannels, embedding_dim), text_embedder(pooled_projection_dim, embedding_dim) {
  if (guidance_embeds) guidance_embedder.emplace(kTimestepChannels, embedding_dim);
}

Tensor CombinedTimestepTextProjEmbeddings::forward(const Tensor& timestep, const Tensor& pooled_projection,
                                                   const Tensor& guidance) const {
  auto embedded = [&](const TimestepEmbedding& embedder, const Tensor& numbers) {
    const Tensor waves =
        timestep_embedding(numbers, kTimestepChannels, {.flip_sin_to_cos = true, .downscale_freq_shift = 0});
    return embedder(waves.to(pooled_projection.dtype()));
  };
  Tensor y = embedded(timestep_embedder, timestep);
  if (guidance_embedder) y = y + embedded(*guidance_embedder, guidance);
  return y + text_embedder(pooled_projection);
}

Tensor batch_of_timesteps(const char* who, const Tensor& timestep, int64_t batch) {
  check_defined(who, "timestep", timestep);
  SF_CHECK(timestep.ndim() <= 1 && (timestep.numel() == 1 || timestep.numel() == batch), who,
           ": timestep must be one number, or one for each of the ", batch, " samples, got ", timestep.shape());
  return timestep.reshape({-1}).expand({batch});
}

Tensor sincos_positions(const std::vector<double>& positions, int64_t dim) {
  const int64_t half = dim / 2;
  std::vector<double> values(positions.size() * size_t(dim));
  for (size_t p = 0; p < positions.size(); ++p) {
    for (int64_t i = 0; i < half; ++i) {
      double angle = positions[p] / std::pow(10000.0, double(i) / double(half));
      values[p * size_t(dim) + size_t(i)] = std::sin(angle);
      values[p * size_t(dim) + size_t(half + i)] = std::cos(angle);
    }
  }
  return tensor(values, {int64_t(positions.size()), dim}, kFloat32);
}

PatchEmbed::PatchEmbed(int64_t sample_size, int64_t patch, int64_t in_channels, int64_t embed_dim, double scale,
                       std::optional<int64_t> most)
    : patch_size(patch),
      base_size(sample_size / patch),
      interpolation_scale(scale),
      max_size(most),
      proj(in_channels, embed_dim, nn::Ints(patch), {.stride = nn::Ints(patch)}) {
  if (max_size) pos_embed = positions(*max_size, *max_size, embed_dim);
}

void PatchEmbed::check(const char* who, const Tensor& hidden_states) const {
  check_defined(who, "hidden_states", hidden_states);
  const Shape& shape = hidden_states.shape();
  SF_CHECK(shape.size() == 4 && shape[1] == proj.in_channels, who, ": hidden_states must be [B, ", proj.in_channels,
           ", H, W], got ", shape);
  SF_CHECK(shape[2] % patch_size == 0 && shape[3] % patch_size == 0, who, ": patch_size ", patch_size,
           " must divide height and width, got ", shape);
  SF_CHECK(!max_size || std::max(shape[2], shape[3]) <= *max_size * patch_size, who,
           ": height and width must be at most pos_embed_max_size ", *max_size, " patches of ", patch_size, ", got ",
           shape);
}

// Of h x w patches: [1, h * w, channels].
Tensor PatchEmbed::positions(int64_t h, int64_t w, int64_t channels) const {
  const int64_t half = channels / 2;
  auto table = [&](int64_t n) {
    std::vector<double> places;  // float32, as diffusers has them
    for (int64_t i = 0; i < n; ++i)
      places.push_back(double(float(i) / float(double(n) / double(base_size)) / float(interpolation_scale)));
    return sincos_positions(places, half);
  };
  const Tensor columns = table(w).unsqueeze(0).expand({h, w, half}), rows = table(h).unsqueeze(1).expand({h, w, half});
  return cat({columns, rows}, -1).reshape({1, h * w, 2 * half});
}

Tensor PatchEmbed::forward(const Tensor& latent) const {
  Tensor x = proj(latent);
  const int64_t h = x.size(2), w = x.size(3), channels = x.size(1);
  const Tensor places = max_size ? pos_embed.reshape({*max_size, *max_size, channels})
                                       .narrow(0, (*max_size - h) / 2, h)
                                       .narrow(1, (*max_size - w) / 2, w)
                                       .reshape({1, h * w, channels})
                                 : positions_.of({h, w}, x, kFloat32, [&] { return positions(h, w, channels); });
  return (x.flatten(2).transpose(1, 2) + places).to(latent.dtype());
}

Tensor PatchEmbed::picture(const Tensor& tokens, const Tensor& like) const {
  return unpatchified(tokens, 1, like.size(-2) / patch_size, like.size(-1) / patch_size, patch_size).select(2, 0);
}

Tensor unpatchified(const Tensor& tokens, int64_t f, int64_t h, int64_t w, int64_t patch) {
  const int64_t batch = tokens.size(0), channels = tokens.size(2) / (patch * patch);
  Tensor x = tokens.reshape({batch, f, h, w, patch, patch, channels}).permute({0, 6, 1, 2, 4, 3, 5});
  return x.reshape({batch, channels, f, h * patch, w * patch});
}

}  // namespace sf::models
