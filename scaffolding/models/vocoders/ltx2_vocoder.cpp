#include "scaffolding/models/vocoders/ltx2_vocoder.h"

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/conv_beside.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Object LTX2VocoderConfig::default_dilations() {
  auto list = [] { return io::Object::container(io::Object::List, {int64_t(1), int64_t(3), int64_t(5)}); };
  return io::Object::container(io::Object::List, {list(), list(), list()});
}

io::Fields LTX2VocoderConfig::fields() {
  return {{"in_channels", &in_channels},
          {"hidden_channels", &hidden_channels},
          {"out_channels", &out_channels},
          {"upsample_kernel_sizes", &upsample_kernel_sizes},
          {"upsample_factors", &upsample_factors},
          {"resnet_kernel_sizes", &resnet_kernel_sizes},
          {"resnet_dilations", &resnet_dilations},
          {"act_fn", &act_fn},
          {"leaky_relu_negative_slope", &leaky_relu_negative_slope},
          {"antialias", &antialias},
          {"antialias_ratio", &antialias_ratio},
          {"antialias_kernel_size", &antialias_kernel_size},
          {"final_act_fn", &final_act_fn},
          {"final_bias", &final_bias},
          {"output_sampling_rate", &output_sampling_rate}};
}

namespace {

using Config = LTX2VocoderConfig;
constexpr const char* kVocoder = LTX2Vocoder::kName;
constexpr int64_t kMostTaps = 1 << 12;  // of a kernel, and samples of a sample before
constexpr double kLastSlope = 0.01;     // of the last activation, whatever the config says

VocoderAct act_of(const std::string& name) {
  if (name == "leaky_relu") return VocoderAct::LeakyReLU;
  if (name == "snake") return VocoderAct::Snake;
  SF_CHECK(name == "snakebeta", kVocoder, ": act_fn must be leaky_relu, snake or snakebeta, got '", name, "'");
  return VocoderAct::SnakeBeta;
}

void check_list(const char* field, const std::vector<int64_t>& values, int64_t most = kMostTaps) {
  for (int64_t v : values) SF_CHECK(v >= 1 && v <= most, kVocoder, ": ", field, " must be 1 to ", most, ", got ", v);
}

// A list for each kernel size.
std::vector<std::vector<int64_t>> dilations_of(const Config& c) {
  const size_t kernels = c.resnet_kernel_sizes.size();
  SF_CHECK_AS(TypeError, c.resnet_dilations.is_sequence(), kVocoder, ": resnet_dilations must be a list of lists");
  SF_CHECK(c.resnet_dilations.items().size() == kernels, kVocoder,
           ": resnet_dilations and resnet_kernel_sizes must have the same length, got ",
           c.resnet_dilations.items().size(), " and ", kernels);
  std::vector<std::vector<int64_t>> all;
  for (auto& item : c.resnet_dilations.items()) {
    SF_CHECK_AS(TypeError, item.is_sequence(), kVocoder, ": resnet_dilations must be a list of lists");
    all.push_back(io::ints_for_blocks(kVocoder, "resnet_dilations", item, item.items().size()));
    SF_CHECK(!all.back().empty() && int64_t(all.back().size()) <= kMostLayers, kVocoder,
             ": resnet_dilations must have 1 to ", kMostLayers, " numbers for a kernel size, got ", all.back().size());
    check_list("resnet_dilations", all.back());
  }
  return all;
}

Config checked(Config c) {
  check_sizes(kVocoder, {{"in_channels", c.in_channels},
                         {"hidden_channels", c.hidden_channels},
                         {"out_channels", c.out_channels},
                         {"output_sampling_rate", c.output_sampling_rate}});
  const size_t levels = c.upsample_factors.size();
  SF_CHECK(levels == c.upsample_kernel_sizes.size(), kVocoder,
           ": upsample_kernel_sizes and upsample_factors must have the same length, got ",
           c.upsample_kernel_sizes.size(), " and ", levels);
  SF_CHECK(levels >= 1 && levels <= 16, kVocoder, ": upsample_factors must have 1 to 16 entries, got ", levels);
  SF_CHECK(c.hidden_channels >> levels > 0, kVocoder, ": hidden_channels must be at least ", int64_t(1) << levels,
           " for ", levels, " upsample_factors, which halve them, got ", c.hidden_channels);
  check_list("upsample_kernel_sizes", c.upsample_kernel_sizes);
  check_list("upsample_factors", c.upsample_factors);
  int64_t factor = 1;
  for (size_t i = 0; i < levels; ++i) {
    SF_CHECK(c.upsample_kernel_sizes[i] >= c.upsample_factors[i], kVocoder,
             ": upsample_kernel_sizes must be at least upsample_factors, got ", c.upsample_kernel_sizes[i], " and ",
             c.upsample_factors[i]);
    factor *= c.upsample_factors[i];
    SF_CHECK(factor <= kMostChannels, kVocoder, ": upsample_factors must multiply to at most ", kMostChannels);
  }
  SF_CHECK(!c.resnet_kernel_sizes.empty() && c.resnet_kernel_sizes.size() <= 16, kVocoder,
           ": resnet_kernel_sizes must have 1 to 16 entries, got ", c.resnet_kernel_sizes.size());
  check_list("resnet_kernel_sizes", c.resnet_kernel_sizes);
  dilations_of(c);
  SF_CHECK_AS(NotSupported, act_of(c.act_fn) != VocoderAct::LeakyReLU || !c.antialias, kVocoder,
              ": antialias is for act_fn snake and snakebeta here, got leaky_relu");
  SF_CHECK(
      c.antialias_ratio >= 1 && c.antialias_ratio <= c.antialias_kernel_size && c.antialias_kernel_size <= kMostTaps,
      kVocoder, ": antialias_ratio must be 1 to antialias_kernel_size, which is at most ", kMostTaps, ", got ",
      c.antialias_ratio, " and ", c.antialias_kernel_size);
  SF_CHECK(!c.final_act_fn || *c.final_act_fn == "tanh" || *c.final_act_fn == "clamp", kVocoder,
           ": final_act_fn must be tanh, clamp or None, got '", c.final_act_fn.value_or(""), "'");
  return c;
}

VocoderActOptions act_options(const Config& c) {
  return {act_of(c.act_fn), c.leaky_relu_negative_slope, c.antialias, c.antialias_ratio, c.antialias_kernel_size};
}
VocoderActOptions last_act_options(const Config& c) {
  const bool leaky = act_of(c.act_fn) == VocoderAct::LeakyReLU;
  return {leaky ? VocoderAct::LeakyReLU : VocoderAct::SnakeBeta, kLastSlope, !leaky, c.antialias_ratio,
          c.antialias_kernel_size};
}

}  // namespace

VocoderActivation::VocoderActivation(int64_t channels, const VocoderActOptions& o) : negative_slope(o.negative_slope) {
  if (o.kind == VocoderAct::LeakyReLU) return;
  SnakeBeta periodic(channels, o.kind == VocoderAct::SnakeBeta);
  if (o.antialias) filtered.emplace(std::move(periodic), o.ratio, o.kernel_size);
  else snake.emplace(std::move(periodic));
}

void VocoderActivation::visit(nn::Visitor& v) {
  if (snake) snake->visit(v);
  if (filtered) filtered->visit(v);
}

Tensor VocoderActivation::forward(const Tensor& x) const {
  if (filtered) return filtered->forward(x);
  return snake ? snake->forward(x) : leaky_relu(x, negative_slope);
}

VocoderResBlock::VocoderResBlock(int64_t channels, int64_t kernel_size, const std::vector<int64_t>& dilations,
                                 const VocoderActOptions& o) {
  for (int64_t dilation : dilations) {
    convs1.emplace_back(channels, channels, kernel_size,
                        nn::ConvOptions{.padding = std::string("same"), .dilation = dilation});
    acts1.emplace_back(channels, o);
    convs2.emplace_back(channels, channels, kernel_size, nn::ConvOptions{.padding = std::string("same")});
    acts2.emplace_back(channels, o);
  }
}

Tensor VocoderResBlock::forward(Tensor x) const {
  for (size_t i = 0; i < convs1.size(); ++i) x = conv_beside(x, convs2[i], acts2[i](convs1[i](acts1[i](x))));
  return x;
}

LTX2Vocoder::LTX2Vocoder(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(options.in_channels, options.hidden_channels, 7, {.padding = 3}),
      act_out(options.hidden_channels >> options.upsample_factors.size(), last_act_options(options)),
      conv_out(options.hidden_channels >> options.upsample_factors.size(), options.out_channels, 7,
               {.padding = 3, .bias = options.final_bias}) {
  const auto dilations = dilations_of(options);
  int64_t channels = options.hidden_channels;
  for (size_t i = 0; i < options.upsample_factors.size(); ++i, channels /= 2) {
    const int64_t factor = options.upsample_factors[i], kernel = options.upsample_kernel_sizes[i];
    upsamplers.emplace_back(channels, channels / 2, kernel,
                            nn::ConvTransposeOptions{.stride = factor, .padding = (kernel - factor) / 2});
    for (size_t j = 0; j < dilations.size(); ++j)
      resnets.emplace_back(channels / 2, options.resnet_kernel_sizes[j], dilations[j], act_options(options));
  }
}

int64_t LTX2Vocoder::upsample_factor() const {
  int64_t factor = 1;
  for (int64_t f : options.upsample_factors) factor *= f;
  return factor;
}

Tensor LTX2Vocoder::forward(const Tensor& hidden_states, bool time_last) const {
  check_defined(kName, "hidden_states", hidden_states);
  SF_CHECK(hidden_states.ndim() == 4 && hidden_states.numel() > 0 &&
               hidden_states.size(1) * hidden_states.size(time_last ? 2 : 3) == options.in_channels,
           kName, ": hidden_states must be ", time_last ? "[B, channels, mel bins, L]" : "[B, channels, L, mel bins]",
           " with channels * mel bins = ", options.in_channels, ", got ", hidden_states.shape());
  // Channels-last: a frame's numbers lie side by side.
  Tensor x = hidden_states.permute({0, time_last ? 3 : 2, 1, time_last ? 2 : 3}).flatten(2, 3).transpose(1, 2);
  x = conv_in(x);
  const size_t kernels = options.resnet_kernel_sizes.size();
  for (size_t i = 0; i < upsamplers.size(); ++i) {
    if (act_of(options.act_fn) == VocoderAct::LeakyReLU) x = leaky_relu(x, options.leaky_relu_negative_slope);
    x = upsamplers[i](x);
    Tensor sum;
    for (size_t j = 0; j < kernels; ++j) {
      const Tensor y = resnets[i * kernels + j](x);
      sum = sum ? sum + y : y;
    }
    x = sum * (1.0 / double(kernels));
  }
  x = conv_out(act_out(x));
  if (options.final_act_fn) x = *options.final_act_fn == "tanh" ? tanh(x) : clamp(x, -1, 1);
  return contiguous(x);
}

SF_MODEL(LTX2Vocoder)
    .doc("diffusers' LTX2Vocoder: mel spectrograms [B, 2, L, 64] to sound [B, 2, 240 L].")
    .forward<&LTX2Vocoder::forward>("hidden_states, time_last=False");

}  // namespace sf::models
