#include "scaffolding/ops/attention/attention.h"

#include <cmath>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/attention/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/dropout/dropout.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<AttentionForward> attention_forward{"attention"};
constinit KernelTable<AttentionBackward> attention_backward{"attention_backward"};

namespace {

// Lower-triangular [lq, lk]: query i sees keys j <= i.
Tensor causal_mask(int64_t lq, int64_t lk, Device device) {
  Tensor rows = arange(0, lq).unsqueeze(1), columns = arange(0, lk).unsqueeze(0);
  return le(columns, rows).to(device);
}

// The op as maths on [B, H, L, D]: the scores are a tensor of their own.
Tensor attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                           double scale, double dropout_p = 0) {
  int64_t groups = k.size(1) ? q.size(1) / k.size(1) : 1;
  auto heads = [&](const Tensor& x) {  // each key head serves `groups` query heads
    if (groups == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), x.size(1), groups, x.size(2), x.size(3)})
        .reshape({x.size(0), x.size(1) * groups, x.size(2), x.size(3)});
  };
  Tensor scores = matmul(q * scale, heads(k).transpose(-2, -1));
  if (mask && mask.dtype() == kBool) scores = where(mask, scores, full({}, -INFINITY, scores.dtype(), q.device()));
  else if (mask) scores = scores + mask.to(scores.dtype());
  if (is_causal)
    scores =
        where(causal_mask(q.size(2), k.size(2), q.device()), scores, full({}, -INFINITY, scores.dtype(), q.device()));
  Tensor p = softmax(scores, -1);
  p = where(eq(p, p), p, zeros({}, p.dtype(), p.device()));  // rows that may attend to nothing
  return matmul(dropout(p, dropout_p), heads(v));
}

Tensor unit_last_stride(const Tensor& x) {
  return x.ndim() == 0 || x.stride(-1) == 1 || x.size(-1) <= 1 ? x : contiguous(x);
}

// y in q's memory order, so that [B, L, H, D] memory stays so and joining the heads needs no copy.
Tensor output_for(const Tensor& q, int64_t dv) {
  if (q.stride(1) < q.stride(2))
    return empty({q.size(0), q.size(2), q.size(1), dv}, q.dtype(), q.device()).transpose(1, 2);
  return empty({q.size(0), q.size(1), q.size(2), dv}, q.dtype(), q.device());
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  SF_AUTOCAST(scaled_dot_product_attention, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  const char* op = "scaled_dot_product_attention";
  check_defined(op, "query", query);
  check_defined(op, "key", key);
  check_defined(op, "value", value);
  check_floating(op, "query", query);
  SF_CHECK_AS(TypeError, key.dtype() == query.dtype() && value.dtype() == query.dtype(), op,
              ": query, key and value must have one dtype, got ", query.dtype(), ", ", key.dtype(), " and ",
              value.dtype());
  check_same_device(op, query, key);
  check_same_device(op, query, value);
  check_same_device(op, query, attn_mask);
  int64_t n = query.ndim();
  SF_CHECK(n >= 2 && key.ndim() == n && value.ndim() == n, op,
           ": query, key and value must have the same number (2 or more) of dimensions, got ", query.shape(), ", ",
           key.shape(), " and ", value.shape());
  SF_CHECK(query.size(-1) == key.size(-1), op, ": query and key must have the same last size, got ", query.shape(),
           " and ", key.shape());
  SF_CHECK(key.size(-2) == value.size(-2), op, ": key and value must have the same length, got ", key.shape(), " and ",
           value.shape());
  SF_CHECK(dropout_p >= 0 && dropout_p <= 1, op, ": dropout_p must be between 0 and 1, got ", dropout_p);
  SF_CHECK(!is_causal || !attn_mask, op, ": give attn_mask or is_causal, not both");
  for (int64_t i = 0; i + 2 < n; ++i) {
    bool head = i == n - 3;
    SF_CHECK(key.shape()[i] == value.shape()[i], op, ": key and value must agree in dimension ", i, ", got ",
             key.shape(), " and ", value.shape());
    if (head && enable_gqa)
      SF_CHECK(key.shape()[i] > 0 && query.shape()[i] % key.shape()[i] == 0, op,
               ": query heads must be a multiple of key heads, got ", query.shape(), " and ", key.shape());
    else
      SF_CHECK(query.shape()[i] == key.shape()[i], op, ": query and key must agree in dimension ", i,
               head ? " (or pass enable_gqa=True)" : "", ", got ", query.shape(), " and ", key.shape());
  }
  if (attn_mask) {
    SF_CHECK_AS(TypeError,
                attn_mask.dtype() == kBool || (is_floating(attn_mask.dtype()) && !is_float8(attn_mask.dtype())), op,
                ": attn_mask must be bool or floating, got ", attn_mask.dtype());
    Shape scores = query.shape();
    scores[n - 1] = key.size(-2);
    SF_CHECK(attn_mask.ndim() <= n && broadcast_shapes(op, attn_mask.shape(), scores) == scores, op, ": attn_mask ",
             attn_mask.shape(), " does not broadcast to ", scores);
  }
  if (n != 4) {  // bring to [B, H, L, D]
    int64_t h = n >= 3 ? query.shape()[n - 3] : 1, hk = n >= 3 ? key.shape()[n - 3] : 1, b = 1;
    for (int64_t i = 0; i + 3 < n; ++i) b *= query.shape()[i];
    Shape out = query.shape();
    out.back() = value.size(-1);
    Tensor mask = attn_mask;
    if (mask && mask.ndim() > 3) {
      Shape full = query.shape();
      full[n - 1] = key.size(-2);
      mask = mask.expand(full).reshape({b, h, query.size(-2), key.size(-2)});
    }
    return scaled_dot_product_attention(
               query.reshape({b, h, query.size(-2), query.size(-1)}), key.reshape({b, hk, key.size(-2), key.size(-1)}),
               value.reshape({b, hk, value.size(-2), value.size(-1)}), mask, dropout_p, is_causal, scale, enable_gqa)
        .reshape(out);
  }
  double s = scale.value_or(query.size(-1) ? 1 / std::sqrt(double(query.size(-1))) : 1.0);
  // as in torch: drawn for the matrix of weights
  if (dropout_p > 0) return attention_reference(query, key, value, attn_mask, is_causal, s, dropout_p);
  Tensor q, k, v;
  {
    autograd::NoGrad off;
    q = unit_last_stride(query);
    k = unit_last_stride(key);
    v = unit_last_stride(value);
  }
  Tensor y = output_for(q, v.size(-1));
  bool training = autograd::any_requires_grad({query, key, value, attn_mask});
  Tensor lse = training ? empty({q.size(0), q.size(1), q.size(2)}, kFloat32, q.device()) : Tensor();
  AttentionForward f{q, k, v, attn_mask, is_causal, s, y, lse};
  auto kernel = attention_forward.find(q.device(), f);
  if (!kernel) return attention_reference(query, key, value, attn_mask, is_causal, s);
  if (y.numel() > 0) kernel(f);
  if (!training) return y;
  return autograd::record(
      op, y, {query, key, value, attn_mask},
      [q = save(q), k = save(k), v = save(v), mask = save(attn_mask), lse = save(lse), is_causal, s,
       wanted_mask = attn_mask.requires_grad()](const Tensor& dy, const Tensor& y) -> Tensors {
        Tensor g = unit_last_stride(dy), qt = q.get(), kt = k.get(), vt = v.get(), m = mask.get();
        Tensor dq = empty_like(qt), dk = empty_like(kt), dv = empty_like(vt);
        Tensor dmask =
            wanted_mask ? empty({qt.size(0), qt.size(1), qt.size(2), kt.size(2)}, kFloat32, qt.device()) : Tensor();
        AttentionBackward b{qt, kt, vt, m, is_causal, s, y, lse.get(), g, dq, dk, dv, dmask};
        auto kernel = attention_backward.find(qt.device(), b);
        SF_CHECK_AS(NotSupported, kernel, "scaled_dot_product_attention: no backward kernel for ", qt.dtype(), " on ",
                    qt.device());
        kernel(b);
        return {dq, dk, dv, dmask ? sum_to(dmask, m.shape()).to(m.dtype()) : Tensor()};
      },
      [is_causal, s](const Tensors& in) -> Tensors {
        return {attention_reference(in[0], in[1], in[2], in[3], is_causal, s)};
      });
}

SF_OP(scaled_dot_product_attention,
      "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False")
    .doc("softmax(query @ key^T * scale + attn_mask) @ value, without a matrix of scores in memory.")
    .like("torch.nn.functional.scaled_dot_product_attention")
    .kernels(attention_forward, attention_backward);

}  // namespace sf
