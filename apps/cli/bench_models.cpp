#include "apps/cli/bench_models.h"

#include <cmath>

#include "scaffolding/autograd/set_data.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/ops/ops.h"

namespace sf::cli {

namespace {

// A model made on the meta device, given weights that keep activations at their size. One block of random numbers
// serves all: drawing billions would take longer than what is timed.
void fill(nn::Module& model, DType dtype) {
  const int64_t block = 1 << 20;
  const Tensor numbers = randn({block});
  for (auto& [name, tensor, persistent, owner] : nn::named_parameters(model)) {
    Tensor value = empty(tensor.shape(), dtype, Device());
    if (value.ndim() < 2) {
      value.fill_(name.ends_with("weight") ? 1 : 0);
    } else {
      const Tensor scaled = (numbers * std::sqrt(double(value.size(0)) / double(value.numel()))).to(dtype);
      Tensor flat = value.view({value.numel()});
      for (int64_t at = 0; at < value.numel(); at += block) {
        const int64_t n = std::min(block, value.numel() - at);
        flat.narrow(0, at, n).copy_(scaled.narrow(0, 0, n));
      }
    }
    Tensor place = tensor;
    autograd::set_data(place, value);
  }
  model.eval();
}

template <class M> std::shared_ptr<M> make(typename M::Config config, DType dtype) {
  std::shared_ptr<M> model;
  {
    DefaultDevice meta(Device::Meta);
    model = std::make_shared<M>(std::move(config));
  }
  fill(*model, dtype);
  return model;
}

std::function<void()> unet(const models::UNet2DConditionConfig& config, DType dtype, int64_t batch, int64_t pixels) {
  auto model = make<models::UNet2DConditionModel>(config, dtype);
  auto input = [&](const Shape& size) { return randn(size).to(dtype); };
  Tensor sample = input({batch, 4, pixels, pixels}), text = input({batch, 77, config.cross_attention_dim.as_int()}),
         embeds, ids;
  if (config.addition_embed_type) embeds = input({batch, 1280}), ids = full({batch, 6}, double(8 * pixels));
  Tensor timestep = full({}, 500.0);
  return [=] { (*model)(sample, timestep, text, Tensor(), Tensor(), Tensor(), Tensor(), embeds, ids); };
}

io::Object list(std::initializer_list<int64_t> numbers) {
  std::vector<io::Object> items(numbers.begin(), numbers.end());
  return io::Object::container(io::Object::List, std::move(items));
}

std::function<void()> sd15_unet(DType dtype, int64_t batch) {
  models::UNet2DConditionConfig c;
  c.cross_attention_dim = int64_t(768);
  return unet(c, dtype, batch, 64);
}

std::function<void()> tiny_unet(DType dtype, int64_t batch) {
  models::UNet2DConditionConfig c;
  c.block_out_channels = {32, 64};
  c.down_block_types = {"CrossAttnDownBlock2D", "DownBlock2D"};
  c.up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D"};
  c.cross_attention_dim = int64_t(32);
  return unet(c, dtype, batch, 16);
}

std::function<void()> sd21_unet(DType dtype, int64_t batch) {
  models::UNet2DConditionConfig c;
  c.cross_attention_dim = int64_t(1024);
  c.attention_head_dim = list({5, 10, 20, 20});
  c.use_linear_projection = true;
  return unet(c, dtype, batch, 96);
}

std::function<void()> sdxl_unet(DType dtype, int64_t batch) {
  models::UNet2DConditionConfig c;
  c.block_out_channels = {320, 640, 1280};
  c.down_block_types = {"DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"};
  c.up_block_types = {"CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"};
  c.transformer_layers_per_block = list({1, 2, 10});
  c.attention_head_dim = list({5, 10, 20});
  c.cross_attention_dim = int64_t(2048);
  c.use_linear_projection = true;
  c.addition_embed_type = "text_time";
  c.addition_time_embed_dim = 256;
  c.projection_class_embeddings_input_dim = 2816;
  return unet(c, dtype, batch, 128);
}

std::function<void()> vae_decode(DType dtype, int64_t batch) {
  models::AutoencoderKLConfig c;
  c.block_out_channels = {128, 256, 512, 512};
  c.down_block_types.assign(4, "DownEncoderBlock2D");
  c.up_block_types.assign(4, "UpDecoderBlock2D");
  c.layers_per_block = 2;
  auto model = make<models::AutoencoderKL>(c, dtype);
  const Tensor latents = randn({batch, 4, 64, 64}).to(dtype);
  return [=] { model->decode(latents); };
}

std::function<void()> clip_text(DType dtype, int64_t batch) {
  models::CLIPTextConfig c;
  c.hidden_size = 768, c.intermediate_size = 3072, c.num_attention_heads = 12;
  auto model = make<models::CLIPTextModel>(c, dtype);
  const Tensor ids = randint(0, 49407, {batch, 77});
  return [=] { (*model)(ids); };
}

constexpr BenchModel kModels[] = {
    {"sd15-unet", "UNet of Stable Diffusion 1.5, latents 64x64", sd15_unet},
    {"sd21-unet", "UNet of Stable Diffusion 2.1, latents 96x96", sd21_unet},
    {"sdxl-unet", "UNet of Stable Diffusion XL, latents 128x128", sdxl_unet},
    {"vae", "decoder of Stable Diffusion's autoencoder, latents 64x64 to 512x512 pixels", vae_decode},
    {"clip", "text encoder of Stable Diffusion 1.x (ViT-L), 77 tokens", clip_text},
    {"tiny-unet", "UNet of two levels with 32 and 64 channels, latents 16x16", tiny_unet},
};

}  // namespace

std::span<const BenchModel> bench_models() { return kModels; }

}  // namespace sf::cli
