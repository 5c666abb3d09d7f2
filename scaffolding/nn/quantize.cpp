#include "scaffolding/nn/quantize.h"

#include <map>
#include <typeinfo>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::nn {

namespace {

bool fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = pattern.npos, from = 0;
  while (n < name.size())
    if (p < pattern.size() && pattern[p] == '*') star = p++, from = n;
    else if (p < pattern.size() && pattern[p] == name[n]) ++p, ++n;
    else if (star != pattern.npos) p = star + 1, n = ++from;
    else return false;
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

template <class T> T* exactly(Module& m) { return typeid(m) == typeid(T) ? static_cast<T*>(&m) : nullptr; }

Tensor* weight_of(Module& m) {
  if (auto* l = exactly<Linear>(m)) return &l->weight;
  if (auto* l = exactly<Conv2d>(m)) return &l->weight;
  if (auto* l = exactly<Embedding>(m)) return &l->weight;
  return nullptr;
}

// In the place of the layer, which gives its weight up and keeps its dtype for those who ask for it.
Module* put(Module& layer, Tensor& weight, std::shared_ptr<Module> quantised) {
  quantised->training = layer.training;
  weight = parameter(empty({0}, weight.dtype(), weight.device()), false);
  Module* there = quantised.get();
  layer.replace_by([quantised] { return quantised.get(); });
  return there;
}

TensorOptions place_of(const Tensor& t) { return {t.device(), t.dtype()}; }

std::shared_ptr<Module> made_gguf(Module& layer, const std::string& format, const Tensor& dense) {
  if (auto* l = exactly<Linear>(layer)) {
    auto made =
        std::make_shared<LinearGGUF>(l->in_features, l->out_features, false, format, place_of(l->weight), dense);
    made->bias = l->bias;
    return made;
  }
  if (auto* l = exactly<Conv2d>(layer)) return std::make_shared<Conv2dGGUF>(*l, format, dense);
  auto* l = exactly<Embedding>(layer);
  return std::make_shared<EmbeddingGGUF>(l->num_embeddings, l->embedding_dim, format, place_of(l->weight), dense);
}

// Numbers that blocks must divide: a convolution's are one row.
int64_t row_of(Module& layer, const Tensor& weight) {
  return exactly<Conv2d>(layer) ? weight.numel() : weight.ndim() == 2 ? weight.size(1) : 0;
}

}  // namespace

const std::vector<QuantizeRule>& wide_by_default() {
  static const std::vector<QuantizeRule> rules = [] {
    std::vector<QuantizeRule> out;
    for (const char* pattern : {"*time_embedding*",
                                "*time_embed.*",
                                "*time_proj*",
                                "*timestep_embedder*",
                                "*add_embedding*",
                                "*class_embedding*",
                                "*label_emb*",
                                "*conv_in",
                                "*conv_out",
                                "*conv_in.weight",
                                "*conv_out.weight",
                                "*input_blocks.0.0*",
                                "*diffusion_model.out.*",
                                "*patch_embed*",
                                "*pos_embed*",
                                "*position_embedding*",
                                "*token_embedding*",
                                "*caption_projection*",
                                "*adaln_single*",
                                "*norm*.linear*",
                                "*norm_out*",
                                "proj_out*",
                                "transformer.proj_out*",
                                "*relative_attention_bias*",
                                "shared*",
                                "*embed_tokens*",
                                "first_stage_model.*",
                                "vae.*",
                                "*text_projection*",
                                "*mask_conv*"})
      out.push_back({pattern, ""});
    return out;
  }();
  return rules;
}

std::string quantized_format(const std::string& name, const std::string& format,
                             const std::vector<QuantizeRule>& rules) {
  std::string out = format;
  for (auto& rule : rules)
    if (fits(rule.pattern, name)) out = rule.format;
  return out;
}

std::vector<QuantizedLayer> quantize_(Module& model, const std::string& format, const QuantizeOptions& options) {
  const bool nf4 = format == "nf4", float8 = format == "float8_e4m3fn" || format == "float8_e5m2";
  if (!nf4 && !float8) gguf_blocks("quantize_", format);
  for (auto& rule : options.rules)
    if (!rule.format.empty() && rule.format != format) gguf_blocks("quantize_: a rule", rule.format);
  autograd::NoGrad off;
  std::map<const void*, int> users;
  for (auto& p : named_parameters(model, "", true, false)) ++users[p.tensor.impl()];
  std::vector<QuantizedLayer> out;
  for (auto& [name, layer, parent] : named_modules(model)) {
    Tensor* weight = weight_of(*layer);
    if (!weight || !*weight || users[weight->impl()] != 1 || layer->present() != layer) continue;
    const std::string wanted = quantized_format(name, format, options.rules);
    if (wanted.empty() || (exactly<Conv2d>(*layer) && !options.convolutions)) continue;
    // A table of rows is quantised where a rule says so, not by default: others may read its weight.
    if (exactly<Embedding>(*layer) && wanted == format) continue;
    QuantizedLayer done{name, layer->type(), wanted, weight->numel()};
    SF_CHECK_AS(NotSupported, !layer->adapter(), "quantize_: '", name,
                "' has LoRAs beside it; quantise the model before they come");
    if (wanted == format && (nf4 || float8)) {
      auto* l = exactly<Linear>(*layer);
      if (!l) continue;
      std::shared_ptr<Module> made;
      if (nf4) {
        auto m = std::make_shared<LinearNF4>(l->in_features, l->out_features, false, true, place_of(*weight), *weight);
        m->bias = l->bias, made = m;
      } else {
        auto m = std::make_shared<LinearFP8>(l->in_features, l->out_features, false, true, false,
                                             format == "float8_e5m2" ? kFloat8E5M2 : kFloat8E4M3, place_of(*weight),
                                             *weight);
        m->bias = l->bias, made = m;
      }
      for (auto& b : named_buffers(*made)) done.bytes += b.tensor.nbytes();
      put(*layer, *weight, std::move(made));
    } else {
      const GgufFormat& named = gguf_blocks("quantize_", wanted);
      const GgufFormat* fit = fitting_gguf_blocks(named, row_of(*layer, *weight));
      if (!fit) continue;
      done.format = fit->name, done.fell_back = fit != &named;
      done.bytes = weight->numel() / fit->block * fit->bytes;
      put(*layer, *weight, made_gguf(*layer, done.format, *weight));
    }
    out.push_back(std::move(done));
  }
  SF_CHECK(!out.empty(), "quantize_: ", model.type(), " has no layer to replace");
  return out;
}

bool is_quantized(const Module& m) {
  return dynamic_cast<const LinearGGUF*>(&m) || dynamic_cast<const Conv2dGGUF*>(&m) ||
         dynamic_cast<const EmbeddingGGUF*>(&m) || dynamic_cast<const LinearNF4*>(&m) ||
         dynamic_cast<const LinearFP8*>(&m);
}

Module* put_gguf(Module& layer, const std::string& format, const Tensor& bytes, DType dtype) {
  Tensor* weight = weight_of(layer);
  if (!weight || !*weight || layer.present() != &layer) return nullptr;
  const GgufFormat& f = gguf_blocks("put_gguf", format);
  const int64_t row = row_of(layer, *weight);
  if (row == 0 || row % f.block != 0 || bytes.numel() != weight->numel() / f.block * f.bytes) return nullptr;
  if (weight->dtype() != dtype) *weight = parameter(empty(weight->shape(), dtype, Device(Device::Meta)), false);
  Module* there = put(layer, *weight, made_gguf(layer, format, {}));
  const Tensor rows = bytes.view({bytes.numel() / (row / f.block * f.bytes), row / f.block * f.bytes});
  if (auto* conv = dynamic_cast<Conv2dGGUF*>(there)) conv->blocks = Buffer(rows);
  else if (auto* linear = dynamic_cast<LinearGGUF*>(there)) linear->weight = Buffer(rows);
  else static_cast<EmbeddingGGUF*>(there)->weight = Buffer(rows);
  return there;
}

}  // namespace sf::nn
