// Models: modules that are made from a config and live in folders. Their classes are layers (bind_nn_layer.cpp); what
// is here is called by python/scaffolding/models/modeling.py.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/io/bind_object.h"
#include "python/bindings/models/bind_autoencoders.h"
#include "python/bindings/models/bind_lora.h"
#include "python/bindings/models/model_of.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/models/controlnets/controlnet.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/names/name_rules.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/free_u.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/parts/seamless.h"
#include "scaffolding/models/parts/video_positions.h"
#include "scaffolding/models/single_file/single_model.h"
#include "scaffolding/models/upscalers/upscale.h"
#include "scaffolding/models/upscalers/upscaler_file.h"
#include "scaffolding/nn/quantize.h"

namespace sf::py {

namespace {

const models::ModelEntry& entry_of(const std::string& class_name) {
  auto* entry = models::find_model(class_name);
  SF_CHECK(entry, "model: there is no class ", class_name);
  return *entry;
}

std::optional<DType> optional_dtype(nb::handle o) {
  std::optional<DType> dtype;
  if (!o.is_none() && !to_dtype(o.ptr(), dtype.emplace()))
    wrong_argument("from_pretrained", "torch_dtype", "a dtype", o.ptr());
  return dtype;
}

void load(nb::handle self, const std::string& class_name, const std::string& folder, const std::string& subfolder,
          const std::string& variant, nb::handle dtype, std::optional<bool> use_safetensors, nb::handle device,
          nb::handle config, nb::dict overrides, std::shared_ptr<nn::QuantizeConfig> quantize) {
  models::LoadModelOptions options;
  options.quantize = std::move(quantize);
  options.subfolder = subfolder;
  options.variant = variant;
  options.dtype = optional_dtype(dtype);
  options.use_safetensors = use_safetensors;
  if (!device.is_none() && !to_device(device.ptr(), options.device))
    wrong_argument("from_pretrained", "device", "a device", device.ptr());
  if (!config.is_none()) options.config = from_python(config);
  options.overrides = from_python(overrides);
  adopt(reinterpret_cast<PyModule*>(self.ptr()), models::load_model(folder, options, class_name), true);
}

void load_alone(nb::handle self, const std::string& class_name, const std::string& path, nb::dict config,
                nb::handle dtype, nb::handle device, bool keep_blocks, std::shared_ptr<nn::QuantizeConfig> quantize) {
  models::LoadModelOptions options;
  options.keep_blocks = keep_blocks;
  options.quantize = std::move(quantize);
  options.dtype = optional_dtype(dtype);
  if (!device.is_none() && !to_device(device.ptr(), options.device))
    wrong_argument("from_single_file", "device", "a device", device.ptr());
  adopt(reinterpret_cast<PyModule*>(self.ptr()),
        models::load_single_model(path, class_name, from_python(config), options), true);
}

models::UpscaleOptions upscale_options(int64_t tile, int64_t overlap, nb::handle progress) {
  models::UpscaleOptions options{tile, overlap, {}};
  if (!progress.is_none()) options.progress = [progress](int64_t done, int64_t tiles) { progress(done, tiles); };
  return options;
}

// The class of the model in a file of ESRGAN or Real-ESRGAN; "" for others.
std::string upscaler_class(const std::string& path) {
  const auto kind = models::recognise_upscaler(io::open_checkpoint(path)->entries());
  return kind ? kind->class_name : "";
}

}  // namespace

void bind_models(nb::module_& core) {
  nb::module_ m = core.def_submodule("_models");
  bind_autoencoders(m);
  bind_lora(m);
  m.def("names", [] {
    std::vector<std::string> names;
    for (auto& entry : models::all_models()) names.push_back(entry.name);
    return names;
  });
  m.def("field_names", [](const std::string& class_name) { return entry_of(class_name).field_names(); });
  // {field: default}. Of a class that has no model of all defaults, what the others are is not known: ValueError.
  m.def("defaults", [](const std::string& class_name) {
    DefaultDevice nowhere(Device(Device::Meta));
    return to_python(entry_of(class_name).make(io::Object::container(io::Object::Dict))->config());
  });
  m.def(
      "make",
      [](nb::handle self, const std::string& class_name, nb::dict config, bool empty) {
        std::optional<DefaultDevice> nowhere;  // for a model whose values come later
        if (empty) nowhere.emplace(Device(Device::Meta));
        adopt(reinterpret_cast<PyModule*>(self.ptr()), entry_of(class_name).make(from_python(config)), true);
      },
      nb::arg("self"), nb::arg("class_name"), nb::arg("config"), nb::arg("empty") = false);
  m.def("load", &load, nb::arg("self"), nb::arg("class_name"), nb::arg("folder"), nb::arg("subfolder"),
        nb::arg("variant"), nb::arg("dtype").none(), nb::arg("use_safetensors").none(), nb::arg("device").none(),
        nb::arg("config").none(), nb::arg("overrides"), nb::arg("quantize").none() = nb::none());
  m.def("load_alone", &load_alone, nb::arg("self"), nb::arg("class_name"), nb::arg("path"), nb::arg("config"),
        nb::arg("dtype").none(), nb::arg("device").none(), nb::arg("keep_blocks") = false,
        nb::arg("quantize").none() = nb::none());
  m.def("layouts", &models::layouts_of);
  m.def("tells_config", [](const std::string& class_name) { return bool(entry_of(class_name).config_of_weights); });
  m.def("config_of_shapes", [](const std::string& class_name, nb::dict shapes) {
    std::vector<io::CheckpointEntry> entries;
    for (auto [name, shape] : shapes) entries.push_back({nb::cast<std::string>(name), "F32", nb::cast<Shape>(shape)});
    return to_python(entry_of(class_name).config_of_weights(entries));
  });
  m.def("upscaler_class", &upscaler_class);
  m.def(
      "upscale_tensor",
      [](nb::handle self, const Tensor& x, int64_t tile, int64_t overlap, nb::handle progress) {
        return models::upscale_tensor(model_of(self), x, upscale_options(tile, overlap, progress));
      },
      nb::arg("model"), nb::arg("x"), nb::arg("tile"), nb::arg("overlap"), nb::arg("progress").none());
  m.def(
      "upscale_picture",
      [](nb::handle self, const Tensor& x, int64_t tile, int64_t overlap, nb::handle progress) {
        return models::upscale_picture(model_of(self), x, upscale_options(tile, overlap, progress));
      },
      nb::arg("model"), nb::arg("x"), nb::arg("tile"), nb::arg("overlap"), nb::arg("progress").none());
  m.def("save", [](nb::handle self, const std::string& folder, const std::string& variant, bool safe_serialization,
                   uint64_t max_shard_size) {
    models::save_model(model_of(self), folder, {variant, safe_serialization, max_shard_size});
  });
  m.def("weights_stem", [](nb::handle self) { return std::string(model_of(self).weights_stem()); });
  m.def("current_key", [](nb::handle self, const std::string& key) { return model_of(self).current_key(key); });
  m.def(
      "find_weights",
      [](nb::handle self, const std::string& folder, const std::string& subfolder, const std::string& variant,
         std::optional<bool> use_safetensors) {
        models::LoadModelOptions options;
        options.subfolder = subfolder, options.variant = variant, options.use_safetensors = use_safetensors;
        return models::find_weights(folder, model_of(self).weights_stem(), options);
      },
      nb::arg("self"), nb::arg("folder"), nb::arg("subfolder"), nb::arg("variant"), nb::arg("use_safetensors").none());
  m.def("load_config", [](const std::string& folder, const std::string& subfolder) {
    return to_python(models::load_model_config(folder, subfolder));
  });
  m.def("config", [](nb::handle self) { return to_python(model_of(self).config()); });
  m.def("unknown", [](nb::handle self) { return to_python(model_of(self).config_rest().unknown); });
  m.def("config_json", [](nb::handle self) { return io::format_config(model_of(self).saved_config()); });
  m.def("enable_gradient_checkpointing",
        [](nb::handle self, bool on) { model_of(self).enable_gradient_checkpointing(on); });
  m.def("is_gradient_checkpointing", [](nb::handle self) { return model_of(self).is_gradient_checkpointing(); });
  m.def("pack_projections", [](nb::handle self) { models::pack_projections(model_of(self)); });
  m.def("set_seamless", [](nb::handle self, const std::string& axes) {
    models::set_seamless(module_of(self, "model"), models::seamless_axes(axes));
  });
  m.def("set_free_u", [](nb::handle self, double s1, double s2, double b1, double b2) {
    models::set_free_u(module_of(self, "model"), models::FreeU{s1, s2, b1, b2});
  });
  m.def("unset_free_u", [](nb::handle self) { models::set_free_u(module_of(self, "model"), {}); });
  m.def("controlnet_config", [](nb::handle unet) {
    auto* model = dynamic_cast<models::UNet2DConditionModel*>(&module_of(unet, "unet"));
    if (!model) wrong_argument("ControlNetModel.from_unet", "unet", "a UNet2DConditionModel", unet.ptr());
    return to_python(io::write_fields(models::ControlNetModel::config_beside(model->options).fields()));
  });
  m.def("timestep_embedding", [](const Tensor& timesteps, int64_t embedding_dim, bool flip_sin_to_cos,
                                 double downscale_freq_shift, double scale, int64_t max_period) {
    return models::timestep_embedding(timesteps, embedding_dim,
                                      {flip_sin_to_cos, downscale_freq_shift, scale, max_period});
  });
  m.def("sincos_positions_3d", [](int64_t embed_dim, int64_t frames, int64_t height, int64_t width,
                                  double spatial_scale, double temporal_scale) {
    return models::sincos_positions_3d(embed_dim, {frames, height, width}, spatial_scale, temporal_scale);
  });
  m.def(
      "rotary_positions_3d",
      [](int64_t embed_dim, int64_t frames, int64_t height, int64_t width,
         const std::optional<std::array<double, 4>>& crop, double theta) {
        return models::rotary_positions_3d(embed_dim, {{frames, height, width}, crop, theta});
      },
      nb::arg("embed_dim"), nb::arg("frames"), nb::arg("height"), nb::arg("width"), nb::arg("crop").none(),
      nb::arg("theta"));
  m.def("dtype", [](nb::handle self) { return steal(to_object(Value(model_of(self).dtype()))); });
  m.def("device", [](nb::handle self) { return steal(to_object(Value(model_of(self).device()))); });
}

}  // namespace sf::py
