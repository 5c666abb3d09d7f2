#include "scaffolding/ops/fuse/fuse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {
namespace {

Tensor gate(const Tensor& x, const Tensor& a, const Tensor& b) { return silu(x * a + b) / 3; }

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.strides() != b.strides() || a.dtype() != b.dtype()) return false;
  return a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

template <class F> std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Fuse, gives_the_bits_of_the_unfused_ops) {
  auto fused = fuse(&gate);
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    Tensor x = to_dtype(randn({70, 1030}), t), a = to_dtype(randn({1030}), t), b = to_dtype(randn({70, 1}), t);
    EXPECT_TRUE(same_bits(fused(x, a, b), gate(x, a, b))) << name(t);
    EXPECT_TRUE(same_bits(fused(x.transpose(0, 1), b.transpose(0, 1), a.unsqueeze(1)),
                          gate(x.transpose(0, 1), b.transpose(0, 1), a.unsqueeze(1))))
        << name(t);
  }
}

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

// x.numel() values from -8 to 8, with the ends of the format, both zeros,
// infinities and NaN among them where there are enough.
Tensor values(const Shape& size, DType t) {
  Tensor x = randn(size) * 2.5;
  const float special[] = {0.f,    -0.f,    INFINITY, -INFINITY, NAN,   1e-40f, -1e-40f, 3e38f,
                           -3e38f, 65504.f, 1e-7f,    88.f,      -88.f, 1.f,    -1.f,    0.5f};
  for (int64_t i = 0; i < x.numel(); ++i)
    if (i % 37 == 36) x.data<float>()[i] = special[i / 37 % 16];
  return to_dtype(x, t);
}

// The same bits, or NaN in both: which of two NaN comes out of an addition is the compiler's choice.
bool same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.strides() != b.strides() || a.dtype() != b.dtype()) return false;
  if (same_bits(a, b)) return true;
  if (!is_floating(a.dtype())) return false;
  const size_t item = size_of(a.dtype());
  Tensor da = to_dtype(a, kFloat64), db = to_dtype(b, kFloat64);
  for (int64_t i = 0; i < a.numel(); ++i) {
    double u = da.data<double>()[i], v = db.data<double>()[i];
    if (!(u != u && v != v) && std::memcmp(static_cast<const char*>(a.data_ptr()) + size_t(i) * item,
                                           static_cast<const char*>(b.data_ptr()) + size_t(i) * item, item) != 0)
      return false;
  }
  return true;
}

const int64_t kSizes[] = {0, 1, 7, 255, 257, 1300};
const DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

TEST(Fuse, every_op_of_one_tensor) {
  const std::pair<const char*, Unary> ops[] = {
#define SF_UNARY(name, ...) {#name, [](const Tensor& x) { return name(x); }},
#define SF_UNARY_P(...)
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.3); }},
      {"elu", [](const Tensor& x) { return elu(x, 1.7); }},
      {"softplus", [](const Tensor& x) { return softplus(x, 1.5, 4); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.7, 1.3); }},
      {"to float32", [](const Tensor& x) { return to_dtype(x, kFloat32); }},
      {"to bfloat16", [](const Tensor& x) { return to_dtype(x, kBFloat16); }},
      {"to float16", [](const Tensor& x) { return to_dtype(x, kFloat16); }},
  };
  for (auto& [name, op] : ops)
    for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64, kUInt8}) {
      // in the middle, where it is rounded, and at the end
      auto f = [op = op](const Tensor& x) { return op(op(x)) * x; };
      auto fused = fuse(f);
      auto alone = fuse([op = op](const Tensor& x) { return op(x + x); });
      for (int64_t n : kSizes) {
        Tensor x = is_floating(t) ? values({n}, t) : to_dtype(clamp(randn({n}) * 20, 0, 100), t);
        EXPECT_TRUE(same(fused(x), f(x))) << name << ' ' << sf::name(t) << ' ' << n;
        EXPECT_TRUE(same(alone(x), op(x + x))) << name << ' ' << sf::name(t) << ' ' << n;
      }
    }
}

TEST(Fuse, every_op_of_two_tensors) {
  const std::pair<const char*, Binary> ops[] = {
#define SF_BINARY(name, ...) {#name, [](const Tensor& a, const Tensor& b) { return name(a, b); }},
#define SF_BINARY_P(...)
#define SF_COMPARE(name, ...) {#name, [](const Tensor& a, const Tensor& b) { return where(name(a, b), a, b * 2); }},
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/compare.def"
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE
      {"add", [](const Tensor& a, const Tensor& b) { return add(a, b, 3); }},
      {"sub", [](const Tensor& a, const Tensor& b) { return sub(a, b, 3); }},
      {"div", [](const Tensor& a, const Tensor& b) { return div(a, b); }},
      {"trunc_divide", [](const Tensor& a, const Tensor& b) { return div(a, b, "trunc"); }},
      {"lerp", [](const Tensor& a, const Tensor& b) { return is_floating(a.dtype()) ? lerp(a, b, a * b) : a; }},
  };
  for (auto& [name, op] : ops)
    for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kUInt8}) {
      // A value that an op makes comes first, second and twice; so do arguments and a number.
      auto f = [op = op](const Tensor& a, const Tensor& b) {
        Tensor p = op(a, b), q = op(p + b, a), r = op(b, q);
        return op(r, r) + op(p, 3.0 * a) + op(b, b);
      };
      if (std::string(name) == "pow" && !is_floating(t)) continue;  // numbers without end
      auto fused = fuse(f);
      for (int64_t n : kSizes) {
        Tensor a = values({n}, t == kUInt8 || t == kInt32 ? kFloat32 : t), b = values({n}, a.dtype());
        if (!is_floating(t)) {
          a = to_dtype(clamp(randn({n}) * 20, 1, 60), t);
          b = to_dtype(clamp(randn({n}) * 20, 1, 60), t);
        }
        // a divisor of 0 is an error for integers, which a fused function does not look for
        auto checked = [&](auto g) {
          try {
            return g();
          } catch (const Error&) {
            return Tensor();
          }
        };
        Tensor expected = checked([&] { return f(a, b); });
        if (!expected.defined()) continue;
        EXPECT_TRUE(same(fused(a, b), expected)) << name << ' ' << sf::name(t) << ' ' << n;
      }
    }
}

TEST(Fuse, arguments_that_broadcast_and_have_any_strides) {
  auto f = [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) {
    return silu(b - x * a) * (c + x) / (a * a + 1.5);
  };
  auto fused = fuse(f);
  const int threads = num_threads();
  set_num_threads(1);  // hundreds of small calls
  for (DType t : kFloats)
    for (int64_t rows : {0, 1, 33})
      for (int64_t columns : {1, 7, 100, 255, 257, 500, 1024, 1300, 9001}) {
        auto make = [&](const Shape& size) { return to_dtype(randn(size), t); };
        Tensor x = make({rows, columns}), row = make({columns}), column = make({rows, 1}), one = make({1}),
               twice = make({rows, 2 * columns});
        Tensor strided = twice.slice(1, 0, 2 * columns, 2), turned = make({columns, rows}).transpose(0, 1);
        const Tensor* sets[][4] = {{&x, &row, &column, &one},        {&row, &x, &one, &column},
                                   {&column, &row, &x, &x},          {&x, &x, &x, &x},
                                   {&strided, &row, &x, &one},       {&x, &strided, &turned, &column},
                                   {&turned, &turned, &column, &row}};
        for (auto& [p, q, r, s] : sets)
          EXPECT_TRUE(same(fused(*p, *q, *r, *s), f(*p, *q, *r, *s))) << sf::name(t) << ' ' << rows << 'x' << columns;
      }
  set_num_threads(threads);
  Tensor x = randn({4, 33, 5, 7}), bias = randn({33, 1, 1}), last = x.contiguous(MemoryFormat::ChannelsLast);
  EXPECT_TRUE(same(fused(x, bias, x, bias), f(x, bias, x, bias)));
  EXPECT_TRUE(same(fused(last, bias, last, bias), f(last, bias, last, bias)));
  EXPECT_TRUE(same(fused(last, x, bias, last), f(last, x, bias, last)));
}

TEST(Fuse, values_of_several_dtypes_and_many_values_at_once) {
  auto mixed = [](const Tensor& h, const Tensor& f, const Tensor& b) {
    return to_dtype(h * f, kFloat16) * 0.3 + to_dtype(b + 1.25, kFloat32) * h;
  };
  auto many = [](const Tensor& x) {
    Tensors kept;
    for (int i = 0; i < 40; ++i) kept.push_back(sin(x * (0.1 * i)));
    Tensor y = x;
    for (int i = 0; i < 40; ++i) y = y + kept[size_t(i)] * kept[size_t(39 - i)];
    return y;
  };
  auto endless = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 400; ++i) y = y * 0.999 + x;
    return y;
  };
  for (int64_t n : kSizes) {
    Tensor h = to_dtype(randn({n}), kFloat16), f = randn({n}), b = to_dtype(randn({n}), kBFloat16);
    EXPECT_TRUE(same(fuse(mixed)(h, f, b), mixed(h, f, b))) << n;
    for (const Tensor& x : {h, f, b}) {
      EXPECT_TRUE(same(fuse(many)(x), many(x))) << n;
      EXPECT_TRUE(same(fuse(endless)(x), endless(x))) << n;
    }
  }
}

TEST(Fuse, questions_choices_and_bools) {
  auto choice = [](const Tensor& x, const Tensor& a, const Tensor& m) {
    Tensor q = gt(x, a), r = bitwise_or(isnan(x), bitwise_and(logical_not(q), m));
    return where(r, x * 2, masked_fill(a, q, -7)) + to_dtype(bitwise_xor(m, q), x.dtype()) * where(m, a * a, a);
  };
  auto question = [](const Tensor& x, const Tensor& a, const Tensor& m) {
    return bitwise_or(where(bitwise_not(m), eq(x + 1, a), isfinite(a)), to_dtype(x - a, kBool));
  };
  auto of_bools = [](const Tensor&, const Tensor&, const Tensor& m) {
    return bitwise_and(logical_xor(m, logical_not(m)), ne(m, logical_and(m, m)));
  };
  const std::pair<const char*, Unary> predicates[] = {
#define SF_PREDICATE(name, ...) {#name, [](const Tensor& x) { return bitwise_or(name(x * x), name(x)); }},
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_PREDICATE
  };
  const std::pair<const char*, Binary> comparisons[] = {
#define SF_COMPARE(name, ...) \
  {#name, [](const Tensor& a, const Tensor& b) { return bitwise_xor(name(a, b), name(wrapped(2), b * a)); }},
#include "scaffolding/ops/pointwise/compare.def"
#undef SF_COMPARE
  };
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32})
    for (int64_t n : kSizes) {
      Tensor x = is_floating(t) ? values({3, n}, t) : to_dtype(randn({3, n}) * 2, t),
             a = to_dtype(round(randn({n})), t);
      Tensor m = gt(randn({3, 1}), zeros({1})), each = gt(randn({3, n}), zeros({1}));
      for (const Tensor& mask : {m, each, each.slice(0, 0, 1)}) {
        EXPECT_TRUE(same(fuse(choice)(x, a, mask), choice(x, a, mask))) << name(t) << ' ' << n;
        EXPECT_TRUE(same(fuse(question)(x, a, mask), question(x, a, mask))) << name(t) << ' ' << n;
        EXPECT_TRUE(same(fuse(of_bools)(x, a, mask), of_bools(x, a, mask))) << name(t) << ' ' << n;
      }
      for (auto& [op, f] : predicates) EXPECT_TRUE(same(fuse(f)(x), f(x))) << op << ' ' << name(t) << ' ' << n;
      for (auto& [op, f] : comparisons) EXPECT_TRUE(same(fuse(f)(x, a), f(x, a))) << op << ' ' << name(t) << ' ' << n;
    }
}

// More elements than the caches keep: written past them. Several threads, and none beside the end.
TEST(Fuse, large_tensors) {
  auto f = [](const Tensor& x, const Tensor& a) { return relu(x * a) - 0.5; };
  const int64_t n = 11 * (1 << 20) + 13;
  for (DType t : {kFloat32, kBFloat16}) {
    Tensor x = to_dtype(arange(-n, n, 2), t) * 1e-3, a = to_dtype(randn({1}), t);
    EXPECT_TRUE(same_bits(fuse(f)(x, a), f(x, a))) << name(t);
  }
}

TEST(Fuse, takes_a_lambda_and_keeps_the_gradients_of_its_ops) {
  auto fused = fuse([](const Tensor& x, const Tensor& a) { return tanh(x * a) * x; });
  Tensor x = randn({5, 6}).requires_grad_(), a = randn({6}).requires_grad_();
  Tensors one = autograd::grad({fused(x, a).sum()}, {x, a}), other = autograd::grad({(tanh(x * a) * x).sum()}, {x, a});
  EXPECT_TRUE(same_bits(one[0], other[0]));
  EXPECT_TRUE(same_bits(one[1], other[1]));
}

TEST(Fuse, refuses_what_is_not_pointwise_by_name) {
  auto reduces = fuse([](const Tensor& x) { return x - x.sum(); });
  EXPECT_NE(refusal([&] { reduces(ones({3})); }).find("sub takes the result of sum"), std::string::npos)
      << refusal([&] { reduces(ones({3})); });
  Tensor other = ones({3});
  auto captures = fuse([other](const Tensor& x) { return x - other; });
  EXPECT_NE(refusal([&] { captures(ones({3})); }).find("pass it as one"), std::string::npos)
      << refusal([&] { captures(ones({3})); });
}

TEST(Fuse, an_input_written_before_backward_is_an_error) {
  auto fused = fuse([](const Tensor& x) { return x * x; });
  Tensor x = ones({3}).requires_grad_(), z = x * 1, y = fused(z);
  z.mul_(2.0);
  EXPECT_NE(refusal([&] { y.sum().backward(); }).find("in place"), std::string::npos)
      << refusal([&] { y.sum().backward(); });
}

TEST(Fuse, may_be_called_from_several_threads) {
  auto fused = fuse(&gate);
  Tensor x = randn({4000}), a = randn({1}), b = randn({4000}), y = gate(x, a, b);
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { good[size_t(i)] = same_bits(fused(x, a, b), y); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, (std::vector<int>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace sf
