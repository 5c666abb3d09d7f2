#include "scaffolding/models/transformers/z_image_transformer_2d.h"

#include <cmath>
#include <numeric>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/feed_forward.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields ZImageTransformer2DConfig::fields() {
  return {{"all_patch_size", &all_patch_size},
          {"all_f_patch_size", &all_f_patch_size},
          {"in_channels", &in_channels},
          {"dim", &dim},
          {"n_layers", &n_layers},
          {"n_refiner_layers", &n_refiner_layers},
          {"n_heads", &n_heads},
          {"n_kv_heads", &n_kv_heads},
          {"norm_eps", &norm_eps},
          {"qk_norm", &qk_norm},
          {"cap_feat_dim", &cap_feat_dim},
          {"siglip_feat_dim", &siglip_feat_dim},
          {"rope_theta", &rope_theta},
          {"t_scale", &t_scale},
          {"axes_dims", &axes_dims},
          {"axes_lens", &axes_lens}};
}

namespace {

using ZImageConfig = ZImageTransformer2DConfig;
const char* const kZImage = ZImageTransformer2DModel::kName;
constexpr int64_t kZImageFrequencies = 256, kZImageTimestepHidden = 1024;  // of the timestep's embedding
constexpr double kZImageHeadEps = 1e-5, kZImageFinalEps = 1e-6;
constexpr int64_t kMostZImagePlaces = 1 << 16;
constexpr size_t kZImageAxes = 3;  // frame, row, column; a caption's tokens are frames before the picture's

int64_t modulation_dim(const ZImageConfig& c) { return std::min<int64_t>(c.dim, 256); }
int64_t hidden_dim(const ZImageConfig& c) { return int64_t(double(c.dim) / 3 * 8); }

ZImageConfig checked(ZImageConfig c) {
  check_sizes(
      kZImage,
      {{"in_channels", c.in_channels}, {"dim", c.dim}, {"n_heads", c.n_heads}, {"cap_feat_dim", c.cap_feat_dim}});
  for (auto& [name, n] : {std::pair{"n_layers", c.n_layers}, {"n_refiner_layers", c.n_refiner_layers}})
    SF_CHECK(n >= 0 && n <= kMostLayers, kZImage, ": ", name, " must be between 0 and ", kMostLayers, ", got ", n);
  SF_CHECK(c.dim % c.n_heads == 0, kZImage, ": n_heads must divide dim, got ", c.n_heads, " and ", c.dim);
  SF_CHECK(hidden_dim(c) > 0, kZImage, ": dim must be 2 at least, got ", c.dim);
  SF_CHECK(!c.all_patch_size.empty() && c.all_patch_size.size() == c.all_f_patch_size.size(), kZImage,
           ": all_patch_size and all_f_patch_size must be lists of one length, got ", c.all_patch_size.size(), " and ",
           c.all_f_patch_size.size());
  for (size_t i = 0; i < c.all_patch_size.size(); ++i)
    for (auto& [name, n] :
         {std::pair{"all_patch_size", c.all_patch_size[i]}, {"all_f_patch_size", c.all_f_patch_size[i]}})
      SF_CHECK(n > 0 && n <= 64, kZImage, ": ", name, " must be of numbers between 1 and 64, got ", n);
  SF_CHECK(c.axes_dims.size() == kZImageAxes && c.axes_lens.size() == kZImageAxes, kZImage,
           ": axes_dims and axes_lens must have 3 numbers each, got ", c.axes_dims.size(), " and ", c.axes_lens.size());
  for (int64_t n : c.axes_dims) SF_CHECK(n >= 0 && n % 2 == 0, kZImage, ": axes_dims must be even numbers, got ", n);
  for (int64_t n : c.axes_lens)
    SF_CHECK(n > 0 && n <= kMostZImagePlaces, kZImage, ": axes_lens must be between 1 and ", kMostZImagePlaces,
             ", got ", n);
  const int64_t turned = std::accumulate(c.axes_dims.begin(), c.axes_dims.end(), int64_t(0));
  SF_CHECK(turned == c.dim / c.n_heads, kZImage, ": axes_dims must add up to dim / n_heads, ", c.dim / c.n_heads,
           ", got ", turned);
  SF_CHECK(c.rope_theta > 0 && std::isfinite(c.t_scale), kZImage,
           ": rope_theta must be above 0 and t_scale finite, got ", c.rope_theta, " and ", c.t_scale);
  SF_CHECK_AS(NotSupported, !c.siglip_feat_dim, kZImage,
              ": siglip_feat_dim is of models that are shown pictures, which are not supported");
  return c;
}

nn::RMSNorm norm_of(const ZImageConfig& c) { return nn::RMSNorm(Shape{c.dim}, c.norm_eps); }

// tokens[B, n, dim] with this one behind them, [B, n + more, dim].
Tensor filled_up(const Tensor& tokens, const Tensor& token, int64_t more) {
  if (more == 0) return tokens;
  return cat({tokens, token.to(tokens.dtype()).unsqueeze(0).expand({tokens.size(0), more, tokens.size(2)})}, 1);
}

}  // namespace

// ---- parts

ZImageTimestepEmbedder::ZImageTimestepEmbedder(int64_t out_size)
    : mlp(nn::Linear(kZImageFrequencies, kZImageTimestepHidden), nn::SiLU(),
          nn::Linear(kZImageTimestepHidden, out_size)) {}

Tensor ZImageTimestepEmbedder::forward(const Tensor& t) const {
  const auto& [first, act, second] = std::tie(mlp.get<0>(), mlp.get<1>(), mlp.get<2>());
  const Tensor waves = timestep_embedding(t, kZImageFrequencies, {.flip_sin_to_cos = true, .downscale_freq_shift = 0});
  return second(act(first(waves.to(first.weight.dtype()))));
}

ZImageAttention::ZImageAttention(const ZImageConfig& c)
    : heads(c.n_heads),
      to_q(c.dim, c.dim, false),
      to_k(c.dim, c.dim, false),
      to_v(c.dim, c.dim, false),
      to_out(nn::Linear(c.dim, c.dim, false), nn::Dropout(0.0)) {
  if (!c.qk_norm) return;
  norm_q.emplace(Shape{c.dim / c.n_heads}, kZImageHeadEps);
  norm_k.emplace(Shape{c.dim / c.n_heads}, kZImageHeadEps);
}

Tensor ZImageAttention::forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& mask) const {
  const RotaryPositions rotary{cos, sin};
  AttendOptions o{.mask = mask, .rotary = &rotary};
  if (norm_q) o.norm_q = &*norm_q, o.norm_k = &*norm_k;
  const Tensors qkv = project_each({&to_q, &to_k, &to_v}, x);
  return project(to_out.get<0>(), attend(qkv[0], qkv[1], qkv[2], heads, o), {.dropout = &to_out.get<1>()});
}

bool ZImageAttention::pack() { return is_plain(*this) && models::pack({&to_q, &to_k, &to_v}); }

ZImageFeedForward::ZImageFeedForward(int64_t dim, int64_t hidden)
    : w1(dim, hidden, false), w2(hidden, dim, false), w3(dim, hidden, false) {}

Tensor ZImageFeedForward::forward(const Tensor& x) const { return project(w2, gated(w1, w3, x)); }

ZImageTransformerBlock::ZImageTransformerBlock(const ZImageConfig& c, bool modulation)
    : attention(c),
      feed_forward(c.dim, hidden_dim(c)),
      attention_norm1(norm_of(c)),
      ffn_norm1(norm_of(c)),
      attention_norm2(norm_of(c)),
      ffn_norm2(norm_of(c)) {
  if (modulation) adaLN_modulation.emplace(nn::Linear(modulation_dim(c), 4 * c.dim));
}

Tensor ZImageTransformerBlock::forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin,
                                       const Tensor& mask, const Tensor& temb) const {
  auto plain = [this, cos, sin, mask](const Tensors& in) -> Tensors {
    const Tensor x = in[0] + attention_norm2(attention(attention_norm1(in[0]), cos, sin, mask));
    return {x + ffn_norm2(feed_forward(ffn_norm1(x)))};
  };
  auto modulated = [this, cos, sin, mask](const Tensors& in) -> Tensors {
    const Tensors m = chunk(adaLN_modulation->get<0>()(in[1]), 4, 1);
    const Tensor seen = attention(scaled(attention_norm1, in[0], m[0]), cos, sin, mask);
    const Tensor x = gated_residual(in[0], tanh(m[1]), attention_norm2(seen));
    return {gated_residual(x, tanh(m[3]), ffn_norm2(feed_forward(scaled(ffn_norm1, x, m[2]))))};
  };
  return adaLN_modulation ? run(modulated, {hidden_states, temb})[0] : run(plain, {hidden_states})[0];
}

ZImageFinalLayer::ZImageFinalLayer(int64_t hidden_size, int64_t out_channels)
    : norm_final(Shape{hidden_size}, kZImageFinalEps, false),
      linear(hidden_size, out_channels),
      adaLN_modulation(nn::SiLU(), nn::Linear(std::min<int64_t>(hidden_size, 256), hidden_size)) {}

Tensor ZImageFinalLayer::forward(const Tensor& x, const Tensor& temb) const {
  const Tensor scale = adaLN_modulation.get<1>()(adaLN_modulation.get<0>()(temb));
  return project(linear, modulated(norm_final, x, scale, zeros_like(scale)));
}

// ---- the model

ZImageTransformer2DModel::ZImageTransformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      t_embedder(modulation_dim(options)),
      cap_embedder(nn::RMSNorm(Shape{options.cap_feat_dim}, options.norm_eps),
                   nn::Linear(options.cap_feat_dim, options.dim)),
      x_pad_token(nn::parameter(zeros({1, options.dim}))),
      cap_pad_token(nn::parameter(zeros({1, options.dim}))) {
  for (size_t i = 0; i < options.all_patch_size.size(); ++i) {
    const int64_t p = options.all_patch_size[i], f = options.all_f_patch_size[i], n = f * p * p * options.in_channels;
    SF_CHECK(!all_x_embedder.find(p, f), kZImage, ": all_patch_size and all_f_patch_size have the pair ", p, ", ", f,
             " twice");
    all_x_embedder.add(p, f, n, options.dim);
    all_final_layer.add(p, f, options.dim, n);
  }
  for (int64_t i = 0; i < options.n_refiner_layers; ++i) noise_refiner.emplace_back(options, true);
  for (int64_t i = 0; i < options.n_refiner_layers; ++i) context_refiner.emplace_back(options, false);
  for (int64_t i = 0; i < options.n_layers; ++i) layers.emplace_back(options, true);
}

// Cosines, then sines [2, length, axes_dims[axis]] of an axis's first places, each twice, as pairs of channels are
// turned. Angles are rounded to float32 first, as diffusers has them.
Tensor ZImageTransformer2DModel::axis_table(size_t axis, int64_t length) const {
  const int64_t d = options.axes_dims[axis];
  std::vector<float> values(size_t(2 * length * d));
  for (int64_t place = 0; place < length; ++place)
    for (int64_t i = 0; i < d; i += 2) {
      const double frequency = 1.0 / std::pow(options.rope_theta, double(i) / double(d));
      const auto angle = float(double(place) * frequency);
      for (int64_t k = 0; k < 2; ++k) {
        values[size_t(place * d + i + k)] = std::cos(angle);
        values[size_t((length + place) * d + i + k)] = std::sin(angle);
      }
    }
  return tensor(values, {2, length, d}, kFloat32);
}

// [2, H, W, axes_dims[1] + axes_dims[2]]
Tensor ZImageTransformer2DModel::rows_and_columns(const Grid& g) const {
  const auto& dims = options.axes_dims;
  const Tensor rows = axis_table(1, g.height).unsqueeze(2).expand({2, g.height, g.width, dims[1]}),
               columns = axis_table(2, g.width).unsqueeze(1).expand({2, g.height, g.width, dims[2]});
  return cat({rows, columns}, 3);
}

// Cosines, then sines of the places of all tokens, patches first: [2, N, D] of captions of one length, else [2, B, 1,
// N, D]. A caption's tokens are the frames 1, 2, ..., the picture's are those behind them; what fills patches up stands
// at 0. cap_lengths[B]: tokens of each caption, a multiple of kMultiple.
Tensor ZImageTransformer2DModel::positions(const Grid& g, int64_t cap_tokens, const Tensor& cap_lengths,
                                           const Tensor& like) const {
  const int64_t d0 = options.axes_dims[0], rest = options.axes_dims[1] + options.axes_dims[2],
                area = g.height * g.width, more = g.tokens() - g.patches(),
                batch = cap_lengths ? cap_lengths.size(0) : 1;
  // cosines are 1 and sines 0 at the place 0
  auto at_zero = [&](const Shape& shape, const Tensor& t) {
    return cat({ones(shape, kFloat32, t.device()), zeros(shape, kFloat32, t.device())}, 0);
  };
  // frames[2, b, F, d0] and the table [2, H, W, rest] of one frame, of the caption [2, M, d0]
  auto joined = [&](int64_t b, const Tensor& frames, const Tensor& one, const Tensor& cap) {
    const Tensor patches = cat({frames.unsqueeze(3).expand({2, b, g.frames, area, d0}),
                                one.reshape({2, 1, 1, area, rest}).expand({2, b, g.frames, area, rest})},
                               4)
                               .reshape({2, b, g.patches(), d0 + rest});
    Tensors parts{patches};
    if (more > 0) parts.push_back(at_zero({1, b, more, d0 + rest}, cap));
    parts.push_back(cat({cap.unsqueeze(1).expand({2, b, cap_tokens, d0}), at_zero({1, b, cap_tokens, rest}, cap)}, 3));
    return cat(parts, 2);
  };
  if (!cap_lengths)
    return joint_.of({g.frames, g.height, g.width, cap_tokens}, like, kFloat32, [&] {
      const Tensor places = axis_table(0, cap_tokens + 1 + g.frames);
      return joined(1, places.narrow(1, cap_tokens + 1, g.frames).unsqueeze(1), rows_and_columns(g),
                    places.narrow(1, 1, cap_tokens))
          .squeeze(1)
          .to(like.device());
    });
  const Tensor places =
                   axis_.of({0}, like, kFloat32, [&] { return axis_table(0, options.axes_lens[0]).to(like.device()); }),
               one =
                   grid_.of({g.height, g.width}, like, kFloat32, [&] { return rows_and_columns(g).to(like.device()); });
  const Tensor frames = cap_lengths.unsqueeze(1) + arange(1, g.frames + 1, 1, kInt64, like.device());  // [B, F]
  return joined(batch, index_select(places, 1, frames.reshape({-1})).reshape({2, batch, g.frames, d0}), one,
                places.narrow(1, 1, cap_tokens))
      .unsqueeze(2);
}

Tensor ZImageTransformer2DModel::forward(const Tensor& x, const Tensor& t, const Tensor& cap_feats,
                                         const Tensor& cap_mask, int64_t p, int64_t pf) const {
  const nn::Linear* x_embedder = all_x_embedder.find(p, pf);
  const ZImageFinalLayer* final_layer = all_final_layer.find(p, pf);
  SF_CHECK(x_embedder && final_layer, kZImage, ": patch_size and f_patch_size must be a pair of its config, got ", p,
           " and ", pf);
  check_defined(kZImage, "x", x);
  check_defined(kZImage, "cap_feats", cap_feats);
  SF_CHECK((x.ndim() == 4 || x.ndim() == 5) && x.numel() > 0 && x.size(1) == options.in_channels, kZImage,
           ": x must be [B, ", options.in_channels, ", F, H, W] or [B, ", options.in_channels, ", H, W], got ",
           x.shape());
  const Tensor video = x.ndim() == 4 ? x.unsqueeze(2) : x;
  const int64_t batch = x.size(0), channels = options.in_channels;
  SF_CHECK(video.size(2) % pf == 0 && video.size(3) % p == 0 && video.size(4) % p == 0, kZImage, ": patch_size ", p,
           " must divide height and width, and f_patch_size ", pf, " the frames, got ", x.shape());
  SF_CHECK(cap_feats.ndim() == 3 && cap_feats.size(0) == batch && cap_feats.size(1) > 0 &&
               cap_feats.size(2) == options.cap_feat_dim,
           kZImage, ": cap_feats must be [", batch, ", M, ", options.cap_feat_dim, "], got ", cap_feats.shape());
  const int64_t words = cap_feats.size(1), cap_tokens = (words + kMultiple - 1) / kMultiple * kMultiple;
  check_shape(kZImage, "cap_mask", cap_mask, {batch, words});
  const Grid g{video.size(2) / pf, video.size(3) / p, video.size(4) / p};
  SF_CHECK(cap_tokens + g.frames < options.axes_lens[0] && g.height <= options.axes_lens[1] &&
               g.width <= options.axes_lens[2],
           kZImage, ": axes_lens has places for ", options.axes_lens[0] - 1, " tokens and frames, ",
           options.axes_lens[1], " rows and ", options.axes_lens[2], " columns of patches, got ", cap_tokens + g.frames,
           ", ", g.height, " and ", g.width);
  SF_CHECK(t && t.ndim() <= 1 && (t.numel() == 1 || t.numel() == batch), kZImage,
           ": t must be one number, or one for each of the ", batch, " samples, got ", t ? t.shape() : Shape());

  // Captions shorter than the longest: what is behind a multiple of 32 is not seen. All are seen that are one multiple.
  Tensor real, lengths, seen;  // [B, words, 1], [B], [B, cap_tokens]
  if (cap_mask) {
    const Tensor mask = ne(cap_mask.to(x.device()), wrapped(0));
    real = mask.unsqueeze(2);
    if (cap_tokens > kMultiple) {
      const Tensor n = mask.to(kInt64).sum({1});
      lengths = floor_divide(n + (kMultiple - 1), wrapped(kMultiple)) * kMultiple;
      seen = lt(arange(0, cap_tokens, 1, kInt64, x.device()).unsqueeze(0), lengths.unsqueeze(1));
    }
  }
  auto as_mask = [](const Tensor& m) { return m.unsqueeze(1).unsqueeze(1); };
  const int64_t patches = g.patches(), tokens = g.tokens();
  const Tensor places = positions(g, cap_tokens, lengths, x), cos = places.select(0, 0), sin = places.select(0, 1);
  auto part = [](const Tensor& table, int64_t begin, int64_t n) { return table.narrow(table.ndim() - 2, begin, n); };

  const Tensor times = t.to(x.device()).reshape({-1}).expand({batch}) * options.t_scale;
  const Tensor temb = t_embedder(times).to(x.dtype());

  Tensor h = video.reshape({batch, channels, g.frames, pf, g.height, p, g.width, p})
                 .permute({0, 2, 4, 6, 3, 5, 7, 1})
                 .reshape({batch, patches, pf * p * p * channels});
  h = filled_up(project(*x_embedder, h), x_pad_token, tokens - patches);
  for (auto& layer : noise_refiner) h = layer(h, part(cos, 0, tokens), part(sin, 0, tokens), Tensor(), temb);

  const auto& [cap_norm, cap_linear] = std::tie(cap_embedder.get<0>(), cap_embedder.get<1>());
  Tensor cap = project_text({&cap_linear}, cap_feats, [norm = &cap_norm, linear = &cap_linear](const Tensor& c) {
    return (*linear)((*norm)(c));
  });
  if (real) cap = where(real, cap, cap_pad_token.to(cap.dtype()));
  cap = filled_up(cap, cap_pad_token, cap_tokens - words);
  const Tensor cap_seen = seen ? as_mask(seen) : Tensor();
  for (auto& layer : context_refiner)
    cap = layer(cap, part(cos, tokens, cap_tokens), part(sin, tokens, cap_tokens), cap_seen, Tensor());

  h = cat({h, cap}, 1);
  const Tensor all_seen = seen ? as_mask(cat({ones({batch, tokens}, kBool, x.device()), seen}, 1)) : Tensor();
  for (auto& layer : layers) h = layer(h, cos, sin, all_seen, temb);
  return (*final_layer)(h.narrow(1, 0, patches), temb)
      .reshape({batch, g.frames, g.height, g.width, pf, p, p, channels})
      .permute({0, 7, 1, 4, 2, 5, 3, 6})
      .reshape(x.shape());
}

SF_MODEL(ZImageTransformer2DModel)
    .doc(
        "diffusers' ZImageTransformer2DModel: noisy latents [B, C, F, H, W] or [B, C, H, W], a time and a caption to a "
        "prediction of the latents' size.")
    .forward<&ZImageTransformer2DModel::forward>("x, t, cap_feats, cap_mask=None, patch_size=2, f_patch_size=1");

}  // namespace sf::models
