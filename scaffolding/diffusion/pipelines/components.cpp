#include "scaffolding/diffusion/pipelines/components.h"

#include <algorithm>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// Null for a field that is absent or None.
const io::Object* given(const io::Object& config, const char* field) {
  auto* value = config.is_dict() ? config.find(field) : nullptr;
  return value && !value->is(io::Object::None) ? value : nullptr;
}

// Any model, by the names of the forward that it registered.
class NativeDenoiser final : public ModelComponent<Denoiser, models::Model> {
 public:
  explicit NativeDenoiser(std::shared_ptr<models::Model> model) : ModelComponent(std::move(model)), layer_(*nn::find_layer(*model_)) {}

  Tensor predict(const DenoiserCall& call) override {
    nn::Values values;
    for (auto& info : layer_.forward_args) values.push_back(info.fallback);
    std::vector<bool> given(values.size());
    size_t position = 0;
    for (auto& a : call) {
      const size_t i = a.name.empty() ? position++ : place(a.name);
      if (i < given.size()) given[i] = true;
      if (a.tensor) values.at(i) = a.tensor;
    }
    for (size_t i = 0; i < values.size(); ++i)
      SF_CHECK_AS(TypeError, given[i] || layer_.forward_args[i].has_default, layer_.name, ": missing argument '", layer_.forward_args[i].name, "'");
    Value out = model_->call(values);
    if (auto* all = std::get_if<Tensors>(&out)) return all->at(0);
    return std::get<Tensor>(out);
  }

 private:
  size_t place(std::string_view name) const {
    name.remove_prefix(name.rfind('.') + 1);  // of a dict in Python the entry
    for (size_t i = 0; i < layer_.forward_args.size(); ++i)
      if (layer_.forward_args[i].name == name) return i;
    fail<TypeError>(layer_.name, ": its forward has no argument '", name, "'");
  }
  const nn::LayerEntry& layer_;
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

template <class M> class NativeAutoencoder final : public ModelComponent<Autoencoder, M> {
 public:
  using ModelComponent<Autoencoder, M>::ModelComponent;
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

template <class M> class ClipTextEncoder final : public ModelComponent<TextEncoder, M> {
 public:
  using ModelComponent<TextEncoder, M>::ModelComponent;
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

SF_COMPONENT(Autoencoder, models::AutoencoderKL, NativeAutoencoder<models::AutoencoderKL>);
SF_COMPONENT(Autoencoder, models::AutoencoderTiny, NativeAutoencoder<models::AutoencoderTiny>);
SF_COMPONENT(TextEncoder, models::CLIPTextModel, ClipTextEncoder<models::CLIPTextModel>);
SF_COMPONENT(TextEncoder, models::CLIPTextModelWithProjection, ClipTextEncoder<models::CLIPTextModelWithProjection>);

}  // namespace

template <> Ref<Denoiser> component<Denoiser>(const std::string& slot, std::shared_ptr<models::Model> model) {
  const nn::LayerEntry* layer = model ? nn::find_layer(*model) : nullptr;
  auto takes_timestep = [&] { return std::any_of(layer->forward_args.begin(), layer->forward_args.end(), [](auto& a) { return a.name == "timestep"; }); };
  if (layer && takes_timestep()) return std::make_shared<NativeDenoiser>(std::move(model));
  detail::no_such_component(slot, Denoiser::kKind, {}, model ? model->type() : nullptr);
}

void detail::no_such_component(const std::string& slot, const char* kind, std::vector<std::string> classes, const char* got) {
  SF_CHECK(got, slot, ": is absent");
  std::string wanted;
  for (size_t i = 0; i < classes.size(); ++i) wanted += (i == 0 ? "" : i + 1 == classes.size() ? " or " : ", ") + classes[i];
  fail<TypeError>(slot, ": must be ", kind, wanted.empty() ? "" : " (" + wanted + ")", ", got ", got);
}

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

namespace {
struct LatentRange {
  double factor, shift;
  Tensor mean, std;  // [1, C, 1, ...], or absent
};
LatentRange range_of(Autoencoder& vae, const Tensor& latents) {
  LatentRange r{vae.config_float("scaling_factor", 1), vae.config_float("shift_factor", 0), {}, {}};
  auto mean = vae.config_list("latents_mean"), std = vae.config_list("latents_std");
  if (!mean || !std) return r;
  auto channels = [&](const std::vector<double>& v) {
    Shape shape = Shape::filled(latents.ndim(), 1);
    shape[1] = int64_t(v.size());
    return tensor(v, shape, kFloat32).to(latents.device()).to(latents.dtype());
  };
  r.mean = channels(*mean), r.std = channels(*std);
  return r;
}
}  // namespace

Tensor Autoencoder::scaled(const Tensor& latents) {
  LatentRange r = range_of(*this, latents);
  if (r.mean) return (latents - r.mean) * r.factor / r.std;
  return r.shift != 0 ? (latents - r.shift) * r.factor : r.factor * latents;
}

Tensor Autoencoder::unscaled(const Tensor& latents) {
  LatentRange r = range_of(*this, latents);
  if (r.mean) return latents * r.std / r.factor + r.mean;
  return r.shift != 0 ? latents / r.factor + r.shift : latents / r.factor;
}

}  // namespace sf::diffusion
