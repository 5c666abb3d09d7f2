#include "scaffolding/ops/unfold/unfold.h"

#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/unfold/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Unfold> unfold_kernel{"unfold"};
constinit KernelTable<Unfold> fold_kernel{"fold"};

namespace {

void read(const char* op, const char* name, const Shape& values, int64_t least, int64_t* to) {
  SF_CHECK(values.size() == 1 || values.size() == 2, op, ": ", name, " must have one entry or 2, got ", values);
  for (int i = 0; i < 2; ++i) {
    to[i] = values[values.size() == 1 ? 0 : i];
    SF_CHECK(to[i] >= least && to[i] < (int64_t(1) << 31), op, ": ", name, " must be at least ", least, ", got ",
             values);
  }
}

struct Arguments {
  Shape kernel, dilation, padding, stride;
};
Unfold geometry(const char* op, const Arguments& a, int64_t height, int64_t width) {
  Unfold u{};
  u.size[0] = height;
  u.size[1] = width;
  read(op, "kernel_size", a.kernel, 1, u.kernel);
  read(op, "dilation", a.dilation, 1, u.dilation);
  read(op, "padding", a.padding, 0, u.padding);
  read(op, "stride", a.stride, 1, u.stride);
  for (int i = 0; i < 2; ++i) {
    int64_t room;
    bool fits = !__builtin_mul_overflow(u.kernel[i] - 1, u.dilation[i], &room) &&
                !__builtin_sub_overflow(u.size[i] + 2 * u.padding[i] - 1, room, &room);
    SF_CHECK(fits && room >= 0, op, ": the kernel ", a.kernel, " with dilation ", a.dilation, " does not fit into ",
             height, " x ", width, " with padding ", a.padding);
    u.out[i] = room / u.stride[i] + 1;
  }
  return u;
}

Tensor columns_of(const Tensor& x, const Arguments& a);

// y[N, C, H, W] from columns[N, C * kh * kw, L].
Tensor image_of(const Tensor& columns, int64_t height, int64_t width, const Arguments& a) {
  Unfold u = geometry("fold", a, height, width);
  int64_t n = columns.shape()[0], taps = u.kernel[0] * u.kernel[1], c = columns.shape()[1] / taps;
  // windows overlap: sums of 16-bit floats need float32
  DType wide = columns.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor y = empty({n, c, height, width}, wide, columns.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Tensor dense = contiguous(to_dtype(columns, wide));
    u.image = y.data_ptr();
    u.columns = dense.data_ptr();
    u.dtype = wide;
    u.planes = n * c;
    auto kernel = fold_kernel.find(y.device(), u);
    SF_CHECK_AS(NotSupported, kernel, "fold: no kernel on ", y.device());
    kernel(u);
    y = to_dtype(y, columns.dtype());
  } else {
    y = empty(y.shape(), columns.dtype(), columns.device());
  }
  return autograd::record("fold", y, {columns}, [a](const Tensor& dy) -> Tensors { return {columns_of(dy, a)}; });
}

Tensor columns_of(const Tensor& x, const Arguments& a) {
  int64_t n = x.shape()[0], c = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  Unfold u = geometry("unfold", a, height, width);
  int64_t rows, columns;
  SF_CHECK(!__builtin_mul_overflow(c * u.kernel[0], u.kernel[1], &rows) &&
               !__builtin_mul_overflow(u.out[0], u.out[1], &columns),
           "unfold: the result is too large");
  Tensor y = empty({n, rows, columns}, x.dtype(), x.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Tensor dense = contiguous(x);
    u.image = dense.data_ptr();
    u.columns = y.data_ptr();
    u.dtype = x.dtype();
    u.planes = n * c;
    auto kernel = unfold_kernel.find(y.device(), u);
    SF_CHECK_AS(NotSupported, kernel, "unfold: no kernel on ", y.device());
    kernel(u);
  }
  return autograd::record("unfold", y, {x},
                          [a, height, width](const Tensor& dy) -> Tensors { return {image_of(dy, height, width, a)}; });
}

}  // namespace

Tensor unfold(const Tensor& input, const Shape& kernel_size, const Shape& dilation, const Shape& padding,
              const Shape& stride) {
  check_defined("unfold", "input", input);
  SF_CHECK(input.ndim() == 3 || input.ndim() == 4, "unfold: input must be [N, C, H, W] or [C, H, W], got ",
           input.shape());
  Tensor y = columns_of(input.ndim() == 3 ? input.unsqueeze(0) : input, {kernel_size, dilation, padding, stride});
  return input.ndim() == 3 ? y.squeeze(0) : y;
}

Tensor fold(const Tensor& input, const Shape& output_size, const Shape& kernel_size, const Shape& dilation,
            const Shape& padding, const Shape& stride) {
  check_defined("fold", "input", input);
  check_floating("fold", "input", input);
  SF_CHECK(input.ndim() == 2 || input.ndim() == 3, "fold: input must be [N, C * kernel, L] or [C * kernel, L], got ",
           input.shape());
  int64_t size[2];
  read("fold", "output_size", output_size, 1, size);
  Arguments a{kernel_size, dilation, padding, stride};
  Unfold u = geometry("fold", a, size[0], size[1]);
  Tensor x = input.ndim() == 2 ? input.unsqueeze(0) : input;
  SF_CHECK(x.shape()[1] % (u.kernel[0] * u.kernel[1]) == 0, "fold: dimension ", input.ndim() - 2, " of ", input.shape(),
           " must be a multiple of the kernel's size, ", u.kernel[0] * u.kernel[1]);
  SF_CHECK(x.shape()[2] == u.out[0] * u.out[1], "fold: output_size ", output_size, " has ", u.out[0], " x ", u.out[1],
           " places for the kernel, but input is ", input.shape());
  Tensor y = image_of(x, size[0], size[1], a);
  return input.ndim() == 2 ? y.squeeze(0) : y;
}

Tensor unfold_dim(const Tensor& input, int64_t dimension, int64_t size, int64_t step) {
  check_defined("unfold_dim", "input", input);
  int64_t d = wrap_dim("unfold_dim", dimension, input.ndim()), n = input.ndim() ? input.shape()[d] : 1;
  SF_CHECK(size >= 0 && size <= n, "unfold_dim: size must be between 0 and ", n, ", the size of dimension ", d, " of ",
           input.shape(), ", got ", size);
  SF_CHECK(step > 0, "unfold_dim: step must be positive, got ", step);
  Shape sizes = input.shape(), strides = input.strides();
  int64_t stride = input.ndim() ? strides[d] : 1, windows = (n - size) / step + 1;
  if (input.ndim()) {
    sizes[d] = windows;
    strides[d] = windows > 1 ? stride * step : stride;
  }
  sizes.push_back(size);
  strides.push_back(stride);
  (void)numel(sizes);  // overflow
  Tensor y = Tensor::strided(input.storage(), sizes, strides, input.storage_offset(), input.dtype());
  autograd::mark_view(y, input);
  return autograd::record(
      "unfold_dim", y, {input}, [full = input.shape(), d, size, step, windows](const Tensor& dy) -> Tensors {
        if (full.empty()) return {size ? dy.reshape(full) : zeros(full, dy.dtype(), dy.device())};
        // Windows overlap: entry k of window i is added to position i * step + k.
        Tensor rows = movedim(dy, {-1}, {d + 1});
        Tensor position =
            (arange(0, windows, 1, kInt64, dy.device()) * step).unsqueeze(-1) + arange(0, size, 1, kInt64, dy.device());
        return {index_add(zeros(full, dy.dtype(), dy.device()), d, position.reshape({-1}), rows.flatten(d, d + 1))};
      });
}

SF_OP(unfold, "input, kernel_size, dilation=1, padding=0, stride=1")
    .doc("im2col: a column of C * kh * kw numbers for each place of the kernel.")
    .like("torch.nn.functional.unfold")
    .kernels(unfold_kernel, fold_kernel);
SF_OP(fold, "input, output_size, kernel_size, dilation=1, padding=0, stride=1")
    .doc("col2im: columns added up into an image.")
    .like("torch.nn.functional.fold")
    .kernels(fold_kernel, unfold_kernel);
SF_OP(unfold_dim, "input, dimension, size, step")
    .doc("Windows of `size` entries of a dimension, `step` apart, as a view.")
    .like("input.unfold(dimension, size, step)");

namespace {

// The columns x of an output row whose source x * stride + offset lies in [0, width).
struct Inside {
  int64_t begin, end;
};
Inside inside(int64_t offset, int64_t stride, int64_t width, int64_t out) {
  int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride,
          end = offset >= width ? 0 : (width - offset + stride - 1) / stride;
  begin = std::min(begin, out);
  return {begin, std::clamp(end, begin, out)};
}

template <class U> void unfold_as(const Unfold& u) {
  int64_t taps = u.kernel[0] * u.kernel[1], block = u.out[0] * u.out[1];
  parallel_for(u.planes * taps, std::max<int64_t>(1, (1 << 14) / block), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t j = r % u.kernel[1], i = r / u.kernel[1] % u.kernel[0];
      const U* image = static_cast<const U*>(u.image) + r / taps * u.size[0] * u.size[1];
      int64_t offset = j * u.dilation[1] - u.padding[1];
      Inside in = inside(offset, u.stride[1], u.size[1], u.out[1]);
      for (int64_t y = 0; y < u.out[0]; ++y) {
        U* out = static_cast<U*>(u.columns) + r * block + y * u.out[1];
        int64_t row = y * u.stride[0] - u.padding[0] + i * u.dilation[0];
        if (row < 0 || row >= u.size[0]) {
          std::memset(out, 0, size_t(u.out[1]) * sizeof(U));
          continue;
        }
        const U* from = image + row * u.size[1] + offset;
        std::memset(out, 0, size_t(in.begin) * sizeof(U));
        if (u.stride[1] == 1) std::memcpy(out + in.begin, from + in.begin, size_t(in.end - in.begin) * sizeof(U));
        else
          for (int64_t x = in.begin; x < in.end; ++x) out[x] = from[x * u.stride[1]];
        std::memset(out + in.end, 0, size_t(u.out[1] - in.end) * sizeof(U));
      }
    }
  });
}
void unfold_cpu(const Unfold& u) {
  switch (size_of(u.dtype)) {
    case 1: return unfold_as<uint8_t>(u);
    case 2: return unfold_as<uint16_t>(u);
    case 4: return unfold_as<uint32_t>(u);
    default: return unfold_as<uint64_t>(u);
  }
}

// A plane at a time, kernel place by kernel place: the order of additions does not depend on threads.
template <class T> void fold_as(const Unfold& u) {
  int64_t taps = u.kernel[0] * u.kernel[1], block = u.out[0] * u.out[1], plane = u.size[0] * u.size[1];
  parallel_for(u.planes, std::max<int64_t>(1, (1 << 14) / (block * taps)), [&](int64_t b, int64_t e) {
    for (int64_t p = b; p < e; ++p) {
      T* image = static_cast<T*>(u.image) + p * plane;
      std::fill_n(image, plane, T(0));
      for (int64_t t = 0; t < taps; ++t) {
        const T* columns = static_cast<const T*>(u.columns) + (p * taps + t) * block;
        int64_t offset = t % u.kernel[1] * u.dilation[1] - u.padding[1];
        Inside in = inside(offset, u.stride[1], u.size[1], u.out[1]);
        for (int64_t y = 0; y < u.out[0]; ++y) {
          int64_t row = y * u.stride[0] - u.padding[0] + t / u.kernel[1] * u.dilation[0];
          if (row < 0 || row >= u.size[0]) continue;
          T* to = image + row * u.size[1] + offset;
          const T* from = columns + y * u.out[1];
          if (u.stride[1] == 1)
            for (int64_t x = in.begin; x < in.end; ++x) to[x] += from[x];
          else
            for (int64_t x = in.begin; x < in.end; ++x) to[x * u.stride[1]] += from[x];
        }
      }
    }
  });
}
void fold_cpu(const Unfold& u) {
  if (u.dtype == kFloat64) fold_as<double>(u);
  else fold_as<float>(u);
}

SF_KERNEL(unfold_kernel, DeviceType::CPU, "native", 0, unfold_cpu, nullptr)
SF_KERNEL(fold_kernel, DeviceType::CPU, "native", 0, fold_cpu, nullptr)

}  // namespace
}  // namespace sf
