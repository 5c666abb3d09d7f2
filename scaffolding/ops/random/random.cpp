#include "scaffolding/ops/random/random.h"

#include <cmath>
#include <functional>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/philox_numbers.h"
#include "scaffolding/ops/random/streams.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

Generator generator_or_default(const char* op, const Generator& g, Device device) {
  if (!g) return default_generator(device);
  SF_CHECK(g->device.is_cpu() == device.is_cpu() || device.is_meta(), op, ": the generator is of ", g->device,
           ", the tensor on ", device);
  return g;
}

// Dimensions in the order torch fills them: by falling stride, so that a permuted tensor is filled in memory order.
Shape fill_order(const Tensor& t) {
  Shape order;
  for (int64_t i = 0; i < t.ndim(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    int64_t sa = t.strides()[a], sb = t.strides()[b];
    return sa != sb ? sa > sb : t.shape()[a] < t.shape()[b];
  });
  return order;
}

// What is drawn: by a call of the generator into host memory, or by a kernel where the tensor is. Without `there` the
// host draws for every device.
struct Draw {
  std::function<void(const Generator&, Tensor& flat, bool one_by_one)> here;
  std::optional<PhiloxDraw> there = {};  // dtype, place and number are filled in
  // what no PhiloxDraw describes; false where it cannot
  std::function<bool(const Generator&, const Tensor& dense)> elsewhere = {};
};

// On the tensor's own device, where it has a kernel and the generator is torch's CUDA stream.
bool fill_there(const Generator& g, const Tensor& ordered, const Draw& draw) {
  if (ordered.device().is_cpu() || philox_kernel.count(ordered.device().type) == 0) return false;
  Tensor dense = ordered.is_contiguous() ? ordered : empty(ordered.shape(), ordered.dtype(), ordered.device());
  if (draw.elsewhere) {
    if (!draw.elsewhere(g, dense)) return false;
    if (!ordered.is_contiguous()) copy_bytes(ordered, dense);
    return true;
  }
  if (!draw.there) return false;
  PhiloxDraw d = *draw.there;
  d.dtype = ordered.dtype(), d.out = dense.data_ptr(), d.n = dense.numel();
  auto kernel = philox_kernel.find(dense.device(), d);
  if (!kernel || !reserve_philox(g, d)) return false;
  kernel(d);
  if (!ordered.is_contiguous()) copy_bytes(ordered, dense);
  return true;
}

// Calls draw on a dense tensor that holds t's elements in fill order.
void fill_bytes(const char* op, const Tensor& t, const Generator& given, const Draw& draw) {
  Generator g = generator_or_default(op, given, t.device());
  if (t.numel() == 0 || t.device().is_meta()) return;
  autograd::NoGrad off;
  Tensor ordered = t.is_contiguous() ? t : permute(t, fill_order(t));
  if (fill_there(g, ordered, draw)) return;
  refuse_host_draw(op, t.device());
  bool direct = ordered.is_contiguous() && t.device().is_cpu();
  Tensor dense = direct ? ordered : empty(ordered.shape(), t.dtype());
  draw.here(g, dense, !t.is_contiguous());
  if (!direct) copy_bytes(ordered, dense);
}

// Writes new values over input; what it was gets a gradient of zero.
Tensor fill_inplace(const char* op, Tensor& input, const Generator& generator, const Draw& draw) {
  if (autograd::any_requires_grad({input})) {
    Tensor fresh = empty_like(input);
    fill_bytes(op, fresh, generator, draw);
    return autograd::assign_inplace(op, input, fresh);
  }
  autograd::check_inplace(op, input);
  fill_bytes(op, input, generator, draw);
  autograd::bump_version(input);
  return input;
}

Draw uniform_draw(double low, double high) {
  return {[=](const Generator& g, Tensor& t, bool) { g->uniform(t.dtype(), t.data_ptr(), t.numel(), low, high); },
          PhiloxDraw{.what = PhiloxDraw::What::Uniform, .a = low, .b = high}};
}
Draw normal_draw(double mean, double std) {
  return {[=](const Generator& g, Tensor& t, bool one_by_one) {
            g->normal(t.dtype(), t.data_ptr(), t.numel(), mean, std, one_by_one);
          },
          PhiloxDraw{.what = PhiloxDraw::What::Normal, .a = mean, .b = std}};
}

// The smallest and largest integers that a dtype holds, all between them exactly.
struct IntegerRange {
  int64_t low, high;
};
IntegerRange exact_integers(const char* op, DType t) {
  switch (t) {
    case kBool: return {0, 1};
    case kUInt8: return {0, 255};
    case kInt8: return {-128, 127};
    case kInt16: return {-32768, 32767};
    case kInt32: return {INT32_MIN, INT32_MAX};
    case kInt64: return {INT64_MIN, INT64_MAX};
    case kFloat16: return {-(1 << 11), 1 << 11};
    case kBFloat16: return {-(1 << 8), 1 << 8};
    case kFloat32: return {-(1 << 24), 1 << 24};
    case kFloat64: return {-(int64_t(1) << 53), int64_t(1) << 53};
    default: fail<TypeError>(op, ": ", t, " is storage only; convert afterwards");
  }
}

Draw integer_draw(const char* op, DType t, int64_t low, int64_t high) {
  SF_CHECK(low < high, op, ": low must be less than high, got low=", low, " and high=", high);
  IntegerRange fits = exact_integers(op, t);
  int64_t largest = is_floating(t) ? INT64_MAX : fits.high;  // floats round what they cannot hold, as in torch
  SF_CHECK((is_floating(t) || low >= fits.low) && high - 1 <= largest, op, ": [", low, ", ", high,
           ") is out of range for ", t);
  uint64_t range = uint64_t(high) - uint64_t(low);
  return {[=](const Generator& g, Tensor& x, bool) { g->integers(x.dtype(), x.data_ptr(), x.numel(), range, low); },
          philox_integers(t, range, low)};
}

Tensor finished(Tensor t, bool requires_grad) { return requires_grad ? t.requires_grad_() : t; }

void check_uniform(const char* op, const Tensor& t, double low, double high) {
  check_defined(op, "input", t);
  check_floating(op, "input", t);
  SF_CHECK(low <= high && high - low <= 1.7e308, op, ": low must not be above high, both finite, got low=", low,
           " and high=", high);
}

void check_probabilities(const char* op, const Tensor& p) {
  check_floating(op, "p", p);
  if (p.device().is_meta() || p.numel() == 0) return;
  if (p.device().is_cuda() &&
      indexing::all_hold(op, logical_and(ge(p.detach(), wrapped(0)), le(p.detach(), wrapped(1)))))
    return;
  for (double v : p.to_vector()) SF_CHECK(v >= 0 && v <= 1, op, ": probabilities must be between 0 and 1, got ", v);
}

}  // namespace

Tensor uniform_(Tensor input, double low, double high, const Generator& generator) {
  check_uniform("uniform_", input, low, high);
  return fill_inplace("uniform_", input, generator, uniform_draw(low, high));
}
Tensor normal_(Tensor input, double mean, double std, const Generator& generator) {
  check_defined("normal_", "input", input);
  check_floating("normal_", "input", input);
  SF_CHECK(std >= 0, "normal_: std must not be negative, got ", std);
  return fill_inplace("normal_", input, generator, normal_draw(mean, std));
}
Tensor exponential_(Tensor input, double lambd, const Generator& generator) {
  check_defined("exponential_", "input", input);
  check_floating("exponential_", "input", input);
  SF_CHECK(lambd > 0, "exponential_: lambd must be positive, got ", lambd);
  return fill_inplace(
      "exponential_", input, generator,
      {[=](const Generator& g, Tensor& t, bool) { g->exponential(t.dtype(), t.data_ptr(), t.numel(), lambd); },
       PhiloxDraw{.what = PhiloxDraw::What::Exponential, .a = lambd}});
}

Tensor random_(Tensor input, std::optional<int64_t> low, std::optional<int64_t> high, const Generator& generator) {
  check_defined("random_", "input", input);
  IntegerRange fits = exact_integers("random_", input.dtype());
  if (low && high)
    return fill_inplace("random_", input, generator, integer_draw("random_", input.dtype(), *low, *high));
  if (high) return fill_inplace("random_", input, generator, integer_draw("random_", input.dtype(), 0, *high));
  if (!low)
    return fill_inplace(
        "random_", input, generator,
        {[](const Generator& g, Tensor& t, bool) { g->integers_natural(t.dtype(), t.data_ptr(), t.numel()); },
         philox_natural_integers(input.dtype())});
  if (*low == INT64_MIN && input.dtype() == kInt64)
    return fill_inplace(
        "random_", input, generator,
        {[](const Generator& g, Tensor& t, bool) { g->integers_full(t.dtype(), t.data_ptr(), t.numel()); },
         PhiloxDraw{.what = PhiloxDraw::What::WideIntegers}});
  SF_CHECK(*low >= fits.low && *low <= fits.high, "random_: low=", *low, " is out of range for ", input.dtype());
  uint64_t range = uint64_t(fits.high) - uint64_t(*low) + 1;
  return fill_inplace("random_", input, generator,
                      {[range, low = *low](const Generator& g, Tensor& t, bool) {
                         g->integers(t.dtype(), t.data_ptr(), t.numel(), range, low);
                       },
                       philox_integers(input.dtype(), range, *low)});
}

void refuse_host_draw(const char* op, Device device) {
  SF_CHECK_AS(RuntimeError, !device.is_cuda() || !cuda::CudaGraph::recording(), op,
              ": is drawn on the host, which cannot be part of a CUDA graph: every replay would repeat it; draw "
              "before, or from rand(), which can");
}

Tensor bernoulli_(Tensor input, const Tensor& p, const Generator& generator) {
  check_defined("bernoulli_", "input", input);
  check_defined("bernoulli_", "p", p);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), "bernoulli_: ", input.dtype(),
              " is storage only; convert afterwards");
  if (p.impl()->is_scalar) {
    double chance = p.item();
    SF_CHECK(chance >= 0 && chance <= 1, "bernoulli_: p must be between 0 and 1, got ", chance);
    return fill_inplace(
        "bernoulli_", input, generator,
        {[chance](const Generator& g, Tensor& t, bool) { g->bernoulli(t.dtype(), t.data_ptr(), t.numel(), chance); },
         PhiloxDraw{.what = PhiloxDraw::What::Bernoulli, .a = chance}});
  }
  SF_CHECK(broadcast_shapes("bernoulli_", p.shape(), input.shape()) == input.shape(), "bernoulli_: p of shape ",
           p.shape(), " does not broadcast to ", input.shape());
  check_probabilities("bernoulli_", p);
  auto chances = [p = p.detach(), order = input.is_contiguous() ? Shape() : fill_order(input), size = input.shape()](
                     Device where, DType t) {
    Tensor wide = p.to(where).to(t).expand(size);
    return contiguous(order.empty() ? wide : permute(wide, order));
  };
  return fill_inplace("bernoulli_", input, generator,
                      {.here =
                           [=, given = p.dtype()](const Generator& g, Tensor& t, bool) {
                             Tensor c = chances(Device(), given);
                             g->bernoulli(t.dtype(), t.data_ptr(), t.numel(), c.dtype(), c.data_ptr());
                           },
                       .elsewhere =
                           [=](const Generator& g, const Tensor& dense) {
                             if (std::string_view(g->algorithm()) != "philox") return false;
                             Tensor c = chances(dense.device(), dense.dtype() == kFloat64 ? kFloat64 : kFloat32);
                             PhiloxChances draw{dense, c, {}};
                             auto kernel = philox_chances.find(dense.device(), draw);
                             if (!kernel) return false;
                             draw.place = *reserve_philox(g, philox::kChancesCounters);
                             kernel(draw);
                             return true;
                           }});
}

Tensor bernoulli(const Tensor& input, std::optional<double> p, const Generator& generator) {
  check_defined("bernoulli", "input", input);
  return bernoulli_(empty_like(input), p ? wrapped(*p) : input.detach(), generator);
}

Tensor rand(const Shape& size, const Generator& generator, std::optional<DType> dtype, std::optional<Device> device,
            bool requires_grad) {
  Tensor t = empty(size, dtype, device);
  check_floating("rand", "dtype", t);
  fill_bytes("rand", t, generator, uniform_draw(0, 1));
  return finished(t, requires_grad);
}
Tensor randn(const Shape& size, const Generator& generator, std::optional<DType> dtype, std::optional<Device> device,
             bool requires_grad) {
  Tensor t = empty(size, dtype, device);
  check_floating("randn", "dtype", t);
  fill_bytes("randn", t, generator, normal_draw(0, 1));
  return finished(t, requires_grad);
}
Tensor randint(int64_t low, int64_t high, const Shape& size, const Generator& generator, std::optional<DType> dtype,
               std::optional<Device> device, bool requires_grad) {
  Draw draw = integer_draw("randint", dtype.value_or(kInt64), low, high);
  Tensor t = empty(size, dtype.value_or(kInt64), device);
  fill_bytes("randint", t, generator, draw);
  return finished(t, requires_grad);
}

// Philox::permutation by kernels.
static Tensor permutation_there(int64_t n, const Generator& g, Device where) {
  autograd::NoGrad off;
  int bits = philox::key_bits(n);
  bool narrow = bits <= 32;
  Tensor keys = narrow ? randint(INT32_MIN, INT32_MAX, {n}, g, kInt32, where)
                       : randint(INT64_MIN, INT64_MAX, {n}, g, kInt64, where);
  if (bits < (narrow ? 32 : 64)) keys = bitwise_and(keys, full({}, (int64_t(1) << bits) - 1, keys.dtype(), where));
  auto [sorted, order] = sort(keys);
  PhiloxShuffle shuffle{sorted, order, {}};
  auto kernel = philox_shuffle.find(where, shuffle);
  SF_CHECK_AS(NotSupported, kernel, "randperm: no kernel on ", where);
  shuffle.place = *reserve_philox(g, uint64_t(n + 3) / 4);
  kernel(shuffle);
  return order;
}

Tensor randperm(int64_t n, const Generator& generator, std::optional<DType> dtype, std::optional<Device> device,
                bool requires_grad) {
  DType t = dtype.value_or(kInt64);
  SF_CHECK(n >= 0, "randperm: n must not be negative, got ", n);
  SF_CHECK(n - 1 <= exact_integers("randperm", t).high, "randperm: ", t, " cannot hold ", n - 1);
  Device where = device.value_or(default_device());
  Generator g = generator_or_default("randperm", generator, where);
  if (n > 0 && where.is_cuda() && std::string_view(g->algorithm()) == "philox")
    return finished(to_dtype(permutation_there(n, g, where), t), requires_grad);
  if (n > 0) refuse_host_draw("randperm", where);
  Tensor order = empty({n}, kInt64, where.is_meta() ? where : Device());
  if (n > 0 && !where.is_meta()) g->permutation(order.data<int64_t>(), n);
  return finished(to_device(to_dtype(order, t), where), requires_grad);
}

Tensor rand_like(const Tensor& input, const Generator& generator, std::optional<DType> dtype) {
  check_defined("rand_like", "input", input);
  Tensor t = empty_like(input, dtype);
  check_floating("rand_like", "dtype", t);
  fill_bytes("rand_like", t, generator, uniform_draw(0, 1));
  return t;
}
Tensor randn_like(const Tensor& input, const Generator& generator, std::optional<DType> dtype) {
  check_defined("randn_like", "input", input);
  Tensor t = empty_like(input, dtype);
  check_floating("randn_like", "dtype", t);
  fill_bytes("randn_like", t, generator, normal_draw(0, 1));
  return t;
}
Tensor randint_like(const Tensor& input, int64_t low, int64_t high, const Generator& generator,
                    std::optional<DType> dtype) {
  check_defined("randint_like", "input", input);
  Tensor t = empty_like(input, dtype);
  fill_bytes("randint_like", t, generator, integer_draw("randint_like", t.dtype(), low, high));
  return t;
}

Tensor normal(const Tensor& mean, const Tensor& std, const std::optional<Shape>& size, const Generator& generator) {
  check_defined("normal", "mean", mean);
  check_defined("normal", "std", std);
  if (mean.impl()->is_scalar && std.impl()->is_scalar) {
    SF_CHECK(size, "normal: two numbers need a size");
    return normal_(empty(*size), mean.item(), std.item(), generator);
  }
  SF_CHECK(!size, "normal: size belongs to calls with two numbers; tensors bring their shape");
  DType t = result_type(mean, std);
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), "normal: mean and std must be floating-point, got ",
              mean.dtype(), " and ", std.dtype());
  check_same_device("normal", mean.impl()->is_scalar ? std : mean, std.impl()->is_scalar ? mean : std);
  if (!std.device().is_meta() &&
      !(std.device().is_cuda() && indexing::all_hold("normal", ge(std.detach(), wrapped(0)))))
    for (double v : std.to_vector()) SF_CHECK(v >= 0, "normal: std must not be negative, got ", v);
  Tensor y = empty(broadcast_shapes("normal", mean.shape(), std.shape()), t,
                   mean.impl()->is_scalar ? std.device() : mean.device());
  fill_bytes("normal", y, generator, normal_draw(0, 1));
  return y.mul_(std.detach()).add_(mean.detach());
}

SF_OP(rand, "size, generator=None, dtype=None, device=None, requires_grad=False")
    .doc("Uniform numbers of [0, 1).")
    .no_gradient()
    .random();
SF_OP(randn, "size, generator=None, dtype=None, device=None, requires_grad=False")
    .doc("Normal numbers of mean 0 and deviation 1.")
    .no_gradient()
    .random()
    .kernels(box_muller_kernel);
SF_OP(randint, "low, high, size, generator=None, dtype=None, device=None, requires_grad=False")
    .doc("Integers of [low, high); int64 unless said.")
    .no_gradient()
    .random();
SF_OP(randperm, "n, generator=None, dtype=None, device=None, requires_grad=False")
    .doc("0 .. n-1 in random order.")
    .no_gradient()
    .random()
    .kernels(philox_shuffle);
SF_OP(rand_like, "input, generator=None, dtype=None")
    .doc("Uniform numbers of [0, 1) in input's shape and layout.")
    .no_gradient()
    .random();
SF_OP(randn_like, "input, generator=None, dtype=None")
    .doc("Normal numbers in input's shape and layout.")
    .no_gradient()
    .random()
    .kernels(box_muller_kernel);
SF_OP(randint_like, "input, low, high, generator=None, dtype=None")
    .doc("Integers of [low, high) in input's shape and layout.")
    .no_gradient()
    .random();
SF_OP(normal, "mean, std, size=None, generator=None")
    .doc("Normal numbers; mean and std are tensors that broadcast, or two numbers with a size.")
    .no_gradient()
    .random()
    .kernels(box_muller_kernel);
SF_OP(bernoulli, "input, p=None, generator=None")
    .doc("1 with probability input (or p), else 0.")
    .no_gradient()
    .random()
    .kernels(philox_chances);
SF_OP(uniform_, "input, low=0.0, high=1.0, generator=None")
    .doc("Fills input with uniform numbers of [low, high).")
    .no_gradient()
    .random()
    .kernels(uniform_range_kernel);
SF_OP(normal_, "input, mean=0.0, std=1.0, generator=None")
    .doc("Fills input with normal numbers.")
    .no_gradient()
    .random()
    .kernels(box_muller_kernel);
SF_OP(random_, "input, low=None, high=None, generator=None")
    .doc("Fills input with integers of [low, high), or all its dtype counts to from 0.")
    .no_gradient()
    .random();
SF_OP(bernoulli_, "input, p=0.5, generator=None")
    .doc("Fills input with 1 at probability p (a number or a tensor that broadcasts), else 0.")
    .no_gradient()
    .random()
    .kernels(philox_chances);
SF_OP(exponential_, "input, lambd=1.0, generator=None")
    .doc("Fills input with exponentially distributed numbers of rate lambd.")
    .no_gradient()
    .random();

}  // namespace sf
