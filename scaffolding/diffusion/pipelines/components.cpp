#include "scaffolding/diffusion/pipelines/components.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// Null for a field that is absent or None.
const io::Object* given(const io::Object& config, const char* field) {
  auto* value = config.is_dict() ? config.find(field) : nullptr;
  return value && !value->is(io::Object::None) ? value : nullptr;
}

// A model's forward by the names that it registered.
class NamedForward {
 public:
  explicit NamedForward(models::Model& model) : layer_(*nn::find_layer(model)) {}

  Tensors operator()(models::Model& model, const DenoiserCall& call) const {
    nn::Values values;
    for (auto& info : layer_.forward_args) values.push_back(info.fallback);
    std::vector<bool> given(values.size());
    size_t position = 0;
    for (auto& a : call) {
      const std::optional<ListEntry> entry = list_entry(a.name);
      const size_t i = a.name.empty() ? position++ : place(entry ? entry->list : a.name);
      if (i < given.size()) given[i] = true;
      if (a.tensor && entry) add(values.at(i), entry->index, a.tensor);
      else if (a.tensor) values.at(i) = boxed(i, a.tensor);
    }
    for (size_t i = 0; i < values.size(); ++i)
      SF_CHECK_AS(TypeError, given[i] || layer_.forward_args[i].has_default, layer_.name, ": missing argument '",
                  layer_.forward_args[i].name, "'");
    Value out = model.call(values);
    if (auto* all = std::get_if<Tensors>(&out)) return *all;
    return {std::get<Tensor>(out)};
  }

 private:
  static void add(Value& list, size_t index, const Tensor& tensor) {
    if (!std::holds_alternative<Tensors>(list)) list = Tensors();
    auto& tensors = std::get<Tensors>(list);
    SF_CHECK_AS(RuntimeError, index == tensors.size(), "denoiser: entries of a list must come in their order");
    tensors.push_back(tensor);
  }
  // Flags and lists of integers are told as tensors too.
  Value boxed(size_t i, const Tensor& tensor) const {
    const ArgKind kind = layer_.forward_args[i].kind;
    if (kind == ArgKind::Bool) return tensor.to_vector().at(0) != 0;
    if (kind == ArgKind::Floats) return tensor.to_vector();
    return tensor;
  }
  size_t place(std::string_view name) const {
    name.remove_prefix(name.rfind('.') + 1);  // of a dict in Python the entry
    for (size_t i = 0; i < layer_.forward_args.size(); ++i)
      if (layer_.forward_args[i].name == name) return i;
    fail<TypeError>(layer_.name, ": its forward has no argument '", name, "'");
  }
  const nn::LayerEntry& layer_;
};

class NativeDenoiser final : public ModelComponent<Denoiser, models::Model> {
 public:
  explicit NativeDenoiser(std::shared_ptr<models::Model> model) : ModelComponent(std::move(model)), forward_(*model_) {}
  Tensor predict(const DenoiserCall& call) override { return outputs(call).at(0); }
  Tensors outputs(const DenoiserCall& call) override { return forward_(*model_, call); }

 private:
  NamedForward forward_;
};

class NativeNetwork final : public ModelComponent<Network, models::Model> {
 public:
  explicit NativeNetwork(std::shared_ptr<models::Model> model) : ModelComponent(std::move(model)), forward_(*model_) {}
  Tensors call(const DenoiserCall& call) override { return forward_(*model_, call); }

 private:
  NamedForward forward_;
};

}  // namespace

template <> Ref<Denoiser> component<Denoiser>(const std::string& slot, std::shared_ptr<models::Model> model) {
  const nn::LayerEntry* layer = model ? nn::find_layer(*model) : nullptr;
  auto takes_timestep = [&] {
    return std::any_of(layer->forward_args.begin(), layer->forward_args.end(),
                       [](auto& a) { return a.name == "timestep" || a.name == "t"; });
  };
  if (layer && takes_timestep()) return std::make_shared<NativeDenoiser>(std::move(model));
  detail::no_such_component(slot, Denoiser::kKind, {}, model ? model->type() : nullptr);
}

template <> Ref<Network> component<Network>(const std::string& slot, std::shared_ptr<models::Model> model) {
  if (model && nn::find_layer(*model)) return std::make_shared<NativeNetwork>(std::move(model));
  detail::no_such_component(slot, Network::kKind, {}, model ? model->type() : nullptr);
}

void detail::no_such_component(const std::string& slot, const char* kind, std::vector<std::string> classes,
                               const char* got) {
  SF_CHECK(got, slot, ": is absent");
  std::string wanted;
  for (size_t i = 0; i < classes.size(); ++i)
    wanted += (i == 0 ? "" : i + 1 == classes.size() ? " or " : ", ") + classes[i];
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

void Autoencoder::tell_timestep(const Tensor&) { fail<NotSupported>("vae: is told no timestep when it decodes"); }

int64_t Autoencoder::scale_factor() {
  for (auto* field : {"block_out_channels", "encoder_block_out_channels"})
    if (auto channels = config_list(field); channels && !channels->empty()) return int64_t(1) << (channels->size() - 1);
  return 8;
}

int64_t Autoencoder::frames_per_latent() { return config_int("temporal_compression_ratio", 4); }

Autoencoder::LatentRange Autoencoder::latent_range() {
  auto mean = config_list("latents_mean"), std = config_list("latents_std");
  if (!mean || !std) return {};
  auto channels = [](const std::vector<double>& v) { return tensor(v, {int64_t(v.size())}, kFloat32); };
  return {channels(*mean), channels(*std)};
}

Ref<Denoiser> denoiser(std::shared_ptr<models::Model> model) { return component<Denoiser>("unet", std::move(model)); }
Ref<Autoencoder> autoencoder(std::shared_ptr<models::Model> model) {
  return component<Autoencoder>("vae", std::move(model));
}
Ref<TextEncoder> text_encoder(std::shared_ptr<models::Model> model) {
  return component<TextEncoder>("text_encoder", std::move(model));
}

namespace {
// [C] as [1, C, 1, ...] of the latents' dtype, on their device.
Tensor beside(const Tensor& channels, const Tensor& latents) {
  Shape shape = Shape::filled(latents.ndim(), 1);
  shape[1] = channels.numel();
  return channels.to(latents.device()).to(latents.dtype()).reshape(shape);
}
}  // namespace

Tensor Autoencoder::scaled(const Tensor& latents) {
  const double factor = config_float("scaling_factor", 1), shift = config_float("shift_factor", 0);
  if (const LatentRange r = latent_range(); r.mean)
    return (latents - beside(r.mean, latents)) * factor / beside(r.std, latents);
  return shift != 0 ? (latents - shift) * factor : factor * latents;
}

Tensor Autoencoder::unscaled(const Tensor& latents) {
  const double factor = config_float("scaling_factor", 1), shift = config_float("shift_factor", 0);
  if (const LatentRange r = latent_range(); r.mean)
    return latents * beside(r.std, latents) / factor + beside(r.mean, latents);
  return shift != 0 ? latents / factor + shift : latents / factor;
}

}  // namespace sf::diffusion
