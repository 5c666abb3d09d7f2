#include "scaffolding/models/upscalers/ltx2_latent_upsampler.h"

#include <array>

#include "scaffolding/models/autoencoders/ltx2_blocks.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields LTX2LatentUpsamplerConfig::fields() {
  return {{"in_channels", &in_channels},
          {"mid_channels", &mid_channels},
          {"num_blocks_per_stage", &num_blocks_per_stage},
          {"dims", &dims},
          {"spatial_upsample", &spatial_upsample},
          {"temporal_upsample", &temporal_upsample},
          {"rational_spatial_scale", &rational_spatial_scale},
          {"use_rational_resampler", &use_rational_resampler}};
}

namespace {

constexpr const char* kUpsampler = LTX2LatentUpsamplerModel::kName;
constexpr int64_t kNormGroups = 32;

std::pair<int64_t, int64_t> ratio_of(double scale) {
  if (scale == 0.75) return {3, 4};
  if (scale == 1.5) return {3, 2};
  if (scale == 2 || scale == 4) return {int64_t(scale), 1};
  fail<ValueError>(kUpsampler, ": rational_spatial_scale must be 0.75, 1.5, 2 or 4, got ", scale);
}

LTX2LatentUpsamplerConfig checked_upsampler(LTX2LatentUpsamplerConfig c) {
  check_sizes(kUpsampler, {{"in_channels", c.in_channels}, {"mid_channels", c.mid_channels}});
  SF_CHECK(c.mid_channels % kNormGroups == 0, kUpsampler, ": mid_channels must be a multiple of ", kNormGroups,
           ", got ", c.mid_channels);
  SF_CHECK(c.num_blocks_per_stage >= 0 && c.num_blocks_per_stage <= kMostLayers, kUpsampler,
           ": num_blocks_per_stage must be between 0 and ", kMostLayers, ", got ", c.num_blocks_per_stage);
  SF_CHECK(c.dims == 2 || c.dims == 3, kUpsampler, ": dims must be 2 or 3, got ", c.dims);
  SF_CHECK(c.spatial_upsample || c.temporal_upsample, kUpsampler,
           ": spatial_upsample or temporal_upsample must be true");
  SF_CHECK(c.dims == 3 || !c.temporal_upsample, kUpsampler, ": temporal_upsample needs dims=3, got 2");
  return c;
}

// f of all frames of a video [B, C, T, H, W] as a batch of pictures.
template <class F> Tensor by_picture(const Tensor& video, const F& f) {
  const Tensor pictures = video.permute({0, 2, 1, 3, 4}).flatten(0, 1);
  return unflatten(f(pictures), 0, {video.size(0), video.size(2)}).permute({0, 2, 1, 3, 4});
}

}  // namespace

LTX2UpsamplerConv::LTX2UpsamplerConv(int64_t dims, int64_t in_channels, int64_t out_channels) {
  if (dims == 2) flat.emplace(in_channels, out_channels, 3, nn::ConvOptions{.padding = 1});
  else deep.emplace(in_channels, out_channels, 3, nn::ConvOptions{.padding = 1});
}

LTX2UpsamplerResBlock::LTX2UpsamplerResBlock(int64_t channels, int64_t dims)
    : conv1(dims, channels, channels),
      conv2(dims, channels, channels),
      norm1(kNormGroups, channels),
      norm2(kNormGroups, channels) {}

Tensor LTX2UpsamplerResBlock::forward(const Tensor& x) const {
  return silu(norm2(conv2(norm_silu(norm1, conv1(x)))) + x);
}

LTX2BlurDownsample::LTX2BlurDownsample(int64_t every) : stride(every) {
  constexpr std::array<double, 5> kBinomial{1, 4, 6, 4, 1};
  std::vector<double> numbers;
  for (double down : kBinomial)
    for (double across : kBinomial) numbers.push_back(down * across / 256);
  kernel = nn::Buffer(tensor(numbers, {1, 1, 5, 5}, kFloat32));
}

Tensor LTX2BlurDownsample::forward(const Tensor& x) const {
  if (stride == 1) return x;
  return conv2d(x, kernel.expand({x.size(1), 1, 5, 5}), {}, {stride}, Shape{2}, {1}, x.size(1));
}

LTX2SpatialRationalResampler::LTX2SpatialRationalResampler(int64_t channels, std::pair<int64_t, int64_t> ratio)
    : num(ratio.first), den(ratio.second), conv(channels, num * num * channels, 3, {.padding = 1}), blur_down(den) {}

Tensor LTX2SpatialRationalResampler::forward(const Tensor& x) const { return blur_down(pixel_shuffle(conv(x), num)); }

LTX2LatentUpsamplerModel::LTX2LatentUpsamplerModel(Config config)
    : ConfiguredModel(checked_upsampler(config)),
      initial_conv(options.dims, options.in_channels, options.mid_channels),
      initial_norm(kNormGroups, options.mid_channels),
      final_conv(options.dims, options.mid_channels, options.in_channels) {
  const int64_t channels = options.mid_channels;
  for (int64_t i = 0; i < options.num_blocks_per_stage; ++i) {
    res_blocks.emplace_back(channels, options.dims);
    post_upsample_res_blocks.emplace_back(channels, options.dims);
  }
  const nn::ConvOptions padded{.padding = 1};
  if (options.temporal_upsample) {
    with_frames.emplace().emplace_back(channels, channels * (options.spatial_upsample ? 8 : 2), 3, padded);
  } else if (options.use_rational_resampler) {
    rational.emplace(channels, ratio_of(options.rational_spatial_scale));
  } else {
    doubling.emplace().emplace_back(channels, 4 * channels, 3, padded);
  }
}

void LTX2LatentUpsamplerModel::visit(nn::Visitor& v) {
  auto all = [&](auto& upsampler) {
    visit_members(v, "initial_conv, initial_norm, res_blocks, upsampler, post_upsample_res_blocks, final_conv",
                  initial_conv.module(), initial_norm, res_blocks, upsampler, post_upsample_res_blocks,
                  final_conv.module());
  };
  if (rational) all(rational);
  else if (doubling) all(doubling);
  else all(with_frames);
}

Tensor LTX2LatentUpsamplerModel::enlarged(const Tensor& x) const {
  if (with_frames) {
    const Shape stride = options.spatial_upsample ? Shape{2, 2, 2} : Shape{2, 1, 1};
    const Tensor rows = channels_to_blocks((*with_frames)[0](x).permute({0, 2, 3, 4, 1}), stride);
    return rows.narrow(1, 1, rows.size(1) - 1).permute({0, 4, 1, 2, 3});
  }
  auto of_pictures = [this](const Tensor& pictures) {
    return rational ? (*rational)(pictures) : pixel_shuffle((*doubling)[0](pictures), 2);
  };
  return options.dims == 2 ? of_pictures(x) : by_picture(x, of_pictures);
}

Tensor LTX2LatentUpsamplerModel::forward(const Tensor& latents) const {
  check_defined(kUpsampler, "hidden_states", latents);
  SF_CHECK(latents.ndim() == 5 && latents.size(1) == options.in_channels && latents.numel() > 0, kUpsampler,
           ": hidden_states must be [B, ", options.in_channels, ", T, H, W], got ", latents.shape());
  auto through = [this](Tensor x) {
    x = norm_silu(initial_norm, initial_conv(x));
    for (auto& block : res_blocks) x = block(x);
    x = enlarged(x);
    for (auto& block : post_upsample_res_blocks) x = block(x);
    return final_conv(x);
  };
  const Tensor video = to_channels_last(latents);
  const Tensor y = options.dims == 2 ? by_picture(video, through) : through(video);
  return latents.is_contiguous() ? contiguous(y) : y;
}

SF_MODEL(LTX2LatentUpsamplerModel)
    .doc("diffusers' LTX2LatentUpsamplerModel: latents [B, 128, T, H, W] of LTX-2's videos with sides twice as long.")
    .forward<&LTX2LatentUpsamplerModel::forward>("hidden_states");

}  // namespace sf::models
