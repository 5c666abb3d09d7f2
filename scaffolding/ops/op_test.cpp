#include "scaffolding/ops/op_test.h"

#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

// ---- inputs: splitmix64, so that a sample is the same on every machine and in every build

uint64_t OpTest::next() {
  if (state_ == 0)
    for (const char* c = name; *c; ++c) state_ = (state_ ^ uint64_t(*c)) * 0x100000001b3ull + 0x9e37;
  uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

Tensor OpTest::rand(const Shape& size, double low, double high) {
  Tensor t = empty(size, kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = low + (high - low) * double(next() >> 11) * 0x1p-53;
  return t;
}
Tensor OpTest::randn(const Shape& size) {  // a sum of twelve uniforms: close enough to normal, and exact everywhere
  Tensor t = empty(size, kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) {
    double s = -6;
    for (int k = 0; k < 12; ++k) s += double(next() >> 11) * 0x1p-53;
    t.data<double>()[i] = s;
  }
  return t;
}
Tensor OpTest::randint(int64_t low, int64_t high, const Shape& size, DType dtype) {
  Tensor t = empty(size, kInt64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = low + int64_t(next() % uint64_t(high - low));
  return to_dtype(t, dtype);
}
Tensor OpTest::boolean(const Shape& size) { return randint(0, 2, size, kBool); }
Tensor OpTest::distinct(const Shape& size) {
  Tensor t = empty(size, kFloat64);
  int64_t n = t.numel();
  double shift = 0.37 + 0.29 * double(distinct_calls_++ % 3);  // so that two such tensors have no value in common
  for (int64_t i = 0; i < n; ++i) t.data<double>()[i] = (double(i) - double(n) / 2 + shift) * 0.125;
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(t.data<double>()[i], t.data<double>()[int64_t(next() % uint64_t(i + 1))]);
  return t;
}

std::vector<std::unique_ptr<Sample>> OpTest::drawn_again() {
  auto samples_before = std::exchange(all, {});
  auto refused_before = std::exchange(refused, {});
  state_ = 0;
  next();
  state_ ^= 0x6a09e667f3bcc908ull;
  distinct_calls_ = 0;
  samples();
  refused = std::move(refused_before);
  return std::exchange(all, std::move(samples_before));
}

// ---- registration: one GoogleTest per op and check

std::vector<OpTest*>& op_tests() {
  static std::vector<OpTest*> v;
  return v;
}

namespace {
class Body : public testing::Test {
 public:
  using Check = std::function<void(const OpEntry&, OpTest&)>;
  Body(OpTest* t, Check c) : t_(t), check_(std::move(c)) {}
  void TestBody() override {
    OpEntry* op = find_op(t_->name);
    ASSERT_TRUE(op) << t_->name << " is not registered with SF_OP";
    if (t_->all.empty() && t_->refused.empty()) t_->samples();
    check_(*op, *t_);
  }

 private:
  OpTest* t_;
  Check check_;
};
}  // namespace

int register_op_test(const char* op, OpTest& t) {
  t.name = op;
  op_tests().push_back(&t);
  static const std::pair<const char*, Body::Check> checks[] = {
      {"meta_shape_equals_real_shape", check_meta},     {"gradients_equal_finite_differences", check_gradients},
      {"second_derivatives", check_second_derivatives}, {"every_provider_and_dtype", check_providers},
      {"bad_input_is_refused", check_refusals},         {"values_and_gradients_equal_torch", check_golden},
  };
  auto add = [&](const char* label, const Body::Check& check) {
    testing::RegisterTest((std::string("op_") + op).c_str(), label, nullptr, nullptr, __FILE__, __LINE__,
                          [&t, check]() -> testing::Test* { return new Body(&t, check); });
  };
  for (auto& [label, check] : checks) add(label, check);
  if (!env::text("SF_TEST_DEVICE").empty()) {
    add("equals_cpu_on_test_device", check_device);
    add("replay_equals_call_on_test_device", check_captured);
    add("survives_failed_allocations", check_failed_allocations);
  }
  return 0;
}

}  // namespace sf::test
