#include "scaffolding/models/upscalers/rrdbnet.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/fused/finished_conv/conv_into.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr double kSlope = 0.2;          // of leaky_relu
constexpr double kResidualScale = 0.2;  // of what a block adds to its input
constexpr int64_t kMostUpsample = 4;

nn::Conv2d conv3x3(int64_t in_channels, int64_t out_channels) { return {in_channels, out_channels, 3, {.padding = 1}}; }

Tensor activated(const Tensor& x) { return leaky_relu(x, kSlope); }

RRDBNetConfig checked(RRDBNetConfig c) {
  const char* who = RRDBNet::kName;
  SF_CHECK(c.num_upsample >= 0 && c.num_upsample <= kMostUpsample, who, ": num_upsample must be 0 to ", kMostUpsample,
           ", got ", c.num_upsample);
  const int64_t most = int64_t(1) << c.num_upsample;
  SF_CHECK(c.scale >= 1 && c.scale <= most && (c.scale & (c.scale - 1)) == 0, who,
           ": scale must be a power of two of 1 to 2^num_upsample = ", most, ", got ", c.scale);
  check_sizes(who, {{"num_in_ch", c.num_in_ch},
                    {"num_out_ch", c.num_out_ch},
                    {"num_feat", c.num_feat},
                    {"num_grow_ch", c.num_grow_ch}});
  const int64_t in = c.num_in_ch * c.block_of_pixels() * c.block_of_pixels();
  SF_CHECK(in <= kMostChannels, who, ": num_in_ch must be at most ", kMostChannels, " as blocks of pixels, got ", in);
  SF_CHECK(c.num_block >= 1 && c.num_block <= kMostLayers, who, ": num_block must be between 1 and ", kMostLayers,
           ", got ", c.num_block);
  return c;
}

bool is_plain_throughout(const nn::ModuleList<RRDB>& body) {
  for (const RRDB& block : body) {
    if (!is_plain(block)) return false;
    for (const ResidualDenseBlock* rdb : {&block.rdb1, &block.rdb2, &block.rdb3}) {
      if (!is_plain(*rdb)) return false;
      for (const nn::Conv2d* conv : {&rdb->conv1, &rdb->conv2, &rdb->conv3, &rdb->conv4, &rdb->conv5})
        if (!is_plain(*conv)) return false;
    }
  }
  return true;
}

// Whether kernels that write into memory that is there may compute with it.
bool may_write_past_calls(const Tensor& x) {
  return x.device().is_cpu() && x.dtype() == kFloat32 && !autograd::grad_enabled();
}

constexpr int64_t kBandBytes = int64_t(64) << 20;  // of enlarged features in memory at once
constexpr int64_t kBandOverlap = 2;                // rows of the features that its convolutions see

std::optional<nn::Conv2d> up_conv(const RRDBNetConfig& c, int64_t number) {
  if (number > c.num_upsample) return std::nullopt;
  return conv3x3(c.num_feat, c.num_feat);
}

}  // namespace

io::Fields RRDBNetConfig::fields() {
  return {{"num_in_ch", &num_in_ch},      {"num_out_ch", &num_out_ch}, {"scale", &scale},
          {"num_feat", &num_feat},        {"num_block", &num_block},   {"num_grow_ch", &num_grow_ch},
          {"num_upsample", &num_upsample}};
}

// ---- blocks

ResidualDenseBlock::ResidualDenseBlock(int64_t feat, int64_t grow)
    : conv1(conv3x3(feat, grow)),
      conv2(conv3x3(feat + grow, grow)),
      conv3(conv3x3(feat + 2 * grow, grow)),
      conv4(conv3x3(feat + 3 * grow, grow)),
      conv5(conv3x3(feat + 4 * grow, feat)) {}

Tensor ResidualDenseBlock::forward(const Tensor& x) const {
  Tensors seen{x};
  for (const nn::Conv2d* conv : {&conv1, &conv2, &conv3, &conv4})
    seen.push_back(activated((*conv)(seen.size() == 1 ? x : cat(seen, 1))));
  return conv5(cat(seen, 1)) * kResidualScale + x;
}

bool ResidualDenseBlock::run_into(const Tensor& y, const Tensor& features, const Tensor& slopes,
                                  const Tensor& residual) const {
  const nn::WeightsHere here(*this);
  int64_t seen = conv1.in_channels;
  const int64_t grow = conv1.out_channels;
  for (const nn::Conv2d* conv : {&conv1, &conv2, &conv3, &conv4}) {
    const nn::WeightsHere weights(*conv);
    if (!conv2d_finished_into(features.narrow(1, seen, grow), features.narrow(1, 0, seen), conv->weight, conv->bias,
                              {.slopes = slopes}))
      return false;
    seen += grow;
  }
  const nn::WeightsHere weights(conv5);
  const Tensor x = features.narrow(1, 0, conv1.in_channels);
  if (!residual)
    return conv2d_finished_into(y, features, conv5.weight, conv5.bias, {.scale = kResidualScale, .residual = x});
  return conv2d_finished_into(
      y, features, conv5.weight, conv5.bias,
      {.scale = kResidualScale * kResidualScale, .residual = x, .residual_scale = kResidualScale, .second = residual});
}

RRDB::RRDB(int64_t feat, int64_t grow) : rdb1(feat, grow), rdb2(feat, grow), rdb3(feat, grow) {}

Tensor RRDB::forward(const Tensor& x) const {
  return run([this](const Tensors& in) -> Tensors { return {rdb3(rdb2(rdb1(in[0]))) * kResidualScale + in[0]}; },
             {x})[0];
}

// ---- the network

RRDBNet::RRDBNet(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_first(conv3x3(options.num_in_ch * options.block_of_pixels() * options.block_of_pixels(), options.num_feat)),
      conv_body(conv3x3(options.num_feat, options.num_feat)),
      conv_up1(up_conv(options, 1)),
      conv_up2(up_conv(options, 2)),
      conv_up3(up_conv(options, 3)),
      conv_up4(up_conv(options, 4)),
      conv_hr(conv3x3(options.num_feat, options.num_feat)),
      conv_last(conv3x3(options.num_feat, options.num_out_ch)) {
  for (int64_t i = 0; i < options.num_block; ++i) body.emplace_back(options.num_feat, options.num_grow_ch);
}

std::vector<const nn::Conv2d*> RRDBNet::ups() const {
  std::vector<const nn::Conv2d*> out;
  for (auto* conv : {&conv_up1, &conv_up2, &conv_up3, &conv_up4})
    if (*conv) out.push_back(&**conv);
  return out;
}

// Convolutions of 3x3 in a row: 15 of each block, and those around them, of which the enlarged ones see less.
int64_t RRDBNet::reach() const { return (2 + 15 * options.num_block + 3) * options.block_of_pixels(); }

Tensor RRDBNet::with_body(const Tensor& features) const {
  Tensor x = trunk_in_place(features);
  if (x && is_plain(conv_body)) {
    const nn::WeightsHere weights(conv_body);
    const Tensor y = empty_like(features);
    if (conv2d_finished_into(y, x, conv_body.weight, conv_body.bias, {.residual = features})) return y;
  }
  if (!x) {
    x = features;
    for (const RRDB& block : body) x = block(x);
  }
  return features + conv_body(x);
}

Tensor RRDBNet::trunk_in_place(const Tensor& features) const {
  if (!may_write_past_calls(features) || !is_plain_throughout(body)) return {};
  const int64_t feat = options.num_feat, all = feat + 4 * options.num_grow_ch;
  const Shape sizes{features.size(0), all, features.size(2), features.size(3)};
  Tensor here = empty_strided(sizes, channels_last_strides(sizes), kFloat32, features.device()),
         there = empty_like(here), began = empty_like(features);
  const Tensor slopes = full({options.num_grow_ch}, kSlope, kFloat32, features.device());
  auto x_of = [&](const Tensor& t) { return t.narrow(1, 0, feat); };
  x_of(here).copy_(features);
  for (const RRDB& block : body) {
    const nn::WeightsHere weights(block);
    began.copy_(x_of(here));
    if (!block.rdb1.run_into(x_of(there), here, slopes, {})) return {};
    if (!block.rdb2.run_into(x_of(here), there, slopes, {})) return {};
    if (!block.rdb3.run_into(x_of(there), here, slopes, began)) return {};
    std::swap(here, there);
  }
  return x_of(here);
}

Tensor RRDBNet::enlarged(const Tensor& features) const {
  if (Tensor y = enlarged_in_bands(features)) return y;
  Tensor x = features;
  for (const nn::Conv2d* conv : ups()) x = activated((*conv)(interpolate(x, {}, Floats{2, 2})));
  return conv_last(activated(conv_hr(x)));
}

Tensor RRDBNet::enlarged_in_bands(const Tensor& features) const {
  if (!may_write_past_calls(features) || !is_plain(conv_hr)) return {};
  for (const nn::Conv2d* conv : ups())
    if (!is_plain(*conv)) return {};
  const int64_t height = features.size(2), times = int64_t(1) << options.num_upsample,
                row_bytes = features.size(0) * features.size(3) * options.num_feat * times * times * 4,
                bands = std::min(std::max<int64_t>(1, height / 8), height * row_bytes / kBandBytes + 1);
  // Of two bands' features, which all of them use in turn.
  const int64_t most = (height / bands + 1 + 2 * kBandOverlap) * row_bytes / 4;
  const Tensor here = empty({most}, kFloat32, features.device()), there = empty({most}, kFloat32, features.device());
  const Shape sizes{features.size(0), options.num_out_ch, height * times, features.size(3) * times};
  const Tensor y = empty_strided(sizes, channels_last_strides(sizes), kFloat32, features.device());
  for (int64_t i = 0; i < bands; ++i) {
    const int64_t begin = height * i / bands, end = height * (i + 1) / bands,
                  first = std::max<int64_t>(0, begin - kBandOverlap), last = std::min(height, end + kBandOverlap);
    const Tensor band = enlarged_band(to_channels_last(features.narrow(2, first, last - first)), here, there);
    if (!band) return {};
    y.narrow(2, begin * times, (end - begin) * times)
        .copy_(band.narrow(2, (begin - first) * times, (end - begin) * times));
  }
  return y;
}

Tensor RRDBNet::enlarged_band(const Tensor& features, const Tensor& here, const Tensor& there) const {
  const Tensor slopes = full({options.num_feat}, kSlope, kFloat32, features.device());
  Tensor x = features;
  int64_t written = 0;
  auto finish = [&](const nn::Conv2d& conv, int64_t repeat) {
    const nn::WeightsHere weights(conv);
    const Shape sizes{x.size(0), options.num_feat, x.size(2) * repeat, x.size(3) * repeat};
    const Tensor y =
        Tensor::strided((written++ % 2 ? there : here).storage(), sizes, channels_last_strides(sizes), 0, kFloat32);
    if (!conv2d_finished_into(y, x, conv.weight, conv.bias, {.slopes = slopes, .repeat = repeat})) return false;
    x = y;
    return true;
  };
  for (const nn::Conv2d* conv : ups())
    if (!finish(*conv, 2)) return {};
  if (!finish(conv_hr, 1)) return {};
  return conv_last(x);
}

Tensor RRDBNet::forward(const Tensor& input) const {
  check_defined(kName, "x", input);
  SF_CHECK(input.ndim() == 4 && input.size(1) == options.num_in_ch, kName, ": x must be [B, ", options.num_in_ch,
           ", H, W], got ", input.shape());
  const int64_t block = options.block_of_pixels(), height = input.size(2), width = input.size(3);
  const int64_t down = (block - height % block) % block, across = (block - width % block) % block;
  Tensor x = input;
  if (down + across > 0) {
    SF_CHECK(height > down && width > across, kName, ": x must have more than ", std::max(down, across),
             " pixels in either direction, got ", input.shape());
    x = pad(x, {0, across, 0, down}, "reflect");
  }
  if (block > 1) x = pixel_unshuffle(x, block);
  if (x.device().is_cpu()) x = to_channels_last(x);
  const Tensor features = conv_first(x);
  Tensor y = enlarged(with_body(features));
  if (down + across > 0) y = y.narrow(2, 0, height * options.scale).narrow(3, 0, width * options.scale);
  return y;
}

SF_MODEL(RRDBNet)
    .doc(
        "ESRGAN's and Real-ESRGAN's network: x [B, num_in_ch, H, W] in [0, 1] to [B, num_out_ch, scale * H, scale * "
        "W].")
    .forward<&RRDBNet::forward>("x");

}  // namespace sf::models
