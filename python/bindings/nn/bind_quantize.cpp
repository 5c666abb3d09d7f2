// The rules of nn.quantize_, which Python's and C++'s share.
#include "python/bindings/nn/bind_quantize.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf::py {

void bind_quantize(nb::module_& m) {
  m.def("_gguf_blocks", [] {
    std::vector<std::string> names;
    for (auto& f : gguf_formats())
      if (f.blocks) names.emplace_back(f.name);
    return names;
  });
  // The format of a layer's weight by its name and how many numbers it has, after the rules that all models have; ""
  // where it stays wide.
  m.def("_quantized_format", [](const std::string& name, int64_t numbers, const std::string& format,
                                const std::vector<std::pair<std::string, std::string>>& own) {
    std::vector<nn::QuantizeRule> rules = nn::wide_by_default();
    for (auto& [pattern, f] : own) rules.push_back({pattern, f.empty() ? f : nn::known_quantized_format("rules", f)});
    return nn::quantized_format(name, numbers, format, rules);
  });
  // What from_pretrained quantises to. defaults: the rules that all models have come before the own ones.
  nb::class_<nn::QuantizeConfig>(m, "_QuantizeConfig")
      .def(
          "__init__",
          [](nn::QuantizeConfig* self, const std::string& format,
             const std::vector<std::pair<std::string, std::string>>& own, bool defaults, bool convolutions,
             bool compress_statistics, bool per_row, bool dynamic) {
            nn::QuantizeOptions o;
            if (!defaults) o.rules.clear();
            for (auto& [pattern, f] : own)
              o.rules.push_back({pattern, f.empty() ? f : nn::known_quantized_format("quantization_config", f)});
            o.convolutions = convolutions, o.compress_statistics = compress_statistics;
            o.per_row = per_row, o.dynamic = dynamic;
            new (self) nn::QuantizeConfig{nn::known_quantized_format("quantization_config", format), std::move(o)};
          },
          nb::arg("format"), nb::arg("rules") = std::vector<std::pair<std::string, std::string>>(),
          nb::arg("defaults") = true, nb::arg("convolutions") = true, nb::arg("compress_statistics") = true,
          nb::arg("per_row") = true, nb::arg("dynamic") = false);
  // The format for rows of so many numbers, or None.
  m.def("_fitting_gguf_blocks", [](const std::string& format, int64_t row) -> std::optional<std::string> {
    const GgufFormat* fit = fitting_gguf_blocks(gguf_blocks("quantize_", format), row);
    return fit ? std::optional(std::string(fit->name)) : std::nullopt;
  });
}

}  // namespace sf::py
