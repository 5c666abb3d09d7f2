#include "scaffolding/models/transformers/tora_motion.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr int64_t kGroups = 32;
constexpr int64_t kNarrowing = 4;  // of the channels between the convolution over space and the one over time

int64_t missing(int64_t size, int64_t patch) { return (patch - size % patch) % patch; }

// He et al.'s values, for the ReLU that they meet.
void draw(const nn::ConvNd& conv) {
  nn::init::kaiming_normal_(conv.weight, 0, "fan_in", "relu");
  nn::init::zeros_(conv.bias);
}

nn::Conv1d zero_conv(int64_t in_channels, int64_t out_channels) {
  nn::Conv1d conv(in_channels, out_channels, 3, {.padding = 1, .padding_mode = "replicate"});
  nn::init::zeros_(conv.weight);
  nn::init::zeros_(conv.bias);
  return conv;
}

// features[B, T, c, H, W] -> [B, T * H * W, C]: over space, then each place over time.
Tensor over_space_and_time(const nn::Conv2d& spatial, const nn::Conv1d& temporal, const Tensor& features) {
  const int64_t batch = features.size(0), times = features.size(1), places = features.size(3) * features.size(4);
  const Tensor y = spatial(features.flatten(0, 1));
  const int64_t narrow = y.size(1);
  const Tensor x = y.permute({0, 2, 3, 1}).reshape({batch, times, places, narrow});
  if (!is_plain(temporal)) {
    const Tensor z = temporal(x.permute({0, 2, 3, 1}).reshape({-1, narrow, times}));
    return z.reshape({batch, places, -1, times}).permute({0, 3, 1, 2}).reshape({batch, times * places, z.size(1)});
  }
  // The same as one convolution of pictures whose rows are times and whose columns are places: the channels of a place
  // lie beside each other, before and after.
  const nn::WeightsHere here(temporal);
  const Tensor padded = pad(x.permute({0, 3, 1, 2}), {0, 0, 1, 1}, temporal.padding_mode);
  const Tensor z = conv2d(padded, temporal.weight.unsqueeze(-1), temporal.bias);
  return z.permute({0, 2, 3, 1}).reshape({batch, times * places, z.size(1)});
}

}  // namespace

TrajResnetBlock::TrajResnetBlock(int64_t channels)
    : block1(channels, channels, 3, {.padding = 1}),
      block2(channels, channels, 3, {.padding = 1}),
      bn1(channels),
      bn2(channels) {
  draw(block1);
  draw(block2);
}

Tensor TrajResnetBlock::forward(const Tensor& x) const { return block2(relu(bn2(block1(relu(bn1(x)))))) + x; }

TrajExtractor::TrajExtractor(const TrajExtractorOptions& o)
    : in_channels(o.in_channels),
      patch_size(o.patch_size),
      patch_size_t(o.patch_size_t),
      resnets_per_feature(o.resnets_per_feature),
      conv_in(o.in_channels * o.patch_size * o.patch_size * o.patch_size_t, o.channels, 3, {.padding = 1}) {
  for (int64_t i = 0; i < o.features * o.resnets_per_feature; ++i) body.emplace_back(o.channels);
  draw(conv_in);
}

Tensor TrajExtractor::patches(Tensor x) const {
  const int64_t t = missing(x.size(1), patch_size_t), h = missing(x.size(3), patch_size),
                w = missing(x.size(4), patch_size);
  if (t + h + w > 0) x = pad(x, {0, w, 0, h, 0, 0, 0, t});
  const int64_t times = x.size(1) / patch_size_t, height = x.size(3) / patch_size, width = x.size(4) / patch_size;
  return x.reshape({x.size(0), times, patch_size_t, in_channels, height, patch_size, width, patch_size})
      .permute({0, 1, 3, 2, 5, 7, 4, 6})
      .reshape({x.size(0) * times, -1, height, width});
}

// What f makes of x[N, ...], `most` samples at a time, in memory for all of it.
template <class F> static Tensor in_batches(const Tensor& x, int64_t most, const F& f) {
  if (most <= 0 || x.size(0) <= most) return f(x);
  Tensor all;
  for (int64_t i = 0; i < x.size(0); i += most) {
    const int64_t n = std::min(most, x.size(0) - i);
    const Tensor part = f(x.narrow(0, i, n));
    if (!all) {
      Shape shape = part.shape();
      shape[0] = x.size(0);
      all = empty(shape, part.dtype(), part.device());
    }
    all.narrow(0, i, n).copy_(part);
  }
  return all;
}

Tensors TrajExtractor::forward(const Tensor& video_flow, int64_t frame_batch) const {
  check_defined("TrajExtractor", "video_flow", video_flow);
  SF_CHECK(video_flow.ndim() == 5 && video_flow.size(2) == in_channels && video_flow.numel() > 0,
           "TrajExtractor: video_flow must be [B, T, ", in_channels, ", H, W], got ", video_flow.shape());
  const int64_t most = training || autograd::grad_enabled() ? 0 : frame_batch;
  Tensor x = conv_in(patches(video_flow));
  const Shape size{video_flow.size(0), -1, x.size(1), x.size(2), x.size(3)};
  Tensors features;
  for (size_t i = 0; i < body.size(); ++i) {
    const nn::WeightsHere here(body[i]);  // once, not for each of its batches
    x = in_batches(x, most, [&](const Tensor& frames) { return body[i](frames); });
    if (int64_t(i + 1) % resnets_per_feature == 0) features.push_back(x.reshape(size));
  }
  return features;
}

MGF::MGF(int64_t flow_channels, int64_t out_channels)
    : flow_gamma_spatial(flow_channels, out_channels / kNarrowing, 3, {.padding = 1}),
      flow_gamma_temporal(zero_conv(out_channels / kNarrowing, out_channels)),
      flow_beta_spatial(flow_channels, out_channels / kNarrowing, 3, {.padding = 1}),
      flow_beta_temporal(zero_conv(out_channels / kNarrowing, out_channels)),
      flow_cond_norm(kGroups, out_channels) {}

Tensor MGF::forward(const Tensor& hidden_states, const Tensor& features) const {
  check_defined("MGF", "hidden_states", hidden_states);
  check_defined("MGF", "features", features);
  SF_CHECK(hidden_states.ndim() == 3 && features.ndim() == 5, "MGF: hidden_states must be [B, N, ",
           flow_cond_norm.num_channels, "] and features [B, T, ", flow_gamma_spatial.in_channels, ", H, W], got ",
           hidden_states.shape(), " and ", features.shape());
  const int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1), channels = hidden_states.size(2);
  const int64_t times = features.size(1), height = features.size(3), width = features.size(4);
  SF_CHECK(times * height * width == tokens && (features.size(0) == batch || features.size(0) == 1),
           "MGF: features must have a place for each token, got ", features.shape(), " for hidden_states ",
           hidden_states.shape());
  const Tensor gamma = over_space_and_time(flow_gamma_spatial, flow_gamma_temporal, features),
               beta = over_space_and_time(flow_beta_spatial, flow_beta_temporal, features);
  const Tensor pictures = hidden_states.reshape({batch * times, height, width, channels}).permute({0, 3, 1, 2});
  const Tensor normed = flow_cond_norm(pictures).permute({0, 2, 3, 1}).reshape({batch, tokens, channels});
  return hidden_states + normed * gamma + beta;
}

}  // namespace sf::models
