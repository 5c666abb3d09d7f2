// Convolutions of pictures so small that every output pixel sees every input pixel, as the deep layers of small images
// have (3x3 over 2 x 2 or one pixel, a kernel as large as its input): one matrix product over whole pictures, y[n, (o,
// pixel)] = sum x[n, (c, pixel)] * spread[(o, pixel), (c, pixel)], where spread holds the tap that links two pixels. It
// multiplies nothing by padding: 3x3 over one pixel is the middle tap, a ninth of what an algorithm over taps does.
#include <cstring>

#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/conv/kernel.h"

namespace sf {
namespace {

constexpr int64_t kMaxPairs = 64;  // of an input with an output pixel
constexpr int64_t kLeastBatch =
    8;  // pictures, or two for each pair: each element of spread is written once and used once for each picture
constexpr int64_t kMaxSpread = int64_t(16) << 20;  // elements
enum Slot { kSlotSpread = 8, kSlotBias };

// Where element (channel, pixel) of a picture lies: channel * c + pixel * p.
struct Picture {
  int64_t channels, pixels, c, p;
  explicit Picture(const TensorView& t) : channels(t.sizes[1]), pixels(1) {
    for (int i = 2; i < t.ndim; ++i) pixels *= t.sizes[i];
    c = t.is_contiguous() ? pixels : 1, p = t.is_contiguous() ? 1 : channels;
  }
  int64_t size() const { return channels * pixels; }
};

// tap[out * in.pixels + in]: the offset in the weight of what links two pixels. False: some two are not linked.
bool link(const TensorView& x, const TensorView& w, const TensorView& y, const ConvShape& s,
          int64_t (&tap)[kMaxPairs]) {
  int64_t in = 1, out = 1;
  for (int i = 2; i < x.ndim; ++i) in *= x.sizes[i], out *= y.sizes[i];
  if (in * out > kMaxPairs) return false;
  for (int64_t q = 0; q < out; ++q)
    for (int64_t p = 0; p < in; ++p) {
      int64_t offset = 0, rest_q = q, rest_p = p;
      for (int i = x.ndim - 1; i > 1; --i) {
        int64_t at = rest_p % x.sizes[i] + s.padding[i - 2] - rest_q % y.sizes[i] * s.stride[i - 2];
        rest_p /= x.sizes[i], rest_q /= y.sizes[i];
        if (at < 0 || at % s.dilation[i - 2] != 0 || at / s.dilation[i - 2] >= w.sizes[i]) return false;
        offset += at / s.dilation[i - 2] * w.strides[i];
      }
      tap[q * in + p] = offset;
    }
  return true;
}

bool supports(const TensorView& x, const TensorView& w, const TensorView& y, const ConvShape& s) {
  auto dense = [](const TensorView& t) {
    return t.dtype == kFloat32 && t.numel() > 0 && (t.is_contiguous() || t.is_channels_last());
  };
  if (s.groups != 1 || x.sizes[0] < kLeastBatch || w.dtype != kFloat32 || !dense(x) || !dense(y)) return false;
  const Picture in(x), out(y);
  int64_t tap[kMaxPairs];
  return x.sizes[0] >= 2 * in.pixels * out.pixels && in.size() * out.size() <= kMaxSpread && link(x, w, y, s, tap);
}

TensorView matrix(void* data, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  TensorView v;
  v.data = data;
  v.ndim = 3;
  v.sizes[0] = 1, v.sizes[1] = rows, v.sizes[2] = columns;
  v.strides[0] = 0, v.strides[1] = row, v.strides[2] = column;
  return v;
}
TensorView pictures(const TensorView& t, const Picture& one) {
  return matrix(t.data, t.sizes[0], one.size(), one.size(), 1);
}
TensorView transposed(const TensorView& m) {
  return matrix(m.data, m.sizes[2], m.sizes[1], m.strides[2], m.strides[1]);
}

void multiply(const Gemm& g) { gemm.find(Device::CPU, g)(g); }

// Output channels whose rows of spread are worth a thread of their own.
int64_t grain(const Picture& in, const Picture& out) { return 1 + 16384 / (in.size() * out.pixels); }

// The weight has the order of the input's elements already, as where kernel and input are equally large:
// it is `spread` itself.
bool is_spread(const TensorView& w, const Picture& in, const Picture& out, const int64_t* tap) {
  bool same =
      out.pixels == 1 && w.strides[1] == in.c && (in.c == 1 || in.p == 1) && w.numel() == out.channels * in.size();
  for (int64_t p = 0; p < in.pixels; ++p) same = same && tap[p] == p * in.p;
  return same;
}

TensorView spread_weight(const TensorView& w, const Picture& in, const Picture& out, const int64_t* tap) {
  if (is_spread(w, in, out, tap)) return matrix(w.data, out.size(), in.size(), w.strides[0], 1);
  auto* to = static_cast<float*>(scratch(size_t(in.size() * out.size()) * sizeof(float), kSlotSpread));
  parallel_for(out.channels, grain(in, out), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t q = 0; q < out.pixels; ++q) {
        float* row = to + (o * out.c + q * out.p) * in.size();
        for (int64_t p = 0; p < in.pixels; ++p) {
          const float* from = w.as<const float>() + o * w.strides[0] + tap[q * in.pixels + p];
          for (int64_t c = 0; c < in.channels; ++c) row[c * in.c + p * in.p] = from[c * w.strides[1]];
        }
      }
  });
  return matrix(to, out.size(), in.size(), in.size(), 1);
}

void forward(const ConvForward& f) {
  Picture in(f.x), out(f.y);
  int64_t tap[kMaxPairs];
  link(f.x, f.weight, f.y, f.shape, tap);
  Gemm g;
  g.a = pictures(f.x, in);
  g.b = transposed(spread_weight(f.weight, in, out, tap));
  g.c = pictures(f.y, out);
  g.act = f.act;
  if (is_spread(f.weight, in, out, tap)) g.b_version = f.weight_version;
  if (f.bias) {
    auto* bias = static_cast<float*>(scratch(size_t(out.size()) * sizeof(float), kSlotBias));
    for (int64_t o = 0; o < out.channels; ++o)
      for (int64_t q = 0; q < out.pixels; ++q)
        bias[o * out.c + q * out.p] = f.bias.as<const float>()[o * f.bias.strides[0]];
    g.bias.data = bias;
    g.bias.ndim = 1;
    g.bias.sizes[0] = out.size();
    g.bias.strides[0] = 1;
  }
  multiply(g);
}

void backward_data(const ConvBackwardData& f) {
  Picture in(f.dx), out(f.dy);
  int64_t tap[kMaxPairs];
  link(f.dx, f.weight, f.dy, f.shape, tap);
  Gemm g;
  g.a = pictures(f.dy, out);
  g.b = spread_weight(f.weight, in, out, tap);
  g.c = pictures(f.dx, in);
  if (is_spread(f.weight, in, out, tap)) g.b_version = f.weight_version;
  multiply(g);
}

void backward_weights(const ConvBackwardWeights& f) {
  Picture in(f.x), out(f.dy);
  const TensorView& w = f.dweight;
  const int64_t of_channel = w.numel() / w.sizes[0];
  int64_t tap[kMaxPairs];
  link(f.x, w, f.dy, f.shape, tap);
  Gemm g;
  g.a = transposed(pictures(f.dy, out));
  g.b = pictures(f.x, in);
  if (is_spread(w, in, out, tap)) {
    g.c = matrix(w.data, out.size(), in.size(), w.strides[0], 1);
    return multiply(g);
  }
  auto* spread = static_cast<float*>(scratch(size_t(in.size() * out.size()) * sizeof(float), kSlotSpread));
  g.c = matrix(spread, out.size(), in.size(), in.size(), 1);
  multiply(g);
  // The taps that link no pixels stay zero.
  parallel_for(out.channels, grain(in, out), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      float* to = w.as<float>() + o * w.strides[0];
      std::memset(to, 0, size_t(of_channel) * sizeof(float));
      for (int64_t q = 0; q < out.pixels; ++q) {
        const float* row = spread + (o * out.c + q * out.p) * in.size();
        for (int64_t p = 0; p < in.pixels; ++p) {
          float* at = to + tap[q * in.pixels + p];
          for (int64_t c = 0; c < in.channels; ++c) at[c * w.strides[1]] += row[c * in.c + p * in.p];
        }
      }
    }
  });
}

bool supports_forward(const ConvForward& f) {
  return !f.residual && (!f.bias || f.bias.dtype == kFloat32) && supports(f.x, f.weight, f.y, f.shape);
}
bool supports_data(const ConvBackwardData& f) { return supports(f.dx, f.weight, f.dy, f.shape); }
bool supports_weights(const ConvBackwardWeights& f) {
  return !f.dbias && (f.dweight.is_contiguous() || f.dweight.is_channels_last()) &&
         supports(f.x, f.dweight, f.dy, f.shape);
}

}  // namespace

SF_KERNEL(conv_forward, DeviceType::CPU, "whole", 30, forward, supports_forward)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "whole", 30, backward_data, supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "whole", 30, backward_weights, supports_weights)

}  // namespace sf
