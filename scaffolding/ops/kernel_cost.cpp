#include "scaffolding/ops/kernel_cost.h"

#include <map>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/adamw/kernel.h"
#include "scaffolding/ops/attention/kernel.h"
#include "scaffolding/ops/batch_norm/kernel.h"
#include "scaffolding/ops/cat/kernel.h"
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/dropout/kernel.h"
#include "scaffolding/ops/factory/kernel.h"
#include "scaffolding/ops/fused/finished_conv/kernel.h"
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/fused/mlp/kernel.h"
#include "scaffolding/ops/fused/modulate/kernel.h"
#include "scaffolding/ops/group_norm/kernel.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/layer_norm/kernel.h"
#include "scaffolding/ops/loss/kernel.h"
#include "scaffolding/ops/matmul/linear_gradient.h"
#include "scaffolding/ops/pointwise/kernel.h"
#include "scaffolding/ops/pointwise/where_kernel.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/gguf_int8.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/random/kernel.h"
#include "scaffolding/ops/reduce/kernel.h"
#include "scaffolding/ops/rms_norm/kernel.h"
#include "scaffolding/ops/rope/kernel.h"
#include "scaffolding/ops/softmax/kernel.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/spatial/kernel.h"

namespace sf {

namespace {

// Elements that are in memory: those of broadcast dimensions once.
double stored(const TensorView& v) {
  double n = 1;
  for (int i = 0; i < v.ndim; ++i) n *= v.sizes[i] > 1 && v.strides[i] == 0 ? 1 : double(v.sizes[i]);
  return n;
}

struct Costs {
  KernelCost cost;

  void view(const TensorView& v) {
    if (!v.defined()) return;
    cost.bytes += stored(v) * double(size_of(v.dtype));
    cost.operands += (cost.operands.empty() ? "" : ", ") + name_of(v.dtype) + " [";
    for (int i = 0; i < v.ndim; ++i) cost.operands += (i ? ", " : "") + std::to_string(v.sizes[i]);
    cost.operands += "]";
    if (v.ndim > 2 && !v.is_contiguous()) cost.operands += v.is_channels_last() ? " channels-last" : " strided";
  }
  template <class... V> void views(const V&... v) { (view(v), ...); }
  static std::string name_of(DType t) { return std::string(name(t)); }

  void product(const TensorView& result, int64_t depth) { cost.flop = 2.0 * double(result.numel()) * double(depth); }

  void of(const Gemm& g) {
    views(g.a, g.b, g.bias, g.c, g.pre);
    if (g.beta != 0) cost.bytes += stored(g.c) * double(size_of(g.c.dtype));
    product(g.c, g.a.sizes[2]);
  }
  void of(const LinearGradient& g) {
    views(g.dy, g.x, g.dw, g.db);
    cost.flop = 2.0 * double(g.dw.numel()) * double(g.x.sizes[1]);
  }
  void of(const LinearAdd& g) {
    views(g.a, g.b, g.bias, g.residual, g.c);
    product(g.c, g.a.sizes[2]);
  }
  void of(const GatedLinear& g) {
    views(g.a, g.hidden, g.gate, g.bias_hidden, g.bias_gate, g.y);
    cost.flop = 4.0 * double(g.y.numel()) * double(g.a.sizes[1]);
  }
  void of(const ScaledProduct& p) {
    views(p.a, p.b, p.scale_a, p.scale_b, p.bias, p.residual, p.c);
    product(p.c, p.a.sizes[1]);
  }
  void of(const CodedProduct& p) {
    views(p.a, p.codes, p.scales, p.nested, p.bias, p.residual, p.c);
    product(p.c, p.a.sizes[1]);
  }
  void of(const GgufProduct& p) {
    views(p.a, p.blocks, p.bias, p.residual, p.c);
    product(p.c, p.a.sizes[1]);
  }
  void of(const GgufInt8Product& p) {
    views(p.codes, p.scales, p.sums, p.blocks, p.bias, p.c);
    product(p.c, p.codes.sizes[1]);
  }
  void of(const IntMm& p) {
    views(p.a, p.b, p.c);
    product(p.c, p.a.sizes[1]);
  }
  void of(const Int8Linear& p) {
    views(p.a, p.weight, p.rows, p.columns, p.bias, p.y);
    product(p.y, p.a.sizes[1]);
  }
  void of(const Int8Conv& c) {
    views(c.x, c.weight, c.rows, c.columns, c.bias, c.residual, c.y);
    cost.flop = double(c.y.numel()) * per_output(c.weight);
  }
  void of(const Int8Quantize& q) {
    views(q.x, q.codes, q.most);
    if (q.measure) cost.bytes += stored(q.x) * double(size_of(q.x.dtype));
  }
  void of(const Int8NormQuantize& q) {
    views(q.x, q.mean, q.rstd, q.weight, q.bias, q.codes, q.most);
    cost.bytes += stored(q.x) * double(size_of(q.x.dtype));
  }
  static double per_output(const TensorView& weight) { return 2.0 * double(weight.numel()) / double(weight.sizes[0]); }
  void of(const ConvForward& c) {
    views(c.x, c.weight, c.bias, c.residual, c.y);
    cost.flop = double(c.y.numel()) * per_output(c.weight);
  }
  void of(const NarrowConvForward& n) { of(n.conv); }
  void of(const PreparedConvForward& p) {
    of(p.conv);
    views(p.mean, p.rstd, p.norm_weight, p.norm_bias);
  }
  void of(const FinishedConvForward& f) {
    of(f.conv);
    views(f.slopes, f.second);
  }
  void of(const ConvBackwardData& c) {
    views(c.dy, c.weight, c.dx);
    cost.flop = double(c.dy.numel()) * per_output(c.weight);
  }
  void of(const ConvBackwardWeights& c) {
    views(c.x, c.dy, c.dweight, c.dbias);
    cost.flop = double(c.dy.numel()) * per_output(c.dweight);
  }
  static double scores(const TensorView& q, const TensorView& k) {
    return double(q.numel()) / double(std::max<int64_t>(1, q.sizes[3])) * double(k.sizes[2]);
  }
  void of(const AttentionForward& a) {
    views(a.q, a.k, a.v, a.mask, a.y, a.lse);
    cost.flop = 2.0 * scores(a.q, a.k) * double(a.q.sizes[3] + a.v.sizes[3]);
  }
  void of(const AttentionBackward& a) {  // scores again, and four products
    views(a.q, a.k, a.v, a.mask, a.y, a.lse, a.dy, a.dq, a.dk, a.dv, a.dmask);
    cost.flop = 2.0 * scores(a.q, a.k) * double(3 * a.q.sizes[3] + 2 * a.v.sizes[3]);
  }
  void of(const BatchNormForward& f) {
    views(f.x, f.weight, f.bias, f.running_mean, f.running_var, f.y, f.mean, f.rstd);
  }
  void of(const BatchNormBackward& b) { views(b.x, b.dy, b.weight, b.mean, b.rstd, b.dx, b.dweight, b.dbias); }
  void of(const GroupNormForward& f) { views(f.x, f.beside, f.weight, f.bias, f.y, f.mean, f.rstd); }
  void of(const GroupNormBackward& b) { views(b.x, b.dy, b.weight, b.bias, b.mean, b.rstd, b.dx, b.dweight, b.dbias); }
  void of(const LayerNormForward& f) {
    views(f.x, f.residual, f.sum, f.weight, f.bias, f.scale, f.shift, f.y, f.mean, f.rstd);
  }
  void of(const LayerNormBackward& b) {
    views(b.x, b.dy, b.dsum, b.weight, b.bias, b.scale, b.mean, b.rstd, b.dx, b.dweight, b.dbias, b.dscale, b.dshift);
  }
  void of(const RmsNormForward& f) { views(f.x, f.residual, f.sum, f.weight, f.scale, f.shift, f.y, f.rstd); }
  void of(const RmsNormBackward& b) {
    views(b.x, b.dy, b.dsum, b.weight, b.scale, b.rstd, b.dx, b.dweight, b.dscale, b.dshift);
  }
  void of(const SoftmaxForward& f) { views(f.x, f.y); }
  void of(const SoftmaxBackward& b) { views(b.y, b.dy, b.dx); }
  void of(const GluForward& f) { views(f.hidden, f.gate, f.y); }
  void of(const GluBackward& b) { views(b.hidden, b.gate, b.dy, b.dhidden, b.dgate); }
  void of(const ScaleRows& s) { views(s.x, s.factor, s.base, s.y); }
  void of(const Copy& c) { views(c.src, c.dst); }
  void of(const Fill& f) { view(f.dst); }
  void of(const ApplyMask& m) { views(m.in, m.mask, m.out); }
  void of(const PointwiseViews& p) { views(p.in[0], p.in[1], p.in[2], p.out); }
  void of(const PointwiseRow& p) {
    int operands = 1;
    for (const void* in : p.in) operands += in != nullptr;
    cost.bytes = double(operands) * double(p.n) * double(size_of(p.dtype));
  }
  void of(const Where& w) { views(w.condition, w.a, w.b, w.out); }
  void of(const Reduce& r) { views(r.in, r.center, r.out); }
  void of(const ArgReduce& r) { views(r.in, r.values, r.indices); }
  void of(const Scan& s) { views(s.in, s.factor, s.out); }
  void of(const RopeApply& r) { views(r.x, r.cos, r.sin, r.y); }
  void of(const Sort& s) { views(s.in, s.values, s.indices); }
  void of(const Take& t) {
    views(t.offset, t.out);
    cost.bytes += stored(t.out) * double(size_of(t.out.dtype));
  }
  void of(const Scatter& s) { views(s.offset, s.src, s.src); }
  void of(const Put& p) { views(p.src, p.src); }
  void of(const Positions& p) { view(p.index); }
  void of(const CrossEntropyForward& f) { views(f.x, f.target, f.weight, f.loss, f.row_weight, f.lse); }
  void of(const CrossEntropyBackward& b) { views(b.x, b.target, b.weight, b.lse, b.dy, b.dx); }
  void of(const MlpHidden& m) {
    views(m.x, m.w, m.bias, m.h, m.aux);
    cost.flop = 2.0 * double(m.h.numel()) * double(m.x.sizes[2]);
  }
  void of(const MlpHiddenGradient& g) {
    views(g.dy, g.w, g.aux, g.dpre, g.dbias);
    cost.flop = 2.0 * double(g.dpre.numel()) * double(g.dy.sizes[2]);
  }
  void of(const BlockQuantize& q) { views(q.x, q.codes, q.absmax); }
  void of(const BlockDequantize& q) { views(q.codes, q.absmax, q.nested, q.offset, q.y); }
  void of(const Fp8Quantize& q) { views(q.x, q.q, q.scale); }
  void of(const LayerNormFp8& n) { views(n.x, n.weight, n.bias, n.q, n.scale); }
  void of(const GegluFp8& g) { views(g.hidden, g.gate, g.q, g.scale); }
  void of(const Fp8Dequantize& q) { views(q.q, q.scale, q.y); }
  void of(const PhiloxChances& c) { views(c.chances, c.out); }
  void of(const PhiloxCategories& c) { views(c.weights, c.running, c.out); }
  void of(const PhiloxShuffle& s) { views(s.keys, s.order, s.order); }
  void of(const PhiloxDraw& d) { cost.bytes = double(d.n) * double(size_of(d.dtype)); }
  void of(const CatRows& c) {
    for (int64_t i = 0; i < c.count; ++i) cost.bytes += 2.0 * double(c.rows) * double(c.row_bytes[i]);
  }
  static double extent(const spatial::Extent& e) {
    return double(e.outer) * double(e.size[0] * e.size[1] * e.size[2]) * double(e.inner);
  }
  void of(const Remap& r) { cost.bytes = (extent(r.from) + extent(r.to)) * double(size_of(r.dtype)); }
  void of(const RemapBackward& r) {
    cost.bytes = (extent(r.dx_extent) + extent(r.dy_extent)) * double(size_of(r.dtype));
  }
  void of(const Resample& r) { cost.bytes = (extent(r.from) + extent(r.to)) * double(size_of(r.dtype)); }
  void of(const AdamWStep& s) {
    for (int64_t i = 0; i < s.count; ++i) {
      const AdamWTensor& t = s.tensors[i];
      const double moments = t.param_dtype == kFloat64 ? 8 : 4, param = double(size_of(t.param_dtype));
      // a master is read in the parameter's place
      double each = param + double(size_of(t.grad_dtype)) + 4 * moments + (t.master ? 8 : param);
      if (t.max_exp_avg_sq) each += 2 * moments;
      cost.bytes += each * double(t.numel);
    }
  }
};

using Reader = KernelCost (*)(const void*);
template <class Args> KernelCost read(const void* args) {
  Costs c;
  c.of(*static_cast<const Args*>(args));
  return c.cost;
}

std::map<const KernelTableBase*, Reader> make_readers() {
  std::map<const KernelTableBase*, Reader> m;
  auto add = [&]<class... Args>(const KernelTable<Args>&... table) { ((m[&table] = read<Args>), ...); };
  add(coded_product, gguf_product, gguf_int8_product, int_mm_kernel, int8_linear, int8_conv, int8_quantize,
      int8_norm_quantize);
  add(gemm, linear_gradient, linear_add_kernel, mlp_hidden, mlp_hidden_gradient, gated_linear, scaled_product,
      conv_forward, narrow_conv_forward, prepared_conv_forward, finished_conv_forward, conv_backward_data,
      conv_backward_weights, attention_forward, attention_backward, batch_norm_forward, batch_norm_backward,
      group_norm_forward, group_norm_backward, layer_norm_forward, layer_norm_backward, rms_norm_forward,
      rms_norm_backward, softmax_forward, softmax_backward, glu_forward, glu_backward, scale_rows, copy_kernel,
      fill_kernel, apply_mask_kernel, where_kernel, reduce_kernel, arg_reduce_kernel, scan_kernel, rope_apply,
      sort_kernel, take_kernel, scatter_kernel, put_kernel, positions_kernel, cross_entropy_forward,
      cross_entropy_backward, block_quantize, block_dequantize, fp8_quantize, fp8_dequantize, layer_norm_fp8_kernel,
      geglu_fp8_kernel, philox_kernel, philox_chances, philox_categories, philox_shuffle, cat_kernel, remap_kernel,
      remap_backward_kernel, resample_kernel, adamw_step);
  auto pointwise = [&](const PointwiseTable& t) {
    m[static_cast<const KernelTable<PointwiseRow>*>(&t)] = read<PointwiseRow>, m[&t.views] = read<PointwiseViews>;
  };
#define SF_UNARY(name, ...) pointwise(name##_forward), pointwise(name##_backward);
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) pointwise(name##_forward);
#define SF_BINARY_P SF_BINARY
#define SF_COMPARE(name, ...) pointwise(name##_forward);
#define SF_PREDICATE SF_COMPARE
#define SF_BITWISE SF_COMPARE
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE
#undef SF_PREDICATE
#undef SF_BITWISE
  pointwise(bitwise_not_forward), pointwise(lerp_forward);
  return m;
}

}  // namespace

KernelCost cost_of(const KernelCall& call) {
  static const auto readers = make_readers();
  auto at = readers.find(&call.table);
  if (at == readers.end()) return {};
  KernelCost cost = at->second(call.args);
  if (call.composed) cost.flop = cost.bytes = 0;
  return cost;
}

}  // namespace sf
