#include "scaffolding/diffusion/pipelines/components.h"

#include <algorithm>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// Null for a field that is absent or None.
const io::Object* given(const io::Object& config, const char* field) {
  auto* value = config.is_dict() ? config.find(field) : nullptr;
  return value && !value->is(io::Object::None) ? value : nullptr;
}

template <class M> std::shared_ptr<M> as(const char* what, const std::shared_ptr<models::Model>& model, const char* wanted) {
  SF_CHECK(model, what, ": is absent");
  auto typed = std::dynamic_pointer_cast<M>(model);
  SF_CHECK_AS(TypeError, typed, what, ": must be ", wanted, ", got ", model->type());
  return typed;
}

template <class Base, class M> class Native : public Base {
 public:
  explicit Native(std::shared_ptr<M> model) : model_(std::move(model)) {}
  io::Object config() override { return model_->config(); }
  DType dtype() override { return model_->dtype(); }
  Device device() override { return model_->device(); }
  models::Model* model() override { return model_.get(); }

 protected:
  std::shared_ptr<M> model_;
};

class NativeDenoiser final : public Native<Denoiser, models::UNet2DConditionModel> {
 public:
  using Native::Native;
  Tensor predict(const DenoiserInput& in) override {
    Tensor none;
    return (*model_)(in.sample, in.timestep, in.encoder_hidden_states, none, in.timestep_cond, none, none, in.text_embeds, in.time_ids);
  }
};

// One picture at a time, and then in tiles, where the GPU's free memory is short.
Tensor decode_within_memory(models::AutoencoderKL& vae, const Tensor& latents) {
  if (!latents.device().is_cuda()) return vae.decode(latents);
  struct Before {
    models::AutoencoderKL& vae;
    bool slicing = vae.use_slicing, tiling = vae.use_tiling;
    ~Before() { vae.use_slicing = slicing, vae.use_tiling = tiling; }
  } before{vae};
  MemoryStatistics m = accelerator(latents.device()).memory(latents.device().index);
  // What is kept and not in use is given back when it is needed, but for the graphs' own and for what lies beside tensors.
  const size_t kept = m.reserved - m.allocated, available = m.free + kept - std::min(kept, m.in_graph_pools + m.split_free);
  auto fits = [&] { return size_t(vae.decode_bytes(latents.shape(), latents.dtype(), vae.use_slicing, vae.use_tiling)) <= available; };
  if (!fits()) vae.use_slicing = true;
  if (!fits()) vae.use_tiling = true;
  return vae.decode(latents);
}

template <class M> class NativeAutoencoder final : public Native<Autoencoder, M> {
 public:
  using Native<Autoencoder, M>::Native;
  Tensor encode(const Tensor& images, const Generator& generator) override {
    auto latents = this->model_->encode(images);
    if constexpr (std::is_same_v<decltype(latents), Tensor>) return latents;
    else return latents.sample(generator);
  }
  Tensor decode(const Tensor& latents) override {
    if constexpr (std::is_same_v<M, models::AutoencoderKL>) return decode_within_memory(*this->model_, latents);
    else return this->model_->decode(latents);
  }
  void to(DType dtype) override { nn::to(*this->model_, {.dtype = dtype}); }
};

template <class M> class NativeTextEncoder final : public Native<TextEncoder, M> {
 public:
  using Native<TextEncoder, M>::Native;
  TextEncoder::Output encode(const Tensor& input_ids, const Tensor& attention_mask) override {
    constexpr bool projects = std::is_same_v<M, models::CLIPTextModelWithProjection>;
    Tensors all = (*this->model_)(input_ids, attention_mask, Tensor(), true);
    TextEncoder::Output out;
    out.last_hidden_state = all[projects ? 1 : 0];
    if (projects) out.text_embeds = all[0];
    out.hidden_states.assign(all.begin() + 2, all.end());
    return out;
  }
  Tensor final_layer_norm(const Tensor& hidden_state) override { return this->model_->text_model.final_layer_norm(hidden_state); }
};

}  // namespace

int64_t Component::config_int(const char* field, int64_t otherwise) {
  io::Object all = config();
  auto* value = given(all, field);
  return value ? value->as_int() : otherwise;
}
double Component::config_float(const char* field, double otherwise) {
  io::Object all = config();
  auto* value = given(all, field);
  return value ? value->as_float() : otherwise;
}
bool Component::config_bool(const char* field, bool otherwise) {
  io::Object all = config();
  auto* value = given(all, field);
  return value ? value->as_bool() : otherwise;
}
std::optional<std::vector<double>> Component::config_list(const char* field) {
  io::Object all = config();
  auto* value = given(all, field);
  if (!value) return {};
  SF_CHECK_AS(TypeError, value->is_sequence(), "config: ", field, " must be a list of numbers");
  std::vector<double> out;
  for (auto& item : value->items()) out.push_back(item.as_float());
  return out;
}

int64_t Autoencoder::scale_factor() {
  for (auto* field : {"block_out_channels", "encoder_block_out_channels"})
    if (auto channels = config_list(field); channels && !channels->empty()) return int64_t(1) << (channels->size() - 1);
  return 8;
}

Tensor Autoencoder::scaled(const Tensor& latents) {
  double factor = config_float("scaling_factor", 1);
  auto mean = config_list("latents_mean"), std = config_list("latents_std");
  if (!mean || !std) return factor * latents;
  auto channels = [&](const std::vector<double>& v) { return tensor(v, {1, int64_t(v.size()), 1, 1}, kFloat32).to(latents.device()).to(latents.dtype()); };
  return (latents - channels(*mean)) * factor / channels(*std);
}

Tensor Autoencoder::unscaled(const Tensor& latents) {
  double factor = config_float("scaling_factor", 1);
  auto mean = config_list("latents_mean"), std = config_list("latents_std");
  if (!mean || !std) return latents / factor;
  auto channels = [&](const std::vector<double>& v) { return tensor(v, {1, int64_t(v.size()), 1, 1}, kFloat32).to(latents.device()).to(latents.dtype()); };
  return latents * channels(*std) / factor + channels(*mean);
}

std::shared_ptr<Denoiser> denoiser(std::shared_ptr<models::Model> unet) {
  return std::make_shared<NativeDenoiser>(as<models::UNet2DConditionModel>("unet", unet, "a UNet2DConditionModel"));
}

std::shared_ptr<Autoencoder> autoencoder(std::shared_ptr<models::Model> vae) {
  if (auto tiny = std::dynamic_pointer_cast<models::AutoencoderTiny>(vae)) return std::make_shared<NativeAutoencoder<models::AutoencoderTiny>>(tiny);
  return std::make_shared<NativeAutoencoder<models::AutoencoderKL>>(as<models::AutoencoderKL>("vae", vae, "an AutoencoderKL or AutoencoderTiny"));
}

std::shared_ptr<TextEncoder> text_encoder(std::shared_ptr<models::Model> encoder) {
  if (auto projects = std::dynamic_pointer_cast<models::CLIPTextModelWithProjection>(encoder))
    return std::make_shared<NativeTextEncoder<models::CLIPTextModelWithProjection>>(projects);
  return std::make_shared<NativeTextEncoder<models::CLIPTextModel>>(
      as<models::CLIPTextModel>("text_encoder", encoder, "a CLIPTextModel or CLIPTextModelWithProjection"));
}

}  // namespace sf::diffusion
