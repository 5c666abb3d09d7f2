#include "scaffolding/nn/quantize.h"

#include <algorithm>
#include <map>
#include <typeinfo>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::nn {

namespace {

constexpr const char* kPlainFormats[] = {"nf4", "fp4", "int8", "float8_e4m3fn", "float8_e5m2"};
bool is_plain_format(const std::string& format) {
  return std::find(std::begin(kPlainFormats), std::end(kPlainFormats), format) != std::end(kPlainFormats);
}

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

// Where a layer with this weight is to be; a model that is being loaded has no memory of its own.
TensorOptions place_of(const Tensor& t, const Tensor& dense) { return {(dense ? dense : t).device(), t.dtype()}; }

std::shared_ptr<Module> made_gguf(Module& layer, const std::string& format, const Tensor& dense, bool dynamic) {
  if (auto* l = exactly<Linear>(layer)) {
    auto made = std::make_shared<LinearGGUF>(l->in_features, l->out_features, false, format, place_of(l->weight, dense),
                                             dense, dynamic);
    made->bias = l->bias;
    return made;
  }
  if (auto* l = exactly<Conv2d>(layer)) return std::make_shared<Conv2dGGUF>(*l, format, dense);
  auto* l = exactly<Embedding>(layer);
  return std::make_shared<EmbeddingGGUF>(l->num_embeddings, l->embedding_dim, format, place_of(l->weight, dense),
                                         dense);
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
                                "*guidance_embedder*",
                                "*time_in.*",
                                "*guidance_in.*",
                                "*vector_in.*",
                                "*img_in*",
                                "*txt_in*",
                                "*context_embedder*",
                                "*final_layer*",
                                "*t_embedder*",
                                "*text_embedder*",
                                "*y_embedder*",
                                "*add_embedding*",
                                "*class_embedding*",
                                "*label_emb*",
                                "*conv_in",
                                "*conv_out",
                                "*conv_in.conv",
                                "*conv_out.conv",
                                "*conv_in.weight",
                                "*conv_out.weight",
                                "*conv_first*",
                                "*conv_last*",
                                "*controlnet_cond_embedding*",
                                "*controlnet_down_blocks*",
                                "*controlnet_mid_block*",
                                "*input_hint_block*",
                                "*zero_convs*",
                                "*x_embedder*",
                                "*cap_embedder*",
                                "*final_layer*",
                                "*final_linear*",
                                "*final_modulation*",
                                "*adaLN_modulation*",
                                "*flow_gamma*",
                                "*flow_beta*",
                                "*input_blocks.0.0*",
                                "*diffusion_model.out.*",
                                "*patch_embed*",
                                "*pos_embed*",
                                "*position_embedding*",
                                "*token_embedding*",
                                "*caption_projection*",
                                "*adaln_single*",
                                "*prompt_adaln*",
                                "*av_cross_attn_*",
                                "*to_gate_logits*",
                                "*norm_out*",
                                "proj_in*",
                                "proj_out*",
                                "transformer.proj_in*",
                                "transformer.proj_out*",
                                "*audio_proj_in*",
                                "*audio_proj_out*",
                                "*patchify_proj*",
                                "*relative_attention_bias*",
                                "shared*",
                                "*embed_tokens*",
                                "first_stage_model.*",
                                "vae.*",
                                "*text_projection*",
                                "*mask_conv*"})
      out.push_back({pattern, ""});
    // What a timestep says to blocks, but for the largest models', of which it is a quarter (FLUX).
    constexpr int64_t kMostModulation = 1 << 24;
    out.push_back({"*norm*.linear*", "", kMostModulation});
    return out;
  }();
  return rules;
}

std::string quantized_format(const std::string& name, int64_t numbers, const std::string& format,
                             const std::vector<QuantizeRule>& rules) {
  std::string out = format;
  for (auto& rule : rules)
    if (numbers <= rule.most && fits(rule.pattern, name)) out = rule.format;
  return out;
}

std::vector<std::string> quantized_formats() {
  std::vector<std::string> all(std::begin(kPlainFormats), std::end(kPlainFormats));
  for (auto& f : gguf_formats())
    if (f.blocks) all.emplace_back(f.name);
  return all;
}

std::string known_quantized_format(const char* who, const std::string& format) {
  for (const char* plain : kPlainFormats)
    if (format == plain) return format;
  const GgufFormat* blocks = find_gguf_format(format);
  if (blocks && blocks->blocks) return std::string(blocks->name);
  std::string all;
  for (auto& known : quantized_formats()) all += known + ", ";
  fail(who, ": format must be one of ", all.substr(0, all.size() - 2), ", got '", format, "'");
}

QuantizeConfig QuantizeConfig::named(const char* who, const std::string& word) {
  QuantizeConfig config;
  std::string name = word;
  for (const char* ending : {"-dynamic", "_dynamic"})
    if (name.size() == word.size() && word.ends_with(ending)) {
      name.resize(word.size() - std::string_view(ending).size());
      config.options.dynamic = true;
    }
  config.format = known_quantized_format(who, name);
  SF_CHECK(!config.options.dynamic || config.format == "int8" || find_gguf_format(config.format), who, ": ",
           config.format, " has no products with int8 activations; leave '-dynamic' out, or take int8-dynamic");
  return config;
}

std::vector<PlannedLayer> plan_quantization(Module& model, const std::string& format, const QuantizeOptions& options) {
  const std::string main = known_quantized_format("quantize_", format);
  std::vector<QuantizeRule> rules = options.rules;
  for (auto& rule : rules)
    if (!rule.format.empty()) rule.format = known_quantized_format("quantize_: a rule", rule.format);
  std::map<const void*, int> users;
  for (auto& p : named_parameters(model, "", true, false)) ++users[p.tensor.impl()];
  std::vector<PlannedLayer> out;
  for (auto& [name, layer, parent] : named_modules(model)) {
    Tensor* weight = weight_of(*layer);
    if (!weight || !*weight || users[weight->impl()] != 1 || layer->present() != layer) continue;
    const std::string wanted = quantized_format(name, weight->numel(), main, rules);
    if (wanted.empty() || (exactly<Conv2d>(*layer) && !options.convolutions)) continue;
    // A table of rows is quantised where a rule says so, not by default: others may read its weight.
    if (exactly<Embedding>(*layer) && wanted == main) continue;
    if (is_plain_format(wanted)) {
      auto* conv = exactly<Conv2d>(*layer);
      const bool as_int8 = conv && wanted == "int8" && options.dynamic && conv->groups == 1 && conv->pads_with_zeros();
      if (exactly<Linear>(*layer) || as_int8) out.push_back({name, layer, wanted, wanted, weight->shape()});
      continue;
    }
    const GgufFormat* fit = fitting_gguf_blocks(gguf_blocks("quantize_", wanted), row_of(*layer, *weight));
    if (fit) out.push_back({name, layer, wanted, std::string(fit->name), weight->shape()});
  }
  return out;
}

Module* quantize_layer(Module& layer, const std::string& format, const Tensor& dense, DType dtype,
                       const QuantizeOptions& o) {
  Tensor* weight = weight_of(layer);
  SF_CHECK(weight && *weight && layer.present() == &layer, "quantize_: a ", layer.type(),
           " has no weight that could be quantised, or something stands in its place");
  SF_CHECK_AS(NotSupported, !layer.adapter(), "quantize_: a ", layer.type(),
              " has LoRAs beside it; quantise the model before they come");
  autograd::NoGrad off;
  if (weight->dtype() != dtype) *weight = parameter(empty(weight->shape(), dtype, Device(Device::Meta)), false);
  if (!is_plain_format(format)) return put(layer, *weight, made_gguf(layer, format, dense, o.dynamic));
  if (auto* conv = exactly<Conv2d>(layer); conv && format == "int8")
    return put(layer, *weight, std::make_shared<Conv2dInt8>(*conv, o.dynamic, dense));
  auto* l = exactly<Linear>(layer);
  SF_CHECK(l, "quantize_: ", format, " is for linear layers, got a ", layer.type());
  const TensorOptions place{dense.device(), dtype};
  auto with_bias = [&](auto made) {
    made->bias = l->bias;
    return put(layer, *weight, std::move(made));
  };
  const int64_t in = l->in_features, out = l->out_features;
  if (format == "nf4")
    return with_bias(std::make_shared<LinearNF4>(in, out, false, o.compress_statistics, place, dense));
  if (format == "fp4")
    return with_bias(std::make_shared<LinearFP4>(in, out, false, o.compress_statistics, place, dense));
  if (format == "int8")
    return with_bias(std::make_shared<LinearInt8>(in, out, false, o.dynamic, kInt8Unit, place, dense));
  const DType stored = format == "float8_e5m2" ? kFloat8E5M2 : kFloat8E4M3;
  return with_bias(std::make_shared<LinearFP8>(in, out, false, o.per_row, o.dynamic, stored, place, dense));
}

std::vector<QuantizedLayer> quantize_(Module& model, const std::string& format, const QuantizeOptions& options) {
  std::vector<QuantizedLayer> out;
  const auto plan = plan_quantization(model, format, options);
  for (auto& p : plan)
    SF_CHECK_AS(NotSupported, !p.layer->adapter(), "quantize_: '", p.name,
                "' has LoRAs beside it; quantise the model before they come");
  for (auto& p : plan) {
    const Tensor dense = *weight_of(*p.layer);
    QuantizedLayer done{p.name, p.layer->type(), p.format, dense.numel(), 0, p.format != p.wanted};
    Module* made = quantize_layer(*p.layer, p.format, dense, dense.dtype(), options);
    for (auto& b : named_buffers(*made)) done.bytes += b.tensor.nbytes();
    out.push_back(std::move(done));
  }
  SF_CHECK(!out.empty(), "quantize_: ", model.type(), " has no layer to replace");
  return out;
}

bool is_quantized(const Module& m) { return dynamic_cast<const StoredWeight*>(&m); }

Tensor dense_weight_of(const Module& m, std::optional<DType> dtype) {
  if (auto* stored = dynamic_cast<const StoredWeight*>(&m)) return stored->dense_weight(dtype.value_or(kFloat32));
  const Tensor* weight = weight_of(const_cast<Module&>(m));
  SF_CHECK(weight && *weight, "dense_weight_of: a ", m.type(), " is no layer that can be quantised");
  return dtype ? to_dtype(weight->detach(), *dtype) : weight->detach();
}

std::string format_of(const Module& m) {
  auto* stored = dynamic_cast<const StoredWeight*>(&m);
  return stored ? stored->weight_format() : "";
}

Module* put_gguf(Module& layer, const std::string& format, const Tensor& bytes, DType dtype, bool dynamic) {
  Tensor* weight = weight_of(layer);
  if (!weight || !*weight || layer.present() != &layer) return nullptr;
  const GgufFormat& f = gguf_blocks("put_gguf", format);
  const int64_t row = row_of(layer, *weight);
  if (row == 0 || row % f.block != 0 || bytes.numel() != weight->numel() / f.block * f.bytes) return nullptr;
  if (weight->dtype() != dtype) *weight = parameter(empty(weight->shape(), dtype, Device(Device::Meta)), false);
  Module* there = put(layer, *weight, made_gguf(layer, format, {}, dynamic));
  const Tensor rows = bytes.view({bytes.numel() / (row / f.block * f.bytes), row / f.block * f.bytes});
  if (auto* conv = dynamic_cast<Conv2dGGUF*>(there)) conv->blocks = Buffer(rows);
  else if (auto* linear = dynamic_cast<LinearGGUF*>(there)) linear->weight = Buffer(rows);
  else static_cast<EmbeddingGGUF*>(there)->weight = Buffer(rows);
  return there;
}

Module* put_stored_layer(Module& layer, std::shared_ptr<Module> made, DType dtype) {
  Tensor* weight = weight_of(layer);
  SF_CHECK(weight && *weight && layer.present() == &layer, "put_stored_layer: a ", layer.type(),
           " has no weight, or something stands in its place already");
  if (weight->dtype() != dtype) *weight = parameter(empty({0}, dtype, Device(Device::Meta)), false);
  return put(layer, *weight, std::move(made));
}

Module* put_scaled(Module& layer, const Tensor& codes, const Tensor& scale, DType dtype, bool dynamic) {
  auto* l = exactly<Linear>(layer);
  if (!l || !l->weight || layer.present() != &layer || codes.shape() != l->weight.shape()) return nullptr;
  const int64_t out = l->out_features, in = l->in_features;
  SF_CHECK(scale.numel() == 1 || scale.numel() == out, "put_scaled: scale must have one element, or ", out, ", got ",
           scale.shape());
  if (l->weight.dtype() != dtype) l->weight = parameter(empty(l->weight.shape(), dtype, Device(Device::Meta)), false);
  const TensorOptions nowhere{Device(Device::Meta), dtype};
  if (codes.dtype() == kInt8) {
    auto made = std::make_shared<LinearInt8>(in, out, false, dynamic, 1.0, nowhere);
    made->bias = l->bias, made->weight = Buffer(codes);
    made->SCB = Buffer(scale.numel() == out ? scale.reshape({out}) : scale.reshape({1}).expand({out}).contiguous());
    return put(layer, l->weight, std::move(made));
  }
  if (!is_float8(codes.dtype())) return nullptr;
  auto made = std::make_shared<LinearFP8>(in, out, false, scale.numel() > 1, dynamic, codes.dtype(), nowhere);
  made->bias = l->bias, made->weight = Buffer(codes);
  made->scale = Buffer(scale.numel() > 1 ? scale.reshape({out, 1}) : scale.reshape({}));
  return put(layer, l->weight, std::move(made));
}

}  // namespace sf::nn
