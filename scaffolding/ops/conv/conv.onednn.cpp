// Convolutions by oneDNN, direct algorithm on channels-last activations (brgconv). Weights go through the layout the
// library asks for, once per version. A contiguous tensor is brought to channels-last and back here: oneDNN's own path
// for NCHW is a plain matrix product several times slower than the copy.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/backend/cpu/onednn.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/conv/pointwise.h"
#include "scaffolding/ops/conv/rows.h"
#include "scaffolding/ops/matmul/post_ops.h"

namespace sf {
namespace {

namespace dn = cpu::onednn;
using dnnl::memory;
using dims = memory::dims;

constexpr uint32_t kFormatForward = 110, kFormatBackward = 130;  // in PackedKey, + dtype
enum Slot { kSlotWeights = 7, kSlotX = 8, kSlotY = 9 };

bool dense(const TensorView& t) { return !t || t.is_channels_last() || t.is_contiguous(); }

// The same sizes, channels-last. Unit dimensions get the strides oneDNN expects of that layout.
TensorView channels_last(const TensorView& t) {
  TensorView v = t;
  int64_t s = 1;
  v.strides[1] = s, s *= v.sizes[1];
  for (int i = v.ndim - 1; i > 1; --i) v.strides[i] = s, s *= v.sizes[i];
  v.strides[0] = s;
  return v;
}
memory::desc activation(const TensorView& t) { return dn::describe(channels_last(t)); }

// An activation of the call as channels-last memory: its own bytes, or a copy.
class Laid {
 public:
  Laid(const TensorView& t, int slot, bool read)
      : plain_(t), laid_(channels_last(t)), copied_(t && !t.is_channels_last()) {
    if (!copied_) return;
    laid_.data = scratch(size_t(t.numel()) * size_of(t.dtype), slot);
    if (read) dn::reorder(dn::wrap(dn::describe(plain_), plain_.data), memory_of());
  }
  memory memory_of() const { return dn::wrap(dn::describe(laid_), laid_.data); }
  void write_back() const {
    if (copied_) dn::reorder(memory_of(), dn::wrap(dn::describe(plain_), plain_.data));
  }

 private:
  TensorView plain_, laid_;
  bool copied_;
};

// weight[O, C/g, ...] as oneDNN sees it: with groups, [g, O/g, C/g, ...].
TensorView grouped(const TensorView& w, int64_t groups) {
  if (groups == 1) return w;
  TensorView v = w;
  v.ndim = w.ndim + 1;
  for (int i = w.ndim; i > 0; --i) v.sizes[i] = w.sizes[i - 1], v.strides[i] = w.strides[i - 1];
  v.sizes[0] = groups;
  v.sizes[1] = w.sizes[0] / groups;
  v.strides[0] = v.sizes[1] * w.strides[0];
  return v;
}
memory::desc any_weight(const TensorView& w, int64_t groups, DType t) {
  TensorView v = grouped(w, groups);
  return dn::any_layout(dims(v.sizes, v.sizes + v.ndim), t);
}
memory::desc bias_of(const TensorView& b) {
  return b ? memory::desc({b.sizes[0]}, dn::type_of(b.dtype), memory::format_tag::a) : memory::desc();
}

struct Geometry {
  dims stride, dilation, left, right;
};
// oneDNN takes the padding of either side; the right one follows from the sizes (a transposed convolution's
// output_padding).
Geometry geometry(const ConvShape& s, const TensorView& x, const TensorView& w, const TensorView& y) {
  Geometry g;
  for (int i = 0; i < x.ndim - 2; ++i) {
    const int64_t reach = (w.sizes[i + 2] - 1) * s.dilation[i] + 1;
    g.stride.push_back(s.stride[i]);
    g.dilation.push_back(s.dilation[i] - 1);
    g.left.push_back(s.padding[i]);
    g.right.push_back((y.sizes[i + 2] - 1) * s.stride[i] + reach - x.sizes[i + 2] - s.padding[i]);
  }
  return g;
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward_desc(dnnl::prop_kind kind, const memory::desc& x,
                                                       const memory::desc& w, const memory::desc& b,
                                                       const memory::desc& y, const Geometry& g,
                                                       const dnnl::post_ops& ops) {
#if DNNL_VERSION_MAJOR >= 3
  if (b.get_ndims() == 0)
    return {dn::engine(), kind, kDirect, x, w, y, g.stride, g.dilation, g.left, g.right, dn::attributes(ops)};
  return {dn::engine(), kind, kDirect, x, w, b, y, g.stride, g.dilation, g.left, g.right, dn::attributes(ops)};
#else
  if (b.data.ndims == 0)
    return {{kind, kDirect, x, w, y, g.stride, g.dilation, g.left, g.right}, dn::attributes(ops), dn::engine()};
  return {{kind, kDirect, x, w, b, y, g.stride, g.dilation, g.left, g.right}, dn::attributes(ops), dn::engine()};
#endif
}

void add_shape(dn::Key& key, const ConvShape& s, int spatial) {
  for (int i = 0; i < spatial; ++i) key.add(s.stride[i]), key.add(s.padding[i]), key.add(s.dilation[i]);
  key.add(s.groups);
}
// Sizes decide a primitive; weights go through a reorder and activations are channels-last.
void add_sizes(dn::Key& key, const TensorView& t) {
  key.add(t.ndim);
  if (!t) return;
  key.add(int64_t(t.dtype));
  for (int i = 0; i < t.ndim; ++i) key.add(t.sizes[i]);
}

// Weights in the primitive's layout: kept per version, or packed for this call.
class LaidWeight {
 public:
  LaidWeight(const TensorView& w, int64_t groups, const memory::desc& layout, uint32_t format, uint64_t version)
      : pack_{grouped(w, groups), &layout},
        kept_({w.data,
               version,
               format + uint32_t(w.dtype),
               {groups, w.strides[0], w.strides[1], w.strides[2], w.strides[w.ndim - 1], dn::fingerprint(layout)}},
              layout.get_size(), pack_) {
    data_ = kept_.get();
    if (!data_) pack_(data_ = scratch(layout.get_size(), kSlotWeights));
  }
  memory memory_of() const { return dn::wrap(*pack_.layout, data_); }

 private:
  struct Pack {
    TensorView plain;
    const memory::desc* layout;
    void operator()(void* to) const { dn::reorder(dn::wrap(dn::describe(plain), plain.data), dn::wrap(*layout, to)); }
  } pack_;
  cpu::PackedWeight kept_;
  void* data_;
};

std::shared_ptr<const dn::Compiled> primitive_of(const ConvForward& f) {
  dn::Key key;
  key.add(int64_t(2));
  add_sizes(key, f.x), add_sizes(key, f.weight), add_sizes(key, f.bias), add_sizes(key, f.residual),
      add_sizes(key, f.y);
  add_shape(key, f.shape, f.x.ndim - 2);
  key.add(int64_t(f.act));
  return dn::compiled(key, [&](dn::Compiled& out) {
    dnnl::post_ops ops;
    if (f.residual) ops.append_sum(1);
    append(ops, f.act);
    auto pd = forward_desc(dnnl::prop_kind::forward_inference, activation(f.x),
                           any_weight(f.weight, f.shape.groups, f.weight.dtype), bias_of(f.bias), activation(f.y),
                           geometry(f.shape, f.x, f.weight, f.y), ops);
    out = {dnnl::convolution_forward(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc(), pd.scratchpad_desc()};
  });
}
void forward(const ConvForward& f) {
  ComputeScope scope;
  const auto prim = primitive_of(f);
  Laid x(f.x, kSlotX, true), y(f.y, kSlotY, false);
  LaidWeight w(f.weight, f.shape.groups, prim->weights, kFormatForward, f.weight_version);
  memory bias = f.bias ? dn::wrap(bias_of(f.bias), f.bias.data) : memory();
  // The residual is summed from y's own bytes: a copy, but 2.6.3's binary post-op adds wrong values outside 2-D
  // brgconv.
  if (f.residual) dn::reorder(dn::wrap(dn::describe(f.residual), f.residual.data), y.memory_of());
  dn::run(*prim, {{DNNL_ARG_SRC, x.memory_of()},
                  {DNNL_ARG_WEIGHTS, w.memory_of()},
                  {DNNL_ARG_DST, y.memory_of()},
                  {DNNL_ARG_BIAS, bias}});
  y.write_back();
}

std::shared_ptr<const dn::Compiled> primitive_of(const ConvBackwardData& f) {
  dn::Key key;
  key.add(int64_t(3));
  add_sizes(key, f.dy), add_sizes(key, f.weight), add_sizes(key, f.dx);
  add_shape(key, f.shape, f.dx.ndim - 2);
  return dn::compiled(key, [&](dn::Compiled& out) {
    const memory::desc dx = activation(f.dx), dy = activation(f.dy),
                       w = any_weight(f.weight, f.shape.groups, f.weight.dtype);
    const Geometry g = geometry(f.shape, f.dx, f.weight, f.dy);
    auto hint = forward_desc(dnnl::prop_kind::forward_training, dx, w, {}, dy, g, {});
#if DNNL_VERSION_MAJOR >= 3
    dnnl::convolution_backward_data::primitive_desc pd(dn::engine(), kDirect, dx, w, dy, g.stride, g.dilation, g.left,
                                                       g.right, hint, dn::attributes());
#else
    dnnl::convolution_backward_data::primitive_desc pd({kDirect, dx, w, dy, g.stride, g.dilation, g.left, g.right},
                                                       dn::attributes(), dn::engine(), hint);
#endif
    out = {dnnl::convolution_backward_data(pd), pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc(),
           pd.scratchpad_desc()};
  });
}
void backward_data(const ConvBackwardData& f) {
  ComputeScope scope;
  const auto prim = primitive_of(f);
  Laid dy(f.dy, kSlotY, true), dx(f.dx, kSlotX, false);
  LaidWeight w(f.weight, f.shape.groups, prim->weights, kFormatBackward, f.weight_version);
  dn::run(
      *prim,
      {{DNNL_ARG_DIFF_DST, dy.memory_of()}, {DNNL_ARG_WEIGHTS, w.memory_of()}, {DNNL_ARG_DIFF_SRC, dx.memory_of()}});
  dx.write_back();
}

std::shared_ptr<const dn::Compiled> primitive_of(const ConvBackwardWeights& f) {
  dn::Key key;
  key.add(int64_t(4));
  add_sizes(key, f.x), add_sizes(key, f.dy), add_sizes(key, f.dweight), add_sizes(key, f.dbias);
  add_shape(key, f.shape, f.x.ndim - 2);
  return dn::compiled(key, [&](dn::Compiled& out) {
    const memory::desc x = activation(f.x), dy = activation(f.dy),
                       dw = any_weight(f.dweight, f.shape.groups, f.dweight.dtype), db = bias_of(f.dbias);
    const Geometry g = geometry(f.shape, f.x, f.dweight, f.dy);
    auto hint = forward_desc(dnnl::prop_kind::forward_training, x, any_weight(f.dweight, f.shape.groups, f.x.dtype), {},
                             dy, g, {});
#if DNNL_VERSION_MAJOR >= 3
    auto pd =
        f.dbias
            ? dnnl::convolution_backward_weights::primitive_desc(dn::engine(), kDirect, x, dw, db, dy, g.stride,
                                                                 g.dilation, g.left, g.right, hint, dn::attributes())
            : dnnl::convolution_backward_weights::primitive_desc(dn::engine(), kDirect, x, dw, dy, g.stride, g.dilation,
                                                                 g.left, g.right, hint, dn::attributes());
#else
    using Desc = dnnl::convolution_backward_weights::desc;
    dnnl::convolution_backward_weights::primitive_desc pd(
        f.dbias ? Desc(kDirect, x, dw, db, dy, g.stride, g.dilation, g.left, g.right)
                : Desc(kDirect, x, dw, dy, g.stride, g.dilation, g.left, g.right),
        dn::attributes(), dn::engine(), hint);
#endif
    out = {dnnl::convolution_backward_weights(pd), pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc(),
           pd.scratchpad_desc()};
  });
}
void backward_weights(const ConvBackwardWeights& f) {
  ComputeScope scope;
  const auto prim = primitive_of(f);
  Laid x(f.x, kSlotX, true), dy(f.dy, kSlotY, true);
  memory dw = dn::wrap(prim->weights, scratch(prim->weights.get_size(), kSlotWeights));
  memory db = f.dbias ? dn::wrap(bias_of(f.dbias), f.dbias.data) : memory();
  dn::run(*prim, {{DNNL_ARG_SRC, x.memory_of()},
                  {DNNL_ARG_DIFF_DST, dy.memory_of()},
                  {DNNL_ARG_DIFF_WEIGHTS, dw},
                  {DNNL_ARG_DIFF_BIAS, db}});
  dn::reorder(dw, dn::wrap(dn::describe(grouped(f.dweight, f.shape.groups)), f.dweight.data));
}

bool type_ok(const TensorView& t) {
  return t.dtype == kBFloat16 ? cpu::bf16_library_pays() : t.dtype == kFloat32 && dn::has_avx512();
}

// Two dimensions, whole vectors of channels, rows of at least a vector: what networks for images are made of, and where
// the library's main path runs.
bool ordinary(const TensorView& w, const ConvShape& s, const TensorView& y) {
  return w.ndim == 4 && s.groups == 1 && w.sizes[0] % 16 == 0 && w.sizes[1] % 16 == 0 && w.sizes[2] == w.sizes[3] &&
         y.sizes[2] >= 8 && y.sizes[3] >= 8 && s.padding[0] < w.sizes[2] && s.padding[1] < w.sizes[3];
}

template <class Args> bool can_build(const Args& f) {
  ComputeScope scope;
  return primitive_of(f)->ok;
}

bool supports_forward(const ConvForward& f) {
  if (f.x.dtype == kFloat32 && cpu::has(cpu::Isa::avx2) && is_pointwise(f)) return false;  // conv_1x1.h is faster
  if (f.residual && !ordinary(f.weight, f.shape, f.y)) return false;  // 2.6.3 crashes in sums of 3-D and ragged shapes
  return type_ok(f.x) && f.y.numel() > 0 && dense(f.x) && dense(f.y) && dense(f.residual) && can_build(f);
}
bool supports_data(const ConvBackwardData& f) {
  if (is_product_of_frames(f)) return false;  // conv_rows.h is faster
  return type_ok(f.dx) && f.dx.numel() > 0 && f.dy.numel() > 0 && dense(f.dx) && dense(f.dy) && can_build(f);
}
// Pictures of a few pixels, as deep layers of small images have: the library's direct algorithm falls to a tenth of its
// rate (512 channels, 1 x 1 pixel, 64 pictures: 13.5 ms against 5.1 of our product),
// for it vectorises along the picture.
bool few_pixels(const TensorView& y, const TensorView& w) {
  int64_t pixels = 1, taps = 1;
  for (int i = 2; i < y.ndim; ++i) pixels *= y.sizes[i], taps *= w.sizes[i];
  return pixels <= 4 && taps > 1;
}
bool supports_weights(const ConvBackwardWeights& f) {
  if (few_pixels(f.dy, f.dweight) || is_sum_of_rows(f)) return false;               // conv_rows.h is faster
  if (f.x.dtype == kBFloat16 && !ordinary(f.dweight, f.shape, f.dy)) return false;  // 2.6.3 leaves NaN in ragged shapes
  return type_ok(f.x) && f.x.numel() > 0 && f.dy.numel() > 0 && dense(f.x) && dense(f.dy) && can_build(f);
}

}  // namespace

SF_KERNEL(conv_forward, DeviceType::CPU, "onednn", 10, forward, supports_forward)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "onednn", 10, backward_data, supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "onednn", 10, backward_weights, supports_weights)

}  // namespace sf
