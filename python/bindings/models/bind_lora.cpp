// LoRA as _core._models.read_lora and _core._lora: what a file holds for the modules of a pipeline, and the adapters of
// a model. Called by python/scaffolding/diffusion/pipelines/lora.py.
#include "python/bindings/models/bind_lora.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/io/bind_object.h"
#include "python/bindings/models/model_of.h"
#include "scaffolding/models/adapters/load_lora.h"
#include "scaffolding/models/adapters/save_lora.h"

namespace sf::py {

namespace {

using namespace models;

const char* name_of(LoraKey::Use use) {
  return use == LoraKey::Applied ? "applied" : use == LoraKey::Unused ? "unused" : "wrong_shape";
}

nb::dict dict_of(const LoraLayer& layer) {
  nb::dict out;
  out["module"] = layer.module;
  out["stem"] = layer.stem;
  out["down"] = layer.down;
  out["mid"] = layer.mid.defined() ? nb::cast(layer.mid) : nb::none();
  out["up"] = layer.up;
  out["rank"] = layer.rank;
  out["alpha"] = layer.alpha;
  out["scale"] = layer.scale;
  out["row"] = layer.row;
  return out;
}

Adapters& adapters_of(nb::handle o) { return model_of(o, "lora").adapters(); }

// config: of a dict of tensors, the fields of PEFT's; None: none.
LoraFile open(nb::handle source, nb::handle config = nb::none()) {
  if (nb::isinstance<nb::str>(source)) return LoraFile(nb::cast<std::string>(source));
  if (!PyDict_Check(source.ptr()))
    wrong_argument("load_lora_weights", "the file", "a path or a dict of tensors", source.ptr());
  std::map<std::string, Tensor> tensors;
  for (auto [name, value] : nb::borrow<nb::dict>(source)) {
    Tensor t;
    SF_CHECK_AS(TypeError, nb::isinstance<nb::str>(name) && nb::try_cast(value, t),
                "load_lora_weights: the LoRA must be a path or a dict of tensors by name, got a ",
                type_name(value.ptr()), " in it");
    tensors.emplace(nb::cast<std::string>(name), t);
  }
  std::optional<LoraConfig> said;
  if (!config.is_none()) said = LoraConfig::of_diffusers(from_python(config), "metadata");
  return LoraFile(io::checkpoint_of(std::move(tensors)), "the LoRA", std::move(said));
}

LoraMatch matched(const LoraFile& file, nb::dict components, bool strict) {
  std::vector<AdapterStems> stems;
  for (auto [name, model] : components) {
    models::Model& network = model_of(model, "lora");
    stems.push_back(adapter_stems(network.type(), network.config(), nb::cast<std::string>(name)));
  }
  std::vector<const AdapterStems*> of;
  for (auto& s : stems) of.push_back(&s);
  return file.match(of, strict);
}

nb::dict keys_of(const LoraReport& report) {
  nb::dict keys;
  for (auto& k : report.keys) keys[k.key.c_str()] = nb::make_tuple(name_of(k.use), k.component, k.module, k.why);
  return keys;
}

nb::dict read_lora(nb::handle source, nb::dict components, bool strict) {
  const LoraFile file = open(source);
  const LoraMatch lora = matched(file, components, strict);
  nb::dict layers, out;
  for (auto& [component, list] : lora.layers) {
    nb::list in_python;
    for (auto& layer : list) {
      check_lora_values(layer, file.path());
      in_python.append(dict_of(layer));
    }
    layers[component.c_str()] = in_python;
  }
  out["format"] = file.format();
  out["layers"] = layers;
  out["keys"] = keys_of(lora.report);
  return out;
}

// What became of each key.
nb::dict load(nb::handle source, nb::handle config, nb::dict components, const std::string& name, bool strict,
              bool swap) {
  AdaptedModels models;
  for (auto [component, model] : components)
    models.emplace_back(nb::cast<std::string>(component), &model_of(model, "lora"));
  return keys_of(load_lora(open(source, config), name, models, {strict, swap}));
}
// What would become of each; nothing is loaded.
nb::dict look(nb::handle source, nb::handle config, nb::dict components) {
  return keys_of(matched(open(source, config), components, false).report);
}

nb::dict tensors_of(nb::handle source) {
  const LoraFile file = open(source);
  nb::dict out;
  for (auto& name : file.checkpoint().names()) out[name.c_str()] = file.checkpoint().get(name);
  return out;
}

// [(name, weight of its modules, {module: another weight})]
void set(nb::handle model, nb::list on) {
  std::vector<AdapterWeight> all;
  for (auto row : on) {
    auto [name, weight, others] = nb::cast<std::tuple<std::string, double, std::map<std::string, double>>>(row);
    AdapterWeight w{name, weight};
    if (!others.empty())
      w.of_module = [weight = weight, others = others](const std::string& module) {
        auto found = others.find(module);
        return found == others.end() ? weight : found->second;
      };
    all.push_back(std::move(w));
  }
  adapters_of(model).set(std::move(all));
}

// {name of a trained adapter's parameter: tensor}
nb::dict parameters_of(nb::handle model) {
  nb::dict out;
  if (!model_of(model, "lora").has_adapters()) return out;
  for (auto& [name, t] : adapters_of(model).parameters()) out[name.c_str()] = t;
  return out;
}

// target_modules: names, or a regular expression.
void create(nb::handle model, const std::string& name, nb::dict config) {
  NewLora lora;
  auto to = [&](const char* field, auto& out) { out = nb::cast<std::decay_t<decltype(out)>>(config[field]); };
  to("r", lora.r), to("lora_alpha", lora.lora_alpha), to("lora_dropout", lora.lora_dropout);
  to("exclude_modules", lora.exclude_modules), to("use_rslora", lora.use_rslora);
  to("rank_pattern", lora.rank_pattern), to("alpha_pattern", lora.alpha_pattern);
  if (nb::isinstance<nb::str>(config["target_modules"])) to("target_modules", lora.target_pattern);
  else to("target_modules", lora.target_modules);
  const auto init = nb::cast<std::string>(config["init_lora_weights"]);
  lora.init_lora_weights = init == "gaussian" ? NewLora::Init::Gaussian
                           : init == "random" ? NewLora::Init::Random
                                              : NewLora::Init::Default;
  adapters_of(model).create(name, lora);
}

// By PEFT's names, and the fields of its config.
nb::dict state_of(nb::handle model, const std::string& name) {
  nb::dict out;
  for (auto& [key, t] : lora_state(model_of(model, "lora"), name)) out[key.c_str()] = t;
  return out;
}

}  // namespace

void bind_lora(nb::module_& m) {
  m.def("read_lora", &read_lora, nb::arg("source"), nb::arg("components"), nb::arg("strict") = true);
  nb::module_ lora = m.def_submodule("_lora");
  lora.def("load", &load, nb::arg("source"), nb::arg("config").none(), nb::arg("components"), nb::arg("name"),
           nb::arg("strict"), nb::arg("swap"));
  lora.def("look", &look, nb::arg("source"), nb::arg("config").none(), nb::arg("components"));
  lora.def("tensors", &tensors_of);
  lora.def("names", [](nb::handle model) {
    return model_of(model, "lora").has_adapters() ? adapters_of(model).names() : std::vector<std::string>();
  });
  lora.def("active", [](nb::handle model) {
    return model_of(model, "lora").has_adapters() ? adapters_of(model).active() : std::vector<std::string>();
  });
  lora.def("fused", [](nb::handle model) {
    return model_of(model, "lora").has_adapters() ? adapters_of(model).fused() : std::vector<std::string>();
  });
  lora.def("state", &state_of);
  lora.def("config", [](nb::handle model, const std::string& name) {
    return to_python(lora_peft_config(model_of(model, "lora"), name));
  });
  lora.def("modules", [](nb::handle model, const std::string& name) {
    std::vector<std::string> out;
    for (auto& layer : adapters_of(model).layers(name)) out.push_back(layer.module);
    return out;
  });
  lora.def("create", &create);
  lora.def("train", [](nb::handle model, const std::string& name, bool on) { adapters_of(model).train(name, on); });
  lora.def("trains", [](nb::handle model, const std::string& name) { return adapters_of(model).trains(name); });
  lora.def("parameters", &parameters_of);
  lora.def("set", &set);
  lora.def("enable", [](nb::handle model, bool on) { adapters_of(model).enable(on); });
  lora.def("reserve", [](nb::handle model, int64_t rank) { adapters_of(model).reserve(rank); });
  lora.def("scale", [](nb::handle model, double factor) { adapters_of(model).scale(factor); });
  lora.def("remove", [](nb::handle model, const std::string& name) { adapters_of(model).remove(name); });
  lora.def("refresh", [](nb::handle model) {
    if (model_of(model, "lora").has_adapters()) adapters_of(model).refresh();
  });
  lora.def(
      "fuse",
      [](nb::handle model, double scale, bool safe, const std::optional<std::vector<std::string>>& names) {
        adapters_of(model).fuse(scale, safe, names);
      },
      nb::arg("model"), nb::arg("scale"), nb::arg("safe"), nb::arg("names").none());
  lora.def("unfuse", [](nb::handle model) {
    if (model_of(model, "lora").has_adapters()) adapters_of(model).unfuse();
  });
}

}  // namespace sf::py
