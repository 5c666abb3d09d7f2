// The networks of a pipeline as its loop calls them. C++ models are wrapped by denoiser(), autoencoder() and text_encoder(); a language binding derives
// from the classes where a model was subclassed or hooked in its language, or is no C++ model at all.
// A component has the state of its model and is used from one thread at a time.
#pragma once
#include <memory>

#include "scaffolding/core/generator.h"
#include "scaffolding/io/object.h"
#include "scaffolding/models/model.h"

namespace sf::diffusion {

class Component {
 public:
  virtual ~Component() = default;
  virtual io::Object config() = 0;  // a dict
  virtual DType dtype() = 0;
  virtual Device device() = 0;
  virtual models::Model* model() { return nullptr; }  // where it is one: for files

  // A field of the config; `otherwise` where it is absent or null. TypeError for another type.
  int64_t config_int(const char* field, int64_t otherwise);
  double config_float(const char* field, double otherwise);
  bool config_bool(const char* field, bool otherwise);
  std::optional<std::vector<double>> config_list(const char* field);
};

struct DenoiserInput {
  Tensor sample;                 // [B, C, h, w]
  Tensor timestep;               // 0-d
  Tensor encoder_hidden_states;  // [B, tokens, features]
  Tensor timestep_cond;          // [B, time_cond_proj_dim], of distilled models
  Tensor text_embeds, time_ids;  // [B, features] and [B, ids], of SDXL
};

// UNet2DConditionModel.
class Denoiser : public Component {
 public:
  virtual Tensor predict(const DenoiserInput& input) = 0;  // [B, out_channels, h, w]
};

// AutoencoderKL or AutoencoderTiny.
class Autoencoder : public Component {
 public:
  virtual Tensor encode(const Tensor& images, const Generator& generator) = 0;  // [B, 3, H, W] in [-1, 1] to latents, drawn where they are a distribution
  virtual Tensor decode(const Tensor& latents) = 0;                             // not scaled any more
  virtual void to(DType dtype) = 0;

  int64_t scale_factor();          // pixels for each latent
  Tensor scaled(const Tensor&);    // latents as the denoiser has them, from encode's
  Tensor unscaled(const Tensor&);  // and back
};

// CLIPTextModel or CLIPTextModelWithProjection.
class TextEncoder : public Component {
 public:
  struct Output {
    Tensor last_hidden_state;  // [B, tokens, features]
    Tensor text_embeds;        // [B, projection_dim]; undefined of a model without projection
    Tensors hidden_states;     // of every layer, the embeddings first
  };
  virtual Output encode(const Tensor& input_ids, const Tensor& attention_mask) = 0;
  virtual Tensor final_layer_norm(const Tensor& hidden_state) = 0;
};

// ValueError for a model of another class.
std::shared_ptr<Denoiser> denoiser(std::shared_ptr<models::Model> unet);
std::shared_ptr<Autoencoder> autoencoder(std::shared_ptr<models::Model> vae);
std::shared_ptr<TextEncoder> text_encoder(std::shared_ptr<models::Model> text_encoder);

}  // namespace sf::diffusion
