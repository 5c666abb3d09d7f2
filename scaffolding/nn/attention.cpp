#include "scaffolding/nn/attention.h"

#include <cmath>
#include <limits>

#include "scaffolding/nn/init.h"
#include "scaffolding/nn/joined.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/dropout/dropout.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pad/pad.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/softmax/softmax.h"

namespace sf::nn {

MultiheadAttention::MultiheadAttention(int64_t e, int64_t heads, const AttentionOptions& o)
    : embed_dim(e),
      num_heads(heads),
      head_dim(heads > 0 ? e / heads : 0),
      kdim(o.kdim.value_or(e)),
      vdim(o.vdim.value_or(e)),
      dropout(o.dropout),
      add_zero_attn(o.add_zero_attn),
      batch_first(o.batch_first),
      out_proj(std::max<int64_t>(e, 0), std::max<int64_t>(e, 0), o.bias, o.tensor) {
  SF_CHECK(e > 0 && heads > 0, "MultiheadAttention: embed_dim and num_heads must be greater than 0, got embed_dim=", e,
           " and num_heads=", heads, " instead");
  SF_CHECK(head_dim * heads == e, "MultiheadAttention: embed_dim must be divisible by num_heads, got ", e, " and ",
           heads);
  SF_CHECK(dropout >= 0 && dropout <= 1, "MultiheadAttention: dropout must be between 0 and 1, got ", dropout);
  auto make = [&](const Shape& s) { return parameter(empty(s, o.tensor.dtype, o.tensor.device)); };
  if (kdim == e && vdim == e) {
    in_proj_weight = make({3 * e, e});
  } else {
    q_proj_weight = make({e, e});
    k_proj_weight = make({e, kdim});
    v_proj_weight = make({e, vdim});
  }
  if (o.bias) in_proj_bias = make({3 * e});
  if (o.add_bias_kv) {
    bias_k = make({1, 1, e});
    bias_v = make({1, 1, e});
  }
  reset_parameters();
}

void MultiheadAttention::reset_parameters() {
  for (Tensor* w : {&in_proj_weight, &q_proj_weight, &k_proj_weight, &v_proj_weight})
    if (*w) init::xavier_uniform_(*w);
  if (in_proj_bias) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj.bias);
  }
  if (bias_k) init::xavier_normal_(bias_k);
  if (bias_v) init::xavier_normal_(bias_v);
}

namespace {

// A mask as numbers to add to the scores.
Tensor additive(const char* name, const Tensor& mask, DType dtype) {
  if (!mask || mask.is_floating_point()) return mask;
  SF_CHECK_AS(TypeError, mask.dtype() == kBool, "MultiheadAttention: only bool and floating types of ", name,
              " are supported, got ", mask.dtype());
  return where(mask, scalar_tensor(-std::numeric_limits<double>::infinity(), dtype), scalar_tensor(0.0, dtype));
}

}  // namespace

std::tuple<Tensor, Tensor> MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                       const AttentionMasks& masks, bool need_weights,
                                                       bool average_attn_weights) const {
  bool batched = query.ndim() == 3;
  SF_CHECK(batched || query.ndim() == 2,
           "MultiheadAttention: query should be unbatched 2D or batched 3D tensor but received ", query.ndim(),
           "-D query tensor");
  SF_CHECK(key.ndim() == query.ndim() && value.ndim() == query.ndim(),
           "MultiheadAttention: expected key and value to be ", query.ndim(), "-D but found ", key.ndim(), "-D and ",
           value.ndim(), "-D tensors");
  SF_CHECK(query.size(-1) == embed_dim && key.size(-1) == kdim && value.size(-1) == vdim,
           "MultiheadAttention: was expecting embedding dimensions ", embed_dim, ", ", kdim, " and ", vdim,
           ", but got ", query.shape(), ", ", key.shape(), " and ", value.shape());
  SF_CHECK(!masks.is_causal || masks.attn_mask, "MultiheadAttention: need attn_mask if specifying the is_causal hint");

  // [L, N, E] from here on.
  auto sequence_first = [&](const Tensor& t) {
    return !batched ? t.unsqueeze(1) : batch_first ? t.transpose(0, 1) : t;
  };
  Tensor q = sequence_first(query), k = sequence_first(key), v = sequence_first(value);
  int64_t L = q.size(0), N = q.size(1), S = k.size(0), E = embed_dim, H = num_heads, D = head_dim;
  SF_CHECK(k.size(1) == N && v.size(1) == N && v.size(0) == S,
           "MultiheadAttention: key's sequence and batch dims must match query's and value's, got query ",
           query.shape(), ", key ", key.shape(), ", value ", value.shape());

  auto bias_part = [&](int64_t i) { return in_proj_bias ? in_proj_bias.narrow(0, i * E, E) : Tensor(); };
  if (in_proj_weight && query.is_same(key) && key.is_same(value)) {
    Tensors parts = linear(q, in_proj_weight, in_proj_bias).chunk(3, -1);
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    auto weight = [&](int64_t i, const Tensor& own) {
      return in_proj_weight ? in_proj_weight.narrow(0, i * E, E) : own;
    };
    q = linear(q, weight(0, q_proj_weight), bias_part(0));
    k = linear(k, weight(1, k_proj_weight), bias_part(1));
    v = linear(v, weight(2, v_proj_weight), bias_part(2));
  }

  Tensor mask = additive("attn_mask", masks.attn_mask, q.dtype()),
         padding = additive("key_padding_mask", masks.key_padding_mask, q.dtype());
  bool causal = masks.is_causal && !padding && !need_weights;
  if (causal) mask = {};
  if (mask) {
    bool flat = mask.ndim() == 2;
    SF_CHECK(mask.shape() == (flat ? Shape{L, S} : Shape{N * H, L, S}),
             "MultiheadAttention: the shape of the attn_mask is ", mask.shape(), ", but should be ", Shape{L, S},
             " or ", Shape{N * H, L, S});
    mask = flat ? mask.reshape({1, 1, L, S}) : mask.reshape({N, H, L, S});
  }
  if (padding) {
    SF_CHECK(padding.numel() == N * S && padding.size(-1) == S,
             "MultiheadAttention: the shape of the key_padding_mask is ", padding.shape(), ", but should be ",
             Shape{N, S});
    padding = padding.reshape({N, 1, 1, S});
    mask = mask ? mask + padding : padding;
  }
  auto one_more = [&](const Tensor& t, const Tensor& row) { return cat({t, row}, 0); };
  for (auto [more, extra_k, extra_v] :
       {std::tuple{bool(bias_k), bias_k, bias_v},
        std::tuple{add_zero_attn, zeros({1, 1, E}, k.dtype(), k.device()), zeros({1, 1, E}, k.dtype(), k.device())}}) {
    if (!more) continue;
    k = one_more(k, extra_k.expand({1, N, E}));
    v = one_more(v, extra_v.expand({1, N, E}));
    if (mask) mask = pad(mask, {0, 1});
    ++S;
  }

  // [N, H, length, D]
  auto heads = [&](const Tensor& t, int64_t length) { return t.reshape({length, N, H, D}).permute({1, 2, 0, 3}); };
  q = heads(q, L), k = heads(k, S), v = heads(v, S);
  double p = training ? dropout : 0;
  Tensor y, weights;
  if (need_weights) {
    Tensor scores = matmul(q * wrapped(std::sqrt(1.0 / double(D))), k.transpose(-2, -1));
    weights = softmax(mask ? scores + mask : scores, -1);
    if (p > 0) weights = sf::dropout(weights, p);
    y = matmul(weights, v);
    if (average_attn_weights) weights = weights.mean({1});
    if (!batched) weights = weights.squeeze(0);
  } else {
    y = scaled_dot_product_attention(q, k, v, mask, p, causal);
  }
  y = out_proj(y.permute({2, 0, 1, 3}).reshape({L, N, E}));
  return {!batched ? y.squeeze(1) : batch_first ? y.transpose(0, 1) : y, weights};
}

Value MultiheadAttention::forward_value(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const Tensor& key_padding_mask, bool need_weights, const Tensor& attn_mask,
                                        bool average_attn_weights, bool is_causal) const {
  return sf::detail::to_tensors(
      forward(query, key, value, {key_padding_mask, attn_mask, is_causal}, need_weights, average_attn_weights));
}

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerOptions& o)
    : self_attn(d_model, nhead,
                {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first, .tensor = o.tensor}),
      linear1(d_model, o.dim_feedforward, o.bias, o.tensor),
      dropout(o.dropout),
      linear2(o.dim_feedforward, d_model, o.bias, o.tensor),
      norm1({d_model}, o.layer_norm_eps, true, o.bias, o.tensor),
      norm2({d_model}, o.layer_norm_eps, true, o.bias, o.tensor),
      dropout1(o.dropout),
      dropout2(o.dropout),
      activation(o.activation),
      norm_first(o.norm_first) {
  SF_CHECK(activation == "relu" || activation == "gelu",
           "TransformerEncoderLayer: activation should be relu/gelu, not ", activation);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask,
                                        bool is_causal) const {
  auto attend = [&](const Tensor& x) {
    return dropout1(std::get<0>(self_attn.forward(x, x, x, {src_key_padding_mask, src_mask, is_causal}, false)));
  };
  auto feed = [&](const Tensor& x) {
    if (Tensor y = joined(x, linear1, activation, &dropout, linear2)) return dropout2(y);
    Tensor h = linear1(x);
    return dropout2(linear2(dropout(activation == "relu" ? relu(h) : gelu(h))));
  };
  if (norm_first) {
    Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

SF_LAYER(MultiheadAttention,
         "embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None, "
         "batch_first=False, device=None, dtype=None",
         [](int64_t embed_dim, int64_t num_heads, double dropout, bool bias, bool add_bias_kv, bool add_zero_attn,
            std::optional<int64_t> kdim, std::optional<int64_t> vdim, bool batch_first, std::optional<Device> device,
            std::optional<DType> dtype) {
           return std::make_unique<MultiheadAttention>(
               embed_dim, num_heads,
               AttentionOptions{dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first,
                                TensorOptions{device, dtype}});
         })
    .doc(
        "Attention with num_heads heads: query[L, N, E], key[S, N, kdim], value[S, N, vdim] -> (output[L, N, E], "
        "weights[N, L, S] or None).")
    .forward<&MultiheadAttention::forward_value>(
        "query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, "
        "is_causal=False")
    .field<&MultiheadAttention::embed_dim>("embed_dim")
    .field<&MultiheadAttention::num_heads>("num_heads")
    .field<&MultiheadAttention::head_dim>("head_dim")
    .field<&MultiheadAttention::kdim>("kdim")
    .field<&MultiheadAttention::vdim>("vdim")
    .field<&MultiheadAttention::dropout>("dropout")
    .field<&MultiheadAttention::add_zero_attn>("add_zero_attn")
    .field<&MultiheadAttention::batch_first>("batch_first");

SF_LAYER(TransformerEncoderLayer,
         "d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-5, "
         "batch_first=False, norm_first=False, bias=True, device=None, "
         "dtype=None",
         [](int64_t d_model, int64_t nhead, int64_t dim_feedforward, double dropout, std::string activation,
            double layer_norm_eps, bool batch_first, bool norm_first, bool bias, std::optional<Device> device,
            std::optional<DType> dtype) {
           return std::make_unique<TransformerEncoderLayer>(
               d_model, nhead,
               TransformerOptions{dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                                  TensorOptions{device, dtype}});
         })
    .doc(
        "Self-attention and a feed-forward network, each with residual and LayerNorm: src[S, N, d_model] -> the same "
        "shape.")
    .forward<&TransformerEncoderLayer::forward>("src, src_mask=None, src_key_padding_mask=None, is_causal=False")
    .field<&TransformerEncoderLayer::norm_first>("norm_first");

}  // namespace sf::nn
