// Model: a module with a config, by which it is made, saved and found again. Classes, config fields and state-dict keys
// are diffusers' and transformers'.
//
//   struct AutoencoderTinyConfig {
//     int64_t in_channels = 3;
//     io::Fields fields() { return {{"in_channels", &in_channels}, ...}; }
//   };
//   struct AutoencoderTiny : ConfiguredModel<AutoencoderTinyConfig> {
//     static constexpr const char* kName = "AutoencoderTiny";
//     explicit AutoencoderTiny(Config config = {});
//     SF_MODULE(AutoencoderTiny, encoder, decoder)
//     Tensor forward(const Tensor& sample) const;
//   };
//   SF_MODEL(AutoencoderTiny).forward<&AutoencoderTiny::forward>("sample").doc("...");     // in the .cpp
//
// A model's constructor makes its tensors on default_device() in float32: under DefaultDevice(Device::Meta)
// it costs nothing.
#pragma once
#include "scaffolding/io/config.h"
#include "scaffolding/nn/layer.h"

namespace sf::io {
struct CheckpointEntry;
}

namespace sf::models {

class Adapters;

// A part whose forward is computed again in the backward pass when its model's enable_gradient_checkpointing()
// was called.
struct CheckpointedModule : nn::Module {
  bool gradient_checkpointing = false;

 protected:
  // forward(inputs), checkpointed where that is on and gradients are recorded.
  Tensors run(const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs) const;
};

class Model : public nn::Module {
 public:
  Model();
  Model(const Model& o);  // its adapters stay with o
  ~Model() override;
  virtual io::Fields fields() = 0;  // of the config
  // or "transformers": whose files and model_index.json rows it has
  virtual const char* library() const { return "diffusers"; }
  virtual const char* model_type() const { return ""; }  // in configs of transformers
  virtual const char* config_file() const { return "config.json"; }
  const char* weights_stem() const;  // "diffusion_pytorch_model" or "model"

  // The state-dict key of a tensor in a file: what older files call otherwise, and "" for what is not used.
  virtual std::string current_key(const std::string& file_key) const { return file_key; }

  io::Object config();        // every field, and what a config had besides
  io::Object saved_config();  // as config.json
  const io::ConfigRest& config_rest() const { return rest_; }
  void set_config_rest(io::ConfigRest rest);

  // NotSupported for a model without parts that can.
  void enable_gradient_checkpointing(bool on = true);
  bool is_gradient_checkpointing();
  DType dtype();         // that it computes in: of the first floating parameter, or what weights are cast to in calls
  Device device();       // where it computes: of the first parameter, or of its streamer
  Adapters& adapters();  // made at the first call; adapters/adapters.h
  bool has_adapters() const { return bool(adapters_); }

 private:
  io::ConfigRest rest_;
  std::unique_ptr<Adapters> adapters_;
};

template <class C> struct ConfiguredModel : Model {
  using Config = C;
  Config options;  // the config, as the model was made
  explicit ConfiguredModel(Config config) : options(std::move(config)) {}
  io::Fields fields() override { return options.fields(); }
};

// A config from a stranger must not fill the memory: the number of a model's equal layers is at most this.
inline constexpr int64_t kMostLayers = 1000;
inline constexpr int64_t kMostChannels = 1 << 20;  // and the product of two sizes fits 64 bits

struct ModelEntry {
  std::string name;
  nn::LayerEntry* layer;
  std::unique_ptr<Model> (*make)(const io::Object& config);  // TypeError and ValueError naming the class and the field
  std::vector<std::string> (*field_names)();
  io::Object (*flat_config)(const io::Object& config) = nullptr;  // the model's part of a config that nests it
  // A config from the names and shapes of a file's tensors. Null where a model cannot tell.
  io::Object (*config_of_weights)(const std::vector<io::CheckpointEntry>& tensors) = nullptr;
};
const std::vector<ModelEntry>& all_models();  // sorted by name
const ModelEntry* find_model(std::string_view class_name);

// A model by its class name. ValueError naming the closest classes there are.
std::unique_ptr<Model> make_model(const std::string& class_name, const io::Object& config);

namespace detail {
nn::LayerEntry& add_model(nn::LayerEntry& layer, ModelEntry entry);

template <class M> nn::LayerEntry& register_model(const char* name) {
  ModelEntry entry{name, nullptr,
                   [](const io::Object& dict) -> std::unique_ptr<Model> {
                     typename M::Config config;
                     io::ConfigRest rest;
                     if constexpr (requires { &M::flat_config; })
                       rest = io::read_fields(M::kName, config.fields(), M::flat_config(dict));
                     else rest = io::read_fields(M::kName, config.fields(), dict);
                     auto model = std::make_unique<M>(std::move(config));
                     model->set_config_rest(std::move(rest));
                     return model;
                   },
                   [] {
                     typename M::Config config;
                     std::vector<std::string> names;
                     for (auto& f : config.fields()) names.push_back(f.name);
                     return names;
                   }};
  if constexpr (requires { &M::flat_config; }) entry.flat_config = &M::flat_config;
  if constexpr (requires { &M::config_of_weights; }) entry.config_of_weights = &M::config_of_weights;
  return add_model(nn::detail::register_layer<M>(name, "", [] { return std::make_unique<M>(); }), std::move(entry));
}
}  // namespace detail

#define SF_MODEL(Type) \
  static const ::sf::nn::LayerEntry& SF_CAT(sf_model_, __COUNTER__) = ::sf::models::detail::register_model<Type>(#Type)

}  // namespace sf::models
