#include "scaffolding/models/parts/projections.h"

#include <algorithm>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/context_cache.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/stored_product.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

using Kind = Projection::Kind;

bool is_plain(const nn::Module& layer) { return !nn::is_looked_at(layer); }
bool is_plain(const nn::Conv2d& conv) { return !nn::is_looked_at(conv) && conv.pads_with_zeros(); }
bool drops(const nn::Dropout& dropout) { return !is_plain(dropout) || (dropout.training && dropout.p.to_double() > 0); }

std::shared_ptr<const LoraPath> lora_of(const nn::Module& layer) {
  return std::dynamic_pointer_cast<const LoraPath>(layer.adapter());
}
bool is_plain_beside_lora(const nn::Conv2d& conv) {
  if (!conv.pads_with_zeros()) return false;
  return is_plain(conv) || (conv.present() == &conv && !nn::is_watched(conv) && lora_of(conv));
}

Projection projection_of(const nn::Linear& layer) {
  if (is_plain(layer)) return {Kind::Dense};
  const nn::Module* there = layer.present();
  auto lora = lora_of(*there);
  if (nn::is_watched(*there) || there->present() != there || (there->adapter() && !lora)) return {};
  if (there == &layer) return {Kind::Dense, nullptr, std::move(lora)};
  if (auto* float8 = dynamic_cast<const nn::LinearFP8*>(there)) {
    const bool by_rows = float8->dynamic && float8->weight.dtype() == kFloat8E4M3 && float8->scale.ndim() == 2;
    return {by_rows ? Kind::Float8 : Kind::Stored, by_rows ? float8 : nullptr, std::move(lora)};
  }
  if (!nn::is_quantized(*there)) return {};
  return {Kind::Stored, nullptr, std::move(lora)};
}

bool take_float8(std::initializer_list<const nn::Linear*> layers) {
  return std::all_of(layers.begin(), layers.end(),
                     [](auto* layer) { return projection_of(*layer).kind == Kind::Float8; });
}

Tensor activate(const Tensor& x, const std::string& activation) {
  if (activation == "geglu") return geglu(x);
  if (activation == "swiglu") return swiglu(x);
  if (activation == "quick_gelu") return quick_gelu(x);
  if (activation == "relu") return relu(x);
  if (activation == "silu") return silu(x);
  SF_CHECK(activation == "gelu" || activation == "gelu_tanh",
           "activate: activation must be relu, gelu, gelu_tanh, silu, quick_gelu, geglu or swiglu, got '", activation,
           "'");
  return gelu(x, activation == "gelu" ? "none" : "tanh");
}

namespace {
Tensor dense_with_activation(const nn::Linear& layer, const Tensor& x, const std::string& activation) {
  if (activation == "geglu") return linear_geglu(x, layer.weight, layer.bias);
  if (activation == "swiglu") return linear_swiglu(x, layer.weight, layer.bias);
  return linear_act(x, layer.weight, layer.bias, activation);
}
}  // namespace

namespace {
// What side paths read: the numbers that the products see.
Tensor dense(const ProjectionInput& in) {
  if (!in.is_float8()) return in.x;
  const Shape& sizes = in.rows.q.shape();
  return dequantize_fp8(in.rows.q.reshape({-1, sizes.back()}), in.rows.scale, in.dtype).view(sizes);
}
}  // namespace

Tensor project(const nn::Linear& layer, const ProjectionInput& in, const ProjectOptions& o) {
  const Projection p = projection_of(layer);
  // Stored weights are read with bias, activation and residual in one pass.
  const bool stored = p.kind == Kind::Stored && dynamic_cast<const nn::StoredLinear*>(layer.present());
  const bool dropping = o.dropout && (!o.residual || drops(*o.dropout));
  const bool only_adds = o.residual && o.activation.empty() && !dropping;
  const bool gates = o.activation == "geglu" || o.activation == "swiglu";
  bool is_activated = o.activation.empty();
  Tensor y;
  if (in.is_float8()) {
    SF_CHECK(p.kind == Kind::Float8, "project: rows in float8 are for a layer that multiplies in it, got ",
             layer.present()->type());
    Tensor added = only_adds ? o.residual : Tensor();
    if (p.lora) added = added ? p.lora->beside(added, dense(in)) : p.lora->side(dense(in));
    y = linear_of_fp8(in.rows, p.float8->weight, p.float8->scale, p.float8->bias, added, in.dtype);
    if (only_adds) return y;
  } else if (stored) {
    Tensor added = only_adds ? o.residual : Tensor();
    if (p.lora) added = added ? p.lora->beside(added, in.x) : p.lora->side(in.x);
    is_activated = is_activated || !gates;
    y = nn::stored_product(*layer.present(), in.x, {added, o.activation.empty() || gates ? "none" : o.activation});
    if (only_adds) return y;
  } else if (p.kind == Kind::Dense && p.lora) {
    y = linear_lora(in.x, layer.weight, layer.bias, p.lora->down, p.lora->up, p.lora->scale,
                    gates ? o.activation : "none", only_adds ? o.residual : Tensor());
    if (only_adds) return y;
    is_activated = is_activated || gates;
  } else if (p.kind == Kind::Dense && only_adds) {
    return linear_add(in.x, layer.weight, layer.bias, o.residual);
  } else if (p.kind == Kind::Dense && !o.activation.empty()) {
    y = dense_with_activation(layer, in.x, o.activation);
    is_activated = true;
  } else {
    y = layer(in.x);
  }
  if (!is_activated) y = activate(y, o.activation);
  if (dropping) y = (*o.dropout)(y);
  return o.residual ? o.residual + y : y;
}

namespace {

// Tensors of layers that one product may read as one.
struct Neighbours {
  Kind kind = Kind::Called;
  Tensors weights, scales, biases;  // scales: of Float8. biases: of each layer, or none
  std::vector<std::shared_ptr<const LoraPath>> loras;
};

// Empty where layers are of several kinds, or of one that products do not read.
Neighbours neighbours(std::initializer_list<const nn::Linear*> layers) {
  Neighbours n{projection_of(**layers.begin()).kind};
  for (const nn::Linear* layer : layers) {
    const Projection p = projection_of(*layer);
    if (p.kind != n.kind || (p.kind != Kind::Dense && p.kind != Kind::Float8)) return {};
    const Tensor& bias = p.float8 ? p.float8->bias : layer->bias;
    n.weights.push_back(p.float8 ? Tensor(p.float8->weight) : layer->weight);
    if (p.float8) n.scales.push_back(p.float8->scale);
    if (bias) n.biases.push_back(bias);
    n.loras.push_back(p.lora);
  }
  return n.biases.empty() || n.biases.size() == layers.size() ? n : Neighbours{};
}

// What their side paths add to one product of all, [..., columns of all]; absent where there are none.
Tensor sides_of(const Neighbours& n, const ProjectionInput& in) {
  if (std::none_of(n.loras.begin(), n.loras.end(), [](auto& lora) { return bool(lora); })) return {};
  const Tensor x = dense(in), rows = x.reshape({-1, x.shape().back()});
  int64_t columns = 0, at = 0;
  for (auto& w : n.weights) columns += w.size(0);
  const Tensor sides = empty({rows.size(0), columns}, x.dtype(), x.device());
  for (size_t i = 0; i < n.weights.size(); ++i) {
    Tensor part = sides.narrow(1, at, n.weights[i].size(0));
    if (n.loras[i]) n.loras[i]->side_into(part, rows);
    else part.zero_();
    at += n.weights[i].size(0);
  }
  Shape out = x.shape();
  out.back() = columns;
  return sides.view(out);
}

Tensors one_product(std::initializer_list<const nn::Linear*> layers, const ProjectionInput& in) {
  // A CPU's products gain nothing by it.
  if (!in.is_float8() && (!in.x.device().is_cuda() || autocast::active() || autograd::any_requires_grad({in.x})))
    return {};
  const Neighbours n = neighbours(layers);
  if (n.weights.empty() || n.kind != (in.is_float8() ? Kind::Float8 : Kind::Dense)) return {};
  if (!in.is_float8() && (autograd::any_requires_grad(n.weights) || autograd::any_requires_grad(n.biases))) return {};
  const Tensor weight = side_by_side(n.weights), scale = in.is_float8() ? side_by_side(n.scales) : Tensor(),
               bias = n.biases.empty() ? Tensor() : side_by_side(n.biases);
  for (auto& lora : n.loras)
    if (lora && autograd::any_requires_grad({lora->down, lora->up})) return {};
  if (!weight || (in.is_float8() && !scale) || (!n.biases.empty() && !bias)) return {};
  const Tensor sides = sides_of(n, in);
  Tensor all;
  if (in.is_float8()) all = linear_of_fp8(in.rows, weight, scale, bias, sides, in.dtype);
  else all = sides ? linear_add(in.x, weight, bias, sides) : linear(in.x, weight, bias);
  Tensors parts;
  int64_t at = 0;
  for (auto& w : n.weights) {
    parts.push_back(all.narrow(all.ndim() - 1, at, w.size(0)));
    at += w.size(0);
  }
  return parts;
}

// On a CPU: what all side paths read of the input in one product; it is packed once instead of for each of them. Empty
// where that cannot be.
Tensors with_sides_together(std::initializer_list<const nn::Linear*> layers, const ProjectionInput& in) {
  if (in.is_float8() || !in.x.device().is_cpu() || in.x.numel() == 0 || autocast::active() ||
      autograd::any_requires_grad({in.x}))
    return {};
  const Neighbours n = neighbours(layers);
  if (n.kind != Kind::Dense || autograd::any_requires_grad(n.weights) || autograd::any_requires_grad(n.biases))
    return {};
  Tensors downs;
  for (size_t i = 0; i < n.loras.size(); ++i) {
    const LoraPath* lora = n.loras[i].get();
    if (!lora || lora->scale != n.loras[0]->scale || autograd::any_requires_grad({lora->down, lora->up})) return {};
    for (const Tensor* t : {&n.weights[i], &lora->down, &lora->up})
      if (t->dtype() != in.x.dtype()) return {};
    downs.push_back(lora->down);
  }
  const Tensor x = in.x.reshape({1, -1, in.x.shape().back()});
  const Tensor h = gemm_product("linear_lora", x, cat(downs, 0).t().unsqueeze(0), {.alpha = n.loras[0]->scale});
  Tensors products;
  int64_t at = 0, i = 0;
  for (const nn::Linear* layer : layers) {
    const Tensor& up = n.loras[size_t(i++)]->up;
    products.push_back(linear_lora_within(in.x, layer->weight, layer->bias, h.narrow(2, at, up.size(1)), up));
    at += up.size(1);
  }
  return products;
}

}  // namespace

Tensors project_each(std::initializer_list<const nn::Linear*> layers, const ProjectionInput& in) {
  Tensors products = one_product(layers, in);
  if (products.empty()) products = with_sides_together(layers, in);
  if (products.empty())
    for (const nn::Linear* layer : layers) products.push_back(project(*layer, in));
  return products;
}

bool pack(std::initializer_list<const nn::Linear*> layers) {
  const Neighbours n = neighbours(layers);
  return !n.weights.empty() && lay_side_by_side({n.weights, n.scales, n.biases});
}

Tensor project_text(std::initializer_list<const nn::Linear*> layers, const Tensor& text,
                    const std::function<Tensor(const Tensor&)>& compute) {
  ContextCache* cache = ContextCache::current();
  const bool may_keep = cache && std::all_of(layers.begin(), layers.end(),
                                             [](auto* layer) { return projection_of(*layer).kind != Kind::Called; });
  return may_keep ? cache->get(layers, text, compute) : compute(text);
}
Tensor project_text(const nn::Linear& layer, const Tensor& text) {
  return project_text({&layer}, text, [&layer](const Tensor& t) { return layer(t); });
}

}  // namespace sf::models
