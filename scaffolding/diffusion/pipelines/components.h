// The parts of a pipeline as its run calls them: networks behind the interface of what they do there. C++ models are
// wrapped by component<Interface>(); a language binding derives from the interfaces where a model was subclassed or
// hooked in its language, or is no C++ model at all. A family whose models want a wrapper of their own registers it:
// SF_COMPONENT(TextEncoder, models::CLIPTextModel, Wrapper). A component has the state of its model and is used from
// one thread at a time.
#pragma once
#include <memory>

#include "scaffolding/core/generator.h"
#include "scaffolding/diffusion/pipelines/denoiser_call.h"
#include "scaffolding/io/object.h"
#include "scaffolding/models/autoencoders/video_parts.h"
#include "scaffolding/models/model.h"

namespace sf::diffusion {

template <class T> using Ref = std::shared_ptr<T>;

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

// The network that a run calls in each step: a UNet or a transformer.
class Denoiser : public Component {
 public:
  static constexpr const char* kKind = "a denoiser, which is called with samples and timesteps";
  virtual Tensor predict(const DenoiserCall& call) = 0;  // [B, out_channels, ...]
  // All tensors that the network gives, of one that gives several: a ControlNet.
  virtual Tensors outputs(const DenoiserCall& call) { return {predict(call)}; }
};

// Pictures to latents and back.
class Autoencoder : public Component {
 public:
  static constexpr const char* kKind = "an autoencoder";
  // [B, 3, H, W] in [-1, 1] to latents, drawn where they are a distribution
  virtual Tensor encode(const Tensor& images, const Generator& generator) = 0;
  // Without drawing: the distribution's mode.
  virtual Tensor encode_mode(const Tensor& images) { return encode(images, Generator()); }
  virtual Tensor decode(const Tensor& latents) = 0;  // not scaled any more
  // The noise that is left in the latents that are decoded next, timestep[B] from 0 to 1: of an autoencoder whose
  // config says timestep_conditioning. NotSupported of others.
  virtual void tell_timestep(const Tensor& timestep);
  // It computes in a wider dtype, which is dtype() too, while what is returned lives; weights stay as they are stored.
  virtual std::shared_ptr<void> widened(DType dtype) = 0;
  // One picture of a batch at a time; overlapping squares of a picture. Nothing happens where it has no such thing.
  struct Savings {
    bool slicing = false, tiling = false;
    int64_t tile = 0;  // pixels on a side of a square, at most; 0: as it is
  };
  virtual Savings savings() { return {}; }
  virtual void save(Savings) {}
  // decode() part by part, of one that decodes clips so; else as a whole.
  virtual void decode_in_parts(const Tensor& latents, const models::TakeVideoPart& take) {
    take({.values = decode(latents)});
  }

  virtual int64_t scale_factor();       // pixels for each latent
  virtual int64_t frames_per_latent();  // of clips: all latents but the first stand for so many
  // What latents are moved and divided by: float32 [C], or undefined.
  struct LatentRange {
    Tensor mean, std;
  };
  virtual LatentRange latent_range();
  Tensor scaled(const Tensor&);    // latents [B, C, ...] as the denoiser has them, from encode's
  Tensor unscaled(const Tensor&);  // and back
};

class TextEncoder : public Component {
 public:
  static constexpr const char* kKind = "a text encoder";
  struct Output {
    Tensor last_hidden_state;  // [B, tokens, features]
    Tensor text_embeds;        // [B, projection_dim]; undefined of a model without projection
    Tensor pooler_output;      // [B, features] of the whole text; undefined where text_embeds is its projection
    Tensors hidden_states;     // of every layer, the embeddings first
  };
  virtual Output encode(const Tensor& input_ids, const Tensor& attention_mask) = 0;
  // The norm after the last layer, for pipelines that leave layers out. NotSupported of a model that has none.
  virtual Tensor final_layer_norm(const Tensor& hidden_state) = 0;
};

// What a pipeline has beside those: it is called with its forward's arguments by their names. A vocoder, connectors.
class Network : public Component {
 public:
  static constexpr const char* kKind = "a network";
  virtual Tensors call(const DenoiserCall& call) = 0;  // all tensors that it gives
};

// A C++ model behind an interface, for a model M whose calls are those of its class.
template <class Interface, class M> class ModelComponent : public Interface {
 public:
  explicit ModelComponent(std::shared_ptr<M> model) : model_(std::move(model)) {}
  io::Object config() override { return model_->config(); }
  DType dtype() override { return model_->dtype(); }
  Device device() override { return model_->device(); }
  models::Model* model() override { return model_.get(); }

 protected:
  std::shared_ptr<M> model_;
};

// The wrapper of a model for an interface. TypeError naming `slot` and the classes there are for a model that is no
// such thing, ValueError for none.
template <class Interface> Ref<Interface> component(const std::string& slot, std::shared_ptr<models::Model> model);
// any model whose forward takes a timestep
template <> Ref<Denoiser> component<Denoiser>(const std::string& slot, std::shared_ptr<models::Model> model);
template <> Ref<Network> component<Network>(const std::string& slot, std::shared_ptr<models::Model> model);  // any
Ref<Denoiser> denoiser(std::shared_ptr<models::Model> model);
Ref<Autoencoder> autoencoder(std::shared_ptr<models::Model> model);
Ref<TextEncoder> text_encoder(std::shared_ptr<models::Model> model);

namespace detail {
template <class Interface> struct Wrapper {
  const char* model;                                                    // its class
  Ref<Interface> (*make)(const std::shared_ptr<models::Model>& model);  // null where the model is of another class
};
template <class Interface> std::vector<Wrapper<Interface>>& wrappers() {
  static std::vector<Wrapper<Interface>> all;
  return all;
}
[[noreturn]] void no_such_component(const std::string& slot, const char* kind, std::vector<std::string> classes,
                                    const char* got);

template <class Interface, class M, class W> bool add_component() {
  wrappers<Interface>().push_back({M::kName, [](const std::shared_ptr<models::Model>& model) -> Ref<Interface> {
                                     auto typed = std::dynamic_pointer_cast<M>(model);
                                     return typed ? std::make_shared<W>(typed) : nullptr;
                                   }});
  return true;
}
}  // namespace detail

template <class Interface> Ref<Interface> component(const std::string& slot, std::shared_ptr<models::Model> model) {
  std::vector<std::string> classes;
  for (auto& w : detail::wrappers<Interface>()) {
    if (Ref<Interface> made = w.make(model)) return made;
    classes.push_back(w.model);
  }
  detail::no_such_component(slot, Interface::kKind, std::move(classes), model ? model->type() : nullptr);
}

#define SF_COMPONENT(Interface, Model, ...)                               \
  [[maybe_unused]] static const bool SF_CAT(sf_component_, __COUNTER__) = \
      ::sf::diffusion::detail::add_component<Interface, Model, __VA_ARGS__>()

}  // namespace sf::diffusion
