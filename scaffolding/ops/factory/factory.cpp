#include "scaffolding/ops/factory/factory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/kernel.h"

namespace sf {

constinit KernelTable<Fill> fill_kernel{"fill"};
constinit KernelTable<RangeFill> range_fill{"range"};

static void fill_bytes(const Tensor& t, const Scalar& value) {
  if (t.numel() == 0 || t.device().is_meta()) return;
  Fill f{t, value.to_double(), t.dtype() == kBool ? int64_t(value.to_bool()) : value.to_int()};
  auto kernel = fill_kernel.find(t.device(), f);
  SF_CHECK_AS(NotSupported, kernel, "fill: no kernel on ", t.device());
  kernel(f);
}

Tensor& Tensor::fill_(const Scalar& value) {
  if (autograd::any_requires_grad({*this})) return autograd::assign_inplace("fill_", *this, full_like(*this, value));
  autograd::check_inplace("fill_", *this);
  fill_bytes(*this, value);
  autograd::bump_version(*this);
  return *this;
}

Tensor full(const Shape& size, const Scalar& value, std::optional<DType> dtype, std::optional<Device> device,
            bool requires_grad) {
  Tensor t = empty(size, dtype.value_or(value.dtype()), device);
  fill_bytes(t, value);
  return requires_grad ? t.requires_grad_() : t;
}
Tensor zeros(const Shape& size, std::optional<DType> dtype, std::optional<Device> device, bool requires_grad) {
  return full(size, 0, dtype.value_or(default_dtype()), device, requires_grad);
}
Tensor ones(const Shape& size, std::optional<DType> dtype, std::optional<Device> device, bool requires_grad) {
  return full(size, 1, dtype.value_or(default_dtype()), device, requires_grad);
}
Tensor full_like(const Tensor& x, const Scalar& value, std::optional<DType> dtype) {
  check_defined("full_like", "input", x);
  Tensor t = empty_like(x, dtype);
  fill_bytes(t, value);
  return t;
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) { return full_like(x, 0, dtype); }
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) { return full_like(x, 1, dtype); }
Tensor scalar_tensor(const Scalar& value, std::optional<DType> dtype, std::optional<Device> device) {
  return full({}, value, dtype.value_or(value.dtype()), device);
}

template <class T> Tensor tensor(const std::vector<T>& values, const Shape& size, std::optional<DType> dtype) {
  SF_CHECK(numel(size) == int64_t(values.size()), "tensor: ", values.size(), " values do not fill the shape ", size);
  Tensor t = empty(size, dtype_of<T>::value, Device());
  std::copy(values.begin(), values.end(), t.data<T>());
  return to_device(to_dtype(t, dtype.value_or(dtype_of<T>::value)), default_device());
}
template Tensor tensor(const std::vector<float>&, const Shape&, std::optional<DType>);
template Tensor tensor(const std::vector<double>&, const Shape&, std::optional<DType>);
template Tensor tensor(const std::vector<int64_t>&, const Shape&, std::optional<DType>);
template Tensor tensor(const std::vector<int32_t>&, const Shape&, std::optional<DType>);
template Tensor tensor(const std::vector<uint8_t>&, const Shape&, std::optional<DType>);
template Tensor tensor(const std::vector<bool>&, const Shape&, std::optional<DType>);
Tensor tensor(std::initializer_list<double> values, std::optional<DType> dtype) {
  return tensor(std::vector<double>(values), {int64_t(values.size())}, dtype.value_or(default_dtype()));
}

namespace {

// In 64 bits on the device, then in the dtype asked for.
Tensor made_range(RangeFill r, bool reals, DType dtype, Device device) {
  Tensor x = empty({r.count}, reals ? kFloat64 : kInt64, device);
  r.device = device;
  if (device.is_meta() || r.count == 0) return to_dtype(x, dtype);
  if (reals) r.reals = x.data<double>();
  else r.integers = x.data<int64_t>();
  auto kernel = range_fill.find(device, r);
  SF_CHECK_AS(NotSupported, kernel, "arange: no kernel on ", device);
  kernel(r);
  return to_dtype(x, dtype);
}

}  // namespace

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, std::optional<DType> dtype,
              std::optional<Device> device) {
  bool whole = !start.is_float() && !end.is_float() && !step.is_float();
  SF_CHECK(step.to_double() != 0, "arange: step must not be 0");
  double span = end.to_double() - start.to_double();
  SF_CHECK(std::isfinite(span), "arange: bounds must be finite, got ", start.to_double(), " and ", end.to_double());
  SF_CHECK(span == 0 || (span > 0) == (step.to_double() > 0), "arange: from ", start.to_double(), " to ",
           end.to_double(), " does not go in steps of ", step.to_double());
  double count = std::ceil(span / step.to_double());
  SF_CHECK(count < 0x1p62, "arange: ", count, " elements are too many");
  DType t = dtype.value_or(whole ? kInt64 : default_dtype());
  RangeFill r{.count = int64_t(count), .start = start.to_double(), .step = step.to_double(), .whole = whole};
  if (whole) r.first = start.to_int(), r.stride = step.to_int();
  return made_range(r, is_floating(t), t, device.value_or(default_device()));
}

// Symmetric as in torch: the second half counts down from the end, so that both ends are exact.
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, std::optional<DType> dtype,
                std::optional<Device> device) {
  SF_CHECK(steps >= 0, "linspace: steps must not be negative, got ", steps);
  double a = start.to_double(), b = end.to_double();
  RangeFill r{.count = steps,
              .from_end = steps > 1 ? steps / 2 : 0,
              .start = a,
              .step = steps > 1 ? (b - a) / double(steps - 1) : 0,
              .last = b};
  return made_range(r, true, dtype.value_or(default_dtype()), device.value_or(default_device()));
}

Tensor eye(int64_t n, std::optional<int64_t> m, std::optional<DType> dtype, std::optional<Device> device) {
  int64_t columns = m.value_or(n);
  Tensor x = zeros({n, columns}, dtype, device);
  int64_t count = std::min(n, columns);
  if (count > 0) x.as_strided({count}, {columns + 1}).fill_(1);
  return x;
}

namespace {
void fill(const Fill& f) {
  cpu::StridedLoop loop{&f.dst};
  int64_t step = loop.strides[0][0];
  visit_dtype(f.dst.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    if constexpr (std::is_floating_point_v<T>) v = T(f.real);
    else if constexpr (std::is_integral_v<T>) v = T(f.integer);
    else v = from_float<T>(float(f.real));
    constexpr T kZero{};
    const bool zeros = std::memcmp(&v, &kZero, sizeof v) == 0;
    loop.run(1 << 15, [&](char* const* p, int64_t n) {
      if (step == sizeof(T) && zeros) std::memset(p[0], 0, size_t(n) * sizeof(T));
      else if (step == sizeof(T)) std::fill_n(reinterpret_cast<T*>(p[0]), n, v);
      else
        for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(p[0] + i * step) = v;
    });
  });
}
SF_KERNEL(fill_kernel, DeviceType::CPU, "native", 0, fill, nullptr)

void fill_range(const RangeFill& r) {
  parallel_for(r.count, 1 << 15, [&](int64_t begin, int64_t end) {
    if (r.whole && r.integers) {
      for (int64_t i = begin; i < end; ++i) r.integers[i] = r.first + i * r.stride;
      return;
    }
    const int64_t turn = r.from_end > 0 ? std::clamp(r.from_end, begin, end) : end;
    auto fill = [&](auto* to) {
      using T = std::remove_reference_t<decltype(*to)>;
      for (int64_t i = begin; i < turn; ++i) to[i] = T(r.start + double(i) * r.step);
      for (int64_t i = turn; i < end; ++i) to[i] = T(r.last - r.step * double(r.count - 1 - i));
    };
    if (r.reals) fill(r.reals);
    else fill(r.integers);
  });
}
SF_KERNEL(range_fill, DeviceType::CPU, "native", 0, fill_range, nullptr)
}  // namespace

}  // namespace sf
