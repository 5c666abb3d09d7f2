// Checkpoints in one file, as _core._SingleFile, and the way back: what from_single_file is made of.
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/io/bind_hub.h"
#include "python/bindings/io/bind_object.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/models/single_file/single_file.h"
#include "scaffolding/nn/quantize.h"

namespace sf::py {

namespace {

using namespace models;

std::map<std::string, io::Object> configs_of(nb::dict dict) {
  std::map<std::string, io::Object> out;
  for (auto [name, config] : dict) out[nb::cast<std::string>(name)] = from_python(config);
  return out;
}

nb::list rows_of(const NameTable& table) {
  nb::list out;
  for (auto& t : table.tensors())
    out.append(nb::make_tuple(t.name, table.first_source(t).name, nb::steal(wrap_size(t.shape))));
  return out;
}

}  // namespace

void bind_single_file(nb::module_& m) {
  nb::class_<SingleFile>(m, "_SingleFile")
      .def(
          "__init__",
          [](SingleFile* self, const std::string& path, nb::dict configs, const std::string& prediction_type,
             const std::vector<std::string>& parts, bool extract_ema, const std::string& class_name) {
            SingleFileOptions options{configs_of(configs), prediction_type, parts, extract_ema, class_name};
            nb::gil_scoped_release released;
            new (self) SingleFile(path, options);
          },
          nb::arg("path"), nb::arg("configs") = nb::dict(), nb::arg("prediction_type") = "",
          nb::arg("parts") = std::vector<std::string>(), nb::arg("extract_ema") = false, nb::arg("class_name") = "")
      .def_static("is_alone", &SingleFile::is_alone, nb::arg("path"), nb::arg("class_name"))
      .def_prop_ro("kind", [](const SingleFile& f) { return f.kind().name; })
      .def("model_index", [](const SingleFile& f) { return to_python(f.model_index()); })
      .def("parts",
           [](const SingleFile& f) {
             nb::dict out;
             for (auto& p : f.parts())
               out[p.name.c_str()] = nb::make_tuple(p.library, p.class_name, to_python(p.config));
             return out;
           })
      .def("rows", [](const SingleFile& f, const std::string& part) { return rows_of(f.names(part)); })
      .def("tensor", &SingleFile::tensor, nb::arg("part"), nb::arg("name"))
      .def("unused", &SingleFile::unused)
      .def(
          "load",
          [](const SingleFile& f, nb::handle self, const std::string& part, nb::handle dtype, nb::handle device,
             nb::dict overrides, bool keep_blocks, std::shared_ptr<nn::QuantizeConfig> quantize) {
            LoadModelOptions options;
            options.quantize = std::move(quantize);
            options.keep_blocks = keep_blocks;
            if (!dtype.is_none() && !to_dtype(dtype.ptr(), options.dtype.emplace()))
              wrong_argument("from_single_file", "torch_dtype", "a dtype", dtype.ptr());
            if (!device.is_none() && !to_device(device.ptr(), options.device))
              wrong_argument("from_single_file", "device", "a device", device.ptr());
            options.overrides = from_python(overrides);
            adopt(reinterpret_cast<PyModule*>(self.ptr()), f.load(part, options), true);
          },
          nb::arg("self"), nb::arg("part"), nb::arg("dtype").none(), nb::arg("device").none(), nb::arg("overrides"),
          nb::arg("keep_blocks") = false, nb::arg("quantize").none() = nb::none());
  m.def("_single_file_kinds", [] {
    nb::dict out;
    for (auto& k : single_file_kinds()) {
      nb::dict parts;
      for (auto& p : k.parts) parts[p.name.c_str()] = nb::make_tuple(p.library, p.class_name, to_python(p.config));
      out[k.name.c_str()] = nb::make_tuple(k.title, k.repository, parts);
    }
    return out;
  });
  m.def("_single_file_rows", [](const std::string& kind, const std::string& part, nb::dict config) {
    for (auto& p : single_file_kind(kind).parts)
      if (p.name == part && !p.places.empty())
        return rows_of(single_file_names(p, config.empty() ? p.config : from_python(config)));
    fail("single file: ", kind, " has no part '", part, "' with tensors");
  });
  m.def("_to_single_file",
        [](const std::string& kind, const std::map<std::string, std::map<std::string, Tensor>>& parts,
           nb::dict configs) { return to_single_file(kind, parts, configs_of(configs)); });
}

}  // namespace sf::py
