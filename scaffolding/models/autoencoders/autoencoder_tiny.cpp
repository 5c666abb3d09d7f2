#include "scaffolding/models/autoencoders/autoencoder_tiny.h"

#include <algorithm>

#include "scaffolding/core/default_device.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/autoencoders/tiles.h"
#include "scaffolding/models/parts/activations.h"
#include "scaffolding/nn/norm.h"
#include "scaffolding/nn/shape.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields AutoencoderTinyConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"encoder_block_out_channels", &encoder_block_out_channels},
          {"decoder_block_out_channels", &decoder_block_out_channels},
          {"act_fn", &act_fn},
          {"upsample_fn", &upsample_fn},
          {"latent_channels", &latent_channels},
          {"upsampling_scaling_factor", &upsampling_scaling_factor},
          {"num_encoder_blocks", &num_encoder_blocks},
          {"num_decoder_blocks", &num_decoder_blocks},
          {"latent_magnitude", &latent_magnitude},
          {"latent_shift", &latent_shift},
          {"force_upcast", &force_upcast},
          {"scaling_factor", &scaling_factor},
          {"shift_factor", &shift_factor},
          {"use_midblock_gn", &use_midblock_gn},
          {"block_out_channels", &block_out_channels}};
}

AutoencoderTinyBlock::AutoencoderTinyBlock(int64_t in_channels, int64_t out_channels, const std::string& act_fn,
                                           bool with_pool) {
  conv.emplace_back<nn::Conv2d>(in_channels, out_channels, 3, nn::ConvOptions{.padding = 1});
  conv.push_back(make_activation("AutoencoderTiny", act_fn));
  conv.emplace_back<nn::Conv2d>(out_channels, out_channels, 3, nn::ConvOptions{.padding = 1});
  conv.push_back(make_activation("AutoencoderTiny", act_fn));
  conv.emplace_back<nn::Conv2d>(out_channels, out_channels, 3, nn::ConvOptions{.padding = 1});
  if (in_channels != out_channels) skip.emplace(in_channels, out_channels, 1, nn::ConvOptions{.bias = false});
  if (with_pool)
    pool.emplace(nn::Conv2d(in_channels, 4 * in_channels, 1, {.bias = false}), nn::GroupNorm(4, 4 * in_channels),
                 nn::ReLU(), nn::Conv2d(4 * in_channels, in_channels, 1, {.bias = false}));
}

Tensor AutoencoderTinyBlock::forward(const Tensor& input) const {
  Tensor x = pool ? input + (*pool)(input) : input;
  return relu(conv(x) + (skip ? (*skip)(x) : x));
}

EncoderTiny::EncoderTiny(const AutoencoderTinyConfig& c) {
  auto& channels = c.encoder_block_out_channels;
  for (size_t i = 0; i < channels.size(); ++i) {
    if (i == 0) layers.emplace_back<nn::Conv2d>(c.in_channels, channels[0], 3, nn::ConvOptions{.padding = 1});
    else
      layers.emplace_back<nn::Conv2d>(channels[i], channels[i], 3,
                                      nn::ConvOptions{.stride = 2, .padding = 1, .bias = false});
    const bool pool = c.use_midblock_gn && i + 1 == channels.size();
    for (int64_t j = 0; j < c.num_encoder_blocks[i]; ++j)
      layers.emplace_back<AutoencoderTinyBlock>(channels[i], channels[i], c.act_fn, pool);
  }
  layers.emplace_back<nn::Conv2d>(channels.back(), c.latent_channels, 3, nn::ConvOptions{.padding = 1});
}

Tensor EncoderTiny::forward(const Tensor& x) const {
  return run([this](const Tensors& in) -> Tensors { return {layers((in[0] + 1) / 2)}; }, {x})[0];
}

DecoderTiny::DecoderTiny(const AutoencoderTinyConfig& c) {
  auto& channels = c.decoder_block_out_channels;
  layers.emplace_back<nn::Conv2d>(c.latent_channels, channels[0], 3, nn::ConvOptions{.padding = 1});
  layers.push_back(make_activation("AutoencoderTiny", c.act_fn));
  for (size_t i = 0; i < channels.size(); ++i) {
    bool last = i + 1 == channels.size();
    for (int64_t j = 0; j < c.num_decoder_blocks[i]; ++j)
      layers.emplace_back<AutoencoderTinyBlock>(channels[i], channels[i], c.act_fn, c.use_midblock_gn && i == 0);
    if (!last)
      layers.emplace_back<nn::Upsample>(std::nullopt, nn::Factors{{double(c.upsampling_scaling_factor)}, true},
                                        c.upsample_fn);
    layers.emplace_back<nn::Conv2d>(channels[i], last ? c.out_channels : channels[i], 3,
                                    nn::ConvOptions{.padding = 1, .bias = last});
  }
}

Tensor DecoderTiny::forward(const Tensor& x) const {
  return run([this](const Tensors& in) -> Tensors { return {layers(tanh(in[0] / 3) * 3) * 2 - 1}; }, {x})[0];
}

namespace {

constexpr const char* kWho = AutoencoderTiny::kName;

void check_stages(const char* half, const std::vector<int64_t>& channels, const std::vector<int64_t>& blocks) {
  SF_CHECK(channels.size() == blocks.size(), kWho, ": ", half, "_block_out_channels and num_", half,
           "_blocks must have the same length, got ", channels.size(), " and ", blocks.size());
  SF_CHECK(!channels.empty() && channels.size() <= 16, kWho, ": ", half,
           "_block_out_channels must have 1 to 16 entries, got ", channels.size());
  for (int64_t n : channels)
    SF_CHECK(n >= 1 && n <= 1 << 16 && n == channels[0], kWho, ": ", half,
             "_block_out_channels must be one number of 1 to 65536 for all stages, got ", n, " after ", channels[0]);
  for (int64_t n : blocks) SF_CHECK(n >= 0 && n <= 256, kWho, ": num_", half, "_blocks must be 0 to 256, got ", n);
}

AutoencoderTinyConfig checked(AutoencoderTinyConfig c) {
  check_stages("encoder", c.encoder_block_out_channels, c.num_encoder_blocks);
  check_stages("decoder", c.decoder_block_out_channels, c.num_decoder_blocks);
  for (auto [name, n] : {std::pair{"in_channels", c.in_channels}, {"latent_channels", c.latent_channels}})
    SF_CHECK(n >= 1 && n <= 1 << 16, kWho, ": ", name, " must be 1 to 65536, got ", n);
  SF_CHECK(c.out_channels >= 1 && c.out_channels <= 16, kWho, ": out_channels must be 1 to 16, got ", c.out_channels);
  SF_CHECK(c.upsampling_scaling_factor >= 1 && c.upsampling_scaling_factor <= 16, kWho,
           ": upsampling_scaling_factor must be 1 to 16, got ", c.upsampling_scaling_factor);
  SF_CHECK(c.latent_magnitude != 0, kWho, ": latent_magnitude must not be 0");
  c.block_out_channels = c.decoder_block_out_channels;
  c.force_upcast = false;
  return c;
}

void check_picture(const char* method, const Tensor& x, int64_t channels) {
  std::string who = std::string(kWho) + "." + method;
  check_defined(who.c_str(), "x", x);
  SF_CHECK(x.ndim() == 4 && x.size(1) == channels, who, ": x must be [B, ", channels, ", H, W], got ", x.shape());
}

SeamlessAxes axes_of(const nn::Sequential& layers) {
  auto* first = layers.size() ? dynamic_cast<const nn::Conv2d*>(&layers[0]) : nullptr;
  return first ? seamless_axes(*first) : SeamlessAxes();
}

// f of overlapping tiles of x, written one after another into `out`: where a tile overlaps those before it, its share
// rises from 0 to 1. Sizes in the result are those in x times `up` over `down`.
template <class F>
Tensor in_tiles(const Tensor& x, Tensor out, int64_t size, double overlap, int64_t up, int64_t down, const F& f) {
  const int64_t blend = int64_t(double(size) * overlap), step = size - blend;
  const double ramp = double(blend) * double(up) / double(down) - 1;
  SF_CHECK(step > 0 && ramp > 0, kWho,
           ": tiles must overlap by more than one latent and less than their size, got tiles of ", size,
           " with tile_overlap_factor=", overlap);
  auto place = [=](int64_t i) { return i * up / down; };
  Tensor rising = clamp(arange(0, place(size), 1, kFloat32, x.device()) / ramp, 0, 1).to(x.dtype()),
         whole = ones_like(rising);
  for (int64_t i = 0; i < x.size(2); i += step)
    for (int64_t j = 0; j < x.size(3); j += step) {
      stop_here(kWho);
      Tensor tile = f(x.slice(2, i, i + size).slice(3, j, j + size));
      Tensor to = out.slice(2, place(i), place(i + size)).slice(3, place(j), place(j + size));
      SF_CHECK(tile.shape() == to.shape(), kWho, ": tiling takes ", up, " pixels for ", down,
               " of its input, and this config's make ", tile.shape(), " where there is room for ", to.shape(),
               "; set spatial_scale_factor");
      Tensor share = (i > 0 ? rising : whole).narrow(0, 0, tile.size(2)).unsqueeze(1) *
                     (j > 0 ? rising : whole).narrow(0, 0, tile.size(3));
      to.copy_(share * tile + (1 - share) * to);
    }
  return out;
}

}  // namespace

AutoencoderTiny::AutoencoderTiny(Config config)
    : ConfiguredModel(checked(std::move(config))), encoder(options), decoder(options) {
  spatial_scale_factor = int64_t(1) << options.out_channels;
  tile_latent_min_size = tile_sample_min_size / spatial_scale_factor;
}

Tensor AutoencoderTiny::encode(const Tensor& x) const {
  check_picture("encode", x, options.in_channels);
  return in_slices(x, use_slicing, [this](const Tensor& one) { return use_tiling ? tiled_encode(one) : encoder(one); });
}
Tensor AutoencoderTiny::decode(const Tensor& x) const {
  check_picture("decode", x, options.latent_channels);
  return in_slices(x, use_slicing, [this](const Tensor& one) { return use_tiling ? tiled_decode(one) : decoder(one); });
}

Tensor AutoencoderTiny::tiled_encode(const Tensor& x) const {
  const int64_t scale = spatial_scale_factor;
  SF_CHECK(x.size(2) % scale == 0 && x.size(3) % scale == 0 && tile_sample_min_size % scale == 0, kWho,
           ": tiling needs sizes that ", scale, " divides, got x ", x.shape(),
           " and tile_sample_min_size=", tile_sample_min_size);
  const int64_t overlap = (int64_t(double(tile_sample_min_size) * tile_overlap_factor) + scale - 1) / scale * scale;
  return joined_at_borders(x, tile_sample_min_size, overlap, axes_of(encoder.layers), [&](const Tensor& wide) {
    Tensor out = zeros({wide.size(0), options.latent_channels, wide.size(2) / scale, wide.size(3) / scale},
                       wide.dtype(), wide.device());
    return in_tiles(wide, out, tile_sample_min_size, tile_overlap_factor, 1, scale, encoder);
  });
}
Tensor AutoencoderTiny::tiled_decode(const Tensor& x) const {
  const int64_t scale = spatial_scale_factor;
  const int64_t overlap = int64_t(double(tile_latent_min_size) * tile_overlap_factor);
  return joined_at_borders(x, tile_latent_min_size, overlap, axes_of(decoder.layers), [&](const Tensor& wide) {
    Tensor out = zeros({wide.size(0), options.out_channels, wide.size(2) * scale, wide.size(3) * scale}, wide.dtype(),
                       wide.device());
    return in_tiles(wide, out, tile_latent_min_size, tile_overlap_factor, scale, 1, decoder);
  });
}

Tensor AutoencoderTiny::scale_latents(const Tensor& x) const {
  return clamp(x / (2 * options.latent_magnitude) + options.latent_shift, 0, 1);
}
Tensor AutoencoderTiny::unscale_latents(const Tensor& x) const {
  return (x - options.latent_shift) * (2 * options.latent_magnitude);
}
Tensor AutoencoderTiny::forward(const Tensor& sample) const {
  Tensor bytes = round(scale_latents(encode(sample)) * 255);
  return decode(unscale_latents(bytes / 255));
}

namespace {

// "11.pool.0.weight" as "encoder.layers.11.pool.0.weight". The files count the decoder's first step,
// which has no tensors.
std::string key_of_numbered(const std::string& half, const std::string& key, int64_t offset) {
  size_t digits = std::min(key.find('.'), key.size());
  bool number = digits > 0 && digits <= 4 &&
                std::all_of(key.begin(), key.begin() + int64_t(digits), [](char c) { return c >= '0' && c <= '9'; });
  SF_CHECK(number, "load_taesd: tensors must be named by the number of their layer, got '", key, "'");
  return half + ".layers." + std::to_string(std::stoll(key.substr(0, digits)) + offset) + key.substr(digits);
}

}  // namespace

std::unique_ptr<AutoencoderTiny> load_taesd(const std::string& encoder_path, const std::string& decoder_path,
                                            std::optional<DType> dtype) {
  auto encoder = io::open_checkpoint(encoder_path), decoder = io::open_checkpoint(decoder_path);
  std::map<std::string, Tensor> state;
  AutoencoderTinyConfig config;
  for (auto& [file, half, offset] : {std::tuple{encoder.get(), "encoder", 0}, {decoder.get(), "decoder", -1}})
    for (auto& name : file->names()) {
      Tensor t = file->get(name);
      if (half == std::string("decoder") && name == "1.weight" && t.ndim() == 4) config.latent_channels = t.size(1);
      config.use_midblock_gn = config.use_midblock_gn || name.find(".pool.") != std::string::npos;
      state.emplace(key_of_numbered(half, name, offset), dtype && is_floating(t.dtype()) ? t.to(*dtype) : t);
    }
  std::unique_ptr<AutoencoderTiny> model;
  {
    DefaultDevice nowhere{Device(Device::Meta)};
    model = std::make_unique<AutoencoderTiny>(config);
  }
  try {
    nn::load_state_dict(*model, state, {.strict = true, .assign = true});
  } catch (const RuntimeError& e) {
    fail(encoder_path, " and ", decoder_path, ": are not TAESD's: ", e.what());
  }
  model->eval();
  return model;
}

SF_MODEL(AutoencoderTiny)
    .doc(
        "diffusers' AutoencoderTiny (TAESD): pictures [B, 3, H, W] in [-1, 1] to latents [B, 4, H / 8, W / 8] and "
        "back.")
    .forward<&AutoencoderTiny::forward>("sample")
    .method<&AutoencoderTiny::encode>("encode", "x")
    .method<&AutoencoderTiny::decode>("decode", "x")
    .method<&AutoencoderTiny::scale_latents>("scale_latents", "x")
    .method<&AutoencoderTiny::unscale_latents>("unscale_latents", "x")
    .field<&AutoencoderTiny::use_slicing>("use_slicing")
    .field<&AutoencoderTiny::use_tiling>("use_tiling")
    .field<&AutoencoderTiny::spatial_scale_factor>("spatial_scale_factor")
    .field<&AutoencoderTiny::tile_sample_min_size>("tile_sample_min_size")
    .field<&AutoencoderTiny::tile_latent_min_size>("tile_latent_min_size")
    .field<&AutoencoderTiny::tile_overlap_factor>("tile_overlap_factor");

}  // namespace sf::models
