// Convolutions of one to three dimensions on CUDA as matrix products: what each output pixel sees is written as a row
// (conv_columns.h), some pixels at a time, and multiplied with the weights by the gemm table (cuBLASLt). Every dtype,
// group, stride and dilation; sums in float32.
// The provider that always works: a tensor is brought to channels-last where it is not, weights to [o][tap][c] at each
// call, and the rows go through memory. cuDNN's graphs (conv.cudnn.cpp) come before it.
// A product of 1 x 1 reads the pixels where they lie.
#include <algorithm>
#include <optional>

#include "scaffolding/core/env.h"
#include "scaffolding/ops/conv/conv_columns.h"
#include "scaffolding/ops/conv/conv_layout.h"
#include "scaffolding/ops/matmul/gemm_finish.h"

namespace sf::cuda {
namespace {

constexpr int64_t kMostOfARow = int64_t(1) << 28;  // elements; kernels count those of a piece in 31 bits

// Elements of rows that are written at a time.
int64_t most_columns(DType t) {
  static const int64_t bytes = env::integer("SF_CUDA_CONV_MB") << 20;
  return std::min(bytes / int64_t(size_of(t)), INT32_MAX - kMostOfARow);
}

TensorView matrices(void* data, DType dtype, Device device, int64_t batch, int64_t rows, int64_t cols,
                    int64_t batch_stride, int64_t row_stride, int64_t col_stride) {
  TensorView t;
  t.data = data, t.ndim = 3, t.dtype = dtype, t.device = device;
  t.sizes[0] = batch, t.sizes[1] = rows, t.sizes[2] = cols;
  t.strides[0] = batch_stride, t.strides[1] = row_stride, t.strides[2] = col_stride;
  return t;
}
void* advanced(void* data, DType dtype, int64_t elements) {
  return static_cast<char*>(data) + elements * int64_t(size_of(dtype));
}

void multiply(const Gemm& g) { gemm.find(g.c.device, g)(g); }

// The rows of one call: `out` pixels of `batch` pictures, each seeing `taps` pixels of `channels` numbers in each of
// `groups`.
struct Rows {
  ConvColumns columns;
  int64_t all = 0, taps = 1;  // rows in all
  bool direct = false;        // 1 x 1: rows are pixels

  Rows(const TensorView& image, const TensorView& weight, const TensorView& out, const ConvShape& s, bool backwards) {
    int dims = image.ndim - 2;
    columns.image = image.data, columns.dtype = image.dtype, columns.device = image.device;
    columns.groups = s.groups, columns.channels = image.sizes[1] / s.groups, columns.backwards = backwards;
    all = out.sizes[0], direct = true;
    for (int i = 0; i < dims; ++i) {
      int d = 3 - dims + i;
      columns.size[d] = image.sizes[i + 2], columns.out[d] = out.sizes[i + 2], columns.kernel[d] = weight.sizes[i + 2];
      columns.stride[d] = s.stride[i], columns.padding[d] = s.padding[i], columns.dilation[d] = s.dilation[i];
      all *= out.sizes[i + 2], taps *= weight.sizes[i + 2];
      direct = direct && weight.sizes[i + 2] == 1 && s.stride[i] == 1 && s.padding[i] == 0 &&
               image.sizes[i + 2] == out.sizes[i + 2];
    }
  }
  int64_t inner() const { return taps * columns.channels; }

  // f(a[groups, rows, inner], first row) for pieces of rows that fit into memory.
  template <class F> void for_pieces(const F& f) {
    Device device = columns.device;
    int64_t width = columns.groups * columns.channels;
    if (direct) {
      void* image = const_cast<void*>(columns.image);
      return f(matrices(image, columns.dtype, device, columns.groups, all, inner(), columns.channels, width, 1),
               int64_t(0));
    }
    int64_t of_row = columns.groups * inner(), most = std::max<int64_t>(1, most_columns(columns.dtype) / of_row),
            piece = std::min(most, all);
    Scratch memory(device, size_t(piece * of_row) * size_of(columns.dtype));
    for (int64_t first = 0; first < all; first += piece) {
      columns.col = memory.as<void>();
      columns.first = first, columns.rows = std::min(piece, all - first);
      write_columns(columns);
      f(matrices(columns.col, columns.dtype, device, columns.groups, columns.rows, inner(), columns.rows * inner(),
                 inner(), 1),
        first);
    }
  }
};

void forward(const ConvForward& f) {
  int64_t G = f.shape.groups, O = f.y.sizes[1], Og = O / G;
  Laid x(f.x, true), y(f.y, false);
  LaidWeights w(f.weight, G, false);
  Rows rows(x.view, f.weight, f.y, f.shape, false);
  DType t = f.x.dtype;
  if (f.residual) copy_on_device(y.view, f.residual);
  // Bias and activation go with the product where it has one bias for all its rows and nothing comes between.
  bool whole = G == 1 && !f.residual;
  rows.for_pieces([&](const TensorView& a, int64_t first) {
    int64_t n = a.sizes[1];
    void* out = advanced(y.view.data, t, first * O);
    Gemm g;
    g.a = a;
    g.b = matrices(w.data, t, f.x.device, G, rows.inner(), Og, Og * rows.inner(), 1, rows.inner());
    g.c = matrices(out, t, f.x.device, G, n, Og, Og, O, 1);
    g.beta = f.residual ? 1 : 0;
    if (whole) g.bias = f.bias, g.act = f.act;
    multiply(g);
    if (whole || (!f.bias && f.act == Activation::None)) return;
    Gemm rest;
    rest.c = matrices(out, t, f.x.device, 1, n, O, n * O, O, 1);
    rest.bias = f.bias, rest.act = f.act;
    finish_product(rest, rest.c);
  });
  y.finish();
}

// The gradient of x is a convolution of dy that reads it at whole fractions of the stride. Where the stride is s,
// s^dims times as much is multiplied as would be needed.
void backward_data(const ConvBackwardData& b) {
  int64_t G = b.shape.groups, C = b.dx.sizes[1], Cg = C / G;
  Laid dy(b.dy, true), dx(b.dx, false);
  LaidWeights w(b.weight, G, true);
  Rows rows(dy.view, b.weight, b.dx, b.shape, true);
  DType t = b.dy.dtype;
  rows.for_pieces([&](const TensorView& a, int64_t first) {
    Gemm g;
    g.a = a;
    g.b = matrices(w.data, t, b.dy.device, G, rows.inner(), Cg, rows.inner() * Cg, Cg, 1);
    g.c = matrices(advanced(dx.view.data, t, first * C), t, b.dy.device, G, a.sizes[1], Cg, Cg, C, 1);
    multiply(g);
  });
  dx.finish();
}

// dweight[o][tap][c] = dy^T rows, added up piece by piece in float32.
void backward_weights(const ConvBackwardWeights& b) {
  int64_t G = b.shape.groups, O = b.dy.sizes[1], Og = O / G;
  Laid x(b.x, true), dy(b.dy, true);
  Rows rows(x.view, b.dweight, b.dy, b.shape, false);
  DType t = b.x.dtype, sum = t == kFloat64 ? kFloat64 : kFloat32;
  Scratch memory(b.x.device, size_t(b.dweight.numel()) * size_of(sum));
  rows.for_pieces([&](const TensorView& a, int64_t first) {
    Gemm g;
    g.a = matrices(advanced(dy.view.data, t, first * O), t, b.x.device, G, Og, a.sizes[1], Og, 1, O);
    g.b = a;
    g.c = matrices(memory.as<void>(), sum, b.x.device, G, Og, rows.inner(), Og * rows.inner(), rows.inner(), 1);
    g.beta = first > 0 ? 1 : 0;
    multiply(g);
  });
  TensorView split, sums;
  int order[kMaxDims];
  LaidWeights::orders(b.dweight, G, false, split, order);
  sums = dense_in_order(split, memory.as<void>(), order);
  sums.dtype = sum;
  copy_on_device(split, sums);
}

// A row is never cut.
bool fits(const TensorView& weight, const ConvShape& s, int64_t channels) {
  int64_t inner = channels * s.groups;
  for (int d = 2; d < weight.ndim; ++d) inner *= weight.sizes[d];
  return is_floating(weight.dtype) && !is_float8(weight.dtype) && inner <= kMostOfARow;
}
bool supports_forward(const ConvForward& f) { return fits(f.weight, f.shape, f.weight.sizes[1]); }
bool supports_data(const ConvBackwardData& b) { return fits(b.weight, b.shape, b.weight.sizes[0] / b.shape.groups); }
bool supports_weights(const ConvBackwardWeights& b) {
  return is_floating(b.x.dtype) && !is_float8(b.x.dtype) && fits(b.dweight, b.shape, b.dweight.sizes[1]) && !b.dbias;
}

SF_KERNEL(conv_forward, DeviceType::CUDA, "native", 0, forward, supports_forward)
SF_KERNEL(conv_backward_data, DeviceType::CUDA, "native", 0, backward_data, supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CUDA, "native", 0, backward_weights, supports_weights)

}  // namespace
}  // namespace sf::cuda
