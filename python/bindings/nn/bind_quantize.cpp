// The rules of nn.quantize_, which Python's and C++'s share.
#include "python/bindings/nn/bind_quantize.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
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
  // The format of a layer's weight by its name, after the rules that all models have; "" where it stays wide.
  m.def("_quantized_format", [](const std::string& name, const std::string& format,
                                const std::vector<std::pair<std::string, std::string>>& own) {
    std::vector<nn::QuantizeRule> rules = nn::wide_by_default();
    for (auto& [pattern, f] : own)
      rules.push_back({pattern, f.empty() ? f : std::string(gguf_blocks("rules", f).name)});
    return nn::quantized_format(name, format, rules);
  });
  // The format for rows of so many numbers, or None.
  m.def("_fitting_gguf_blocks", [](const std::string& format, int64_t row) -> std::optional<std::string> {
    const GgufFormat* fit = fitting_gguf_blocks(gguf_blocks("quantize_", format), row);
    return fit ? std::optional(std::string(fit->name)) : std::nullopt;
  });
}

}  // namespace sf::py
