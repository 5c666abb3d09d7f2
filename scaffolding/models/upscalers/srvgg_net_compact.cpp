#include "scaffolding/models/upscalers/srvgg_net_compact.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/activation.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/fused/finished_conv/conv_into.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr double kSlope = 0.1;  // of leaky_relu

SRVGGNetCompactConfig checked(SRVGGNetCompactConfig c) {
  const char* who = SRVGGNetCompact::kName;
  check_sizes(who, {{"num_in_ch", c.num_in_ch}, {"num_out_ch", c.num_out_ch}, {"num_feat", c.num_feat}});
  SF_CHECK(c.num_conv >= 0 && c.num_conv <= kMostLayers, who, ": num_conv must be between 0 and ", kMostLayers,
           ", got ", c.num_conv);
  SF_CHECK(c.upscale >= 1 && c.upscale <= 16, who, ": upscale must be 1 to 16, got ", c.upscale);
  SF_CHECK(c.num_out_ch * c.upscale * c.upscale <= kMostChannels, who, ": num_out_ch * upscale^2 must be at most ",
           kMostChannels, ", got ", c.num_out_ch * c.upscale * c.upscale);
  SF_CHECK(c.num_in_ch == c.num_out_ch || c.num_in_ch == 1, who,
           ": num_out_ch must be num_in_ch, whose pixels are added, got ", c.num_out_ch, " and ", c.num_in_ch);
  SF_CHECK(c.act_type == "prelu" || c.act_type == "relu" || c.act_type == "leakyrelu", who,
           ": act_type must be prelu, relu or leakyrelu, got '", c.act_type, "'");
  return c;
}

// The slopes of an activation over `channels`, as prelu's.
Tensor slopes_of(const nn::Module& activation, int64_t channels) {
  if (auto* prelu = dynamic_cast<const nn::PReLU*>(&activation)) return prelu->weight;
  return full({channels}, dynamic_cast<const nn::ReLU*>(&activation) ? 0 : kSlope, kFloat32);
}

}  // namespace

io::Fields SRVGGNetCompactConfig::fields() {
  return {{"num_in_ch", &num_in_ch}, {"num_out_ch", &num_out_ch}, {"num_feat", &num_feat},
          {"num_conv", &num_conv},   {"upscale", &upscale},       {"act_type", &act_type}};
}

SRVGGNetCompact::SRVGGNetCompact(Config config) : ConfiguredModel(checked(std::move(config))) {
  const auto& c = options;
  for (int64_t i = 0; i <= c.num_conv; ++i) {
    body.emplace_back<nn::Conv2d>(i == 0 ? c.num_in_ch : c.num_feat, c.num_feat, 3, nn::ConvOptions{.padding = 1});
    if (c.act_type == "prelu") body.emplace_back<nn::PReLU>(c.num_feat);
    else if (c.act_type == "relu") body.emplace_back<nn::ReLU>();
    else body.emplace_back<nn::LeakyReLU>(kSlope);
  }
  body.emplace_back<nn::Conv2d>(c.num_feat, c.num_out_ch * c.upscale * c.upscale, 3, nn::ConvOptions{.padding = 1});
}

Tensor SRVGGNetCompact::body_in_place(const Tensor& x) const {
  if (!x.device().is_cpu() || x.dtype() != kFloat32 || autograd::grad_enabled() || options.num_conv == 0 ||
      !is_plain(body))
    return {};
  for (size_t i = 0; i < body.size(); ++i)
    if (!is_plain(body[i])) return {};
  auto conv = [&](size_t i) -> const nn::Conv2d& { return static_cast<const nn::Conv2d&>(body[i]); };
  const nn::WeightsHere all(body);
  Tensor here = prelu(conv(0)(x), slopes_of(body[1], options.num_feat)), there = empty_like(here);
  for (size_t i = 2; i + 1 < body.size(); i += 2, std::swap(here, there)) {
    const nn::WeightsHere weights(body[i]), activation(body[i + 1]);
    if (!conv2d_finished_into(there, here, conv(i).weight, conv(i).bias,
                              {.slopes = slopes_of(body[i + 1], options.num_feat)}))
      return {};
  }
  return conv(body.size() - 1)(here);
}

Tensor SRVGGNetCompact::forward(const Tensor& x) const {
  check_defined(kName, "x", x);
  SF_CHECK(x.ndim() == 4 && x.size(1) == options.num_in_ch, kName, ": x must be [B, ", options.num_in_ch,
           ", H, W], got ", x.shape());
  const Tensor in = x.device().is_cpu() ? to_channels_last(x) : x;
  Tensor y = body_in_place(in);
  if (!y) y = body(in);
  return pixel_shuffle(y, options.upscale) +
         interpolate(in, {}, Floats{double(options.upscale), double(options.upscale)});
}

SF_MODEL(SRVGGNetCompact)
    .doc(
        "Real-ESRGAN's compact network: x [B, num_in_ch, H, W] in [0, 1] to [B, num_out_ch, upscale * H, upscale * "
        "W].")
    .forward<&SRVGGNetCompact::forward>("x");

}  // namespace sf::models
