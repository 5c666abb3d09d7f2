// The harness: one block per op lists samples, and every sample is checked in every way there is.
//
//   SF_OP_TEST(group_norm) {
//     sample(randn({2, 6, 4, 4}), 3, randn({6}), randn({6}), 1e-5);
//     sample(randn({2, 6, 4, 4}).transpose(2, 3), 3);                   // non-contiguous
//     rejects("num_groups must divide", randn({2, 6, 4}), 4);
//   }
//
// Each sample: the shape on Device::Meta equals the real one; gradients and second derivatives against finite
// differences in float64; every provider x dtype against the float64 result, values and gradients; values and gradients
// against torch's (tests/golden); with SF_TEST_DEVICE, values and gradients on that device, called and captured in a
// graph that is replayed. Tolerances come from dtype and reduction length, never from hand.
// Floating inputs are made in float64 and converted; random numbers depend on the op's name and the sample only.
#pragma once
#include <gtest/gtest.h>

#include <limits>

#include "scaffolding/core/op.h"

namespace sf::test {

inline constexpr std::monostate none{};
inline constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

struct Sample {
  std::vector<Value> args;  // missing trailing ones take their defaults
  bool grad = true;
  bool meta = true;
  bool low_precision = true;
  bool golden = true;
  // What a sample does not take part in, with the reason in a comment beside it.
  Sample& no_grad() { return grad = false, *this; }                    // not differentiable at this point (ties, kinks)
  Sample& no_meta() { return meta = false, *this; }                    // the shape depends on values
  Sample& no_low_precision() { return low_precision = false, *this; }  // ill-conditioned in 16 bits
  Sample& no_golden() { return golden = false, *this; }                // torch refuses or differs on purpose
};
struct Rejection {
  std::string text;
  std::vector<Value> args;
};

class OpTest {
 public:
  virtual ~OpTest() = default;
  virtual void samples() = 0;
  const char* name = "";
  std::vector<std::unique_ptr<Sample>> all;
  std::vector<Rejection> refused;
  // The same samples with other random numbers in their tensors: the same ones at every call.
  std::vector<std::unique_ptr<Sample>> drawn_again();

  // ---- inputs, float64 unless said; drawn from the op's own stream
  Tensor randn(const Shape& size);
  Tensor rand(const Shape& size, double low = 0, double high = 1);
  Tensor randint(int64_t low, int64_t high, const Shape& size, DType dtype = kInt64);
  Tensor boolean(const Shape& size);
  Tensor distinct(const Shape& size);  // a shuffled grid of values at least 0.1 apart: no ties, no kinks within a step

 protected:
  template <class... A> Sample& sample(A&&... a) {
    all.push_back(std::make_unique<Sample>());
    all.back()->args = {to_value(std::forward<A>(a))...};
    return *all.back();
  }
  // The call throws sf::Error, and its message contains text.
  template <class... A> void rejects(const char* text, A&&... a) {
    refused.push_back({text, {to_value(std::forward<A>(a))...}});
  }

 private:
  static Value to_value(const Value& v) { return v; }
  static Value to_value(const Tensor& t) { return t; }
  static Value to_value(const char* s) { return std::string(s); }
  static Value to_value(const Tensors& ts) { return ts; }
  static Value to_value(bool b) { return b; }
  template <std::integral I> static Value to_value(I i) { return int64_t(i); }
  static Value to_value(double d) { return d; }
  uint64_t next();
  uint64_t state_ = 0;
  int distinct_calls_ = 0;
};

int register_op_test(const char* op, OpTest& t);
std::vector<OpTest*>& op_tests();

#define SF_OP_TEST(op)                                                                                         \
  struct op##_OpTest final : ::sf::test::OpTest {                                                              \
    void samples() override;                                                                                   \
  };                                                                                                           \
  static op##_OpTest op##_op_test;                                                                             \
  [[maybe_unused]] static const int op##_op_test_registered = ::sf::test::register_op_test(#op, op##_op_test); \
  void op##_OpTest::samples()

}  // namespace sf::test
