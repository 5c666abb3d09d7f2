// Samples of every pointwise op. What they mean for integers, bools and special values is in pointwise_values_test.cpp.
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

// ---- one tensor
SF_OP_TEST(neg) {
  sample(randn({5, 9}));
  sample(randn({4, 6}).transpose(0, 1));
  sample(randn({0, 3}));
  sample(randn({}));
  sample(randint(-5, 5, {7}));
  rejects("must be a tensor", none);
  rejects("not defined for bool", boolean({3}));
}
SF_OP_TEST(abs) { sample(distinct({37})); }
SF_OP_TEST(sign) {
  sample(distinct({37}));
  sample(randint(-3, 3, {9}, kInt32));
}
SF_OP_TEST(square) { sample(randn({5, 7})); }
SF_OP_TEST(floor) { sample(distinct({37})); }
SF_OP_TEST(ceil) { sample(distinct({37})); }
SF_OP_TEST(round) { sample(distinct({37})); }
SF_OP_TEST(trunc) { sample(distinct({37})); }
SF_OP_TEST(relu) {
  sample(distinct({37}));
  sample(randint(-5, 5, {7}));
}
SF_OP_TEST(exp) {
  sample(randn({5, 9}));
  sample(randint(-3, 3, {5}));
}
SF_OP_TEST(exp2) { sample(randn({5, 9})); }
SF_OP_TEST(expm1) { sample(randn({5, 9})); }
SF_OP_TEST(log) { sample(rand({37}, 0.1, 5)); }
SF_OP_TEST(log2) { sample(rand({37}, 0.1, 5)); }
SF_OP_TEST(log1p) { sample(rand({37}, -0.5, 5)); }
SF_OP_TEST(sqrt) { sample(rand({37}, 0.1, 5)); }
SF_OP_TEST(rsqrt) { sample(rand({37}, 0.1, 5)); }
SF_OP_TEST(reciprocal) { sample(rand({37}, 0.3, 3)); }
SF_OP_TEST(sin) { sample(randn({5, 9})); }
SF_OP_TEST(cos) { sample(randn({5, 9})); }
SF_OP_TEST(tan) { sample(rand({37}, -1.2, 1.2)); }
SF_OP_TEST(tanh) { sample(randn({5, 9}).transpose(0, 1)); }
SF_OP_TEST(sigmoid) { sample(randn({5, 9})); }
SF_OP_TEST(erf) { sample(randn({5, 9})); }
SF_OP_TEST(silu) {
  sample(randn({5, 33}));
  sample(randn({3, 6}).slice(1, 0, 6, 2));
}
SF_OP_TEST(gelu) {
  sample(randn({5, 33}));
  sample(randn({5, 33}), "tanh");
  rejects("approximate must be", randn({3}), "fast");
}
SF_OP_TEST(gelu_erf) { sample(randn({33})); }
SF_OP_TEST(gelu_tanh) { sample(randn({33})); }
SF_OP_TEST(quick_gelu) { sample(randn({33})); }
SF_OP_TEST(mish) { sample(randn({33})); }
SF_OP_TEST(hardswish) { sample(distinct({65})); }
SF_OP_TEST(leaky_relu) {
  sample(distinct({37}));
  sample(distinct({37}), 0.3);
}
SF_OP_TEST(elu) {
  sample(distinct({37}));
  sample(distinct({37}), 0.5);
}
SF_OP_TEST(softplus) {
  sample(randn({33}));
  sample(distinct({65}), 2.0, 3.1);
  rejects("beta must not be 0", randn({3}), 0.0);
}
SF_OP_TEST(clamp) {
  sample(distinct({50}), -1.0, 1.5);
  sample(distinct({50}), none, 1.5);
  sample(distinct({50}), 0.3);
  sample(randint(-9, 9, {20}), -2, 3);
  sample(randint(-9, 9, {20}), 0.5);
  rejects("min or max must be given", randn({3}));
}
SF_OP_TEST(logical_not) {
  sample(randint(0, 3, {9}));
  sample(boolean({9}));
  sample(distinct({9}));
}
SF_OP_TEST(isnan) { sample(randn({9}) / randint(0, 2, {9})).no_low_precision(); }
SF_OP_TEST(isinf) { sample(randn({9}) / randint(0, 2, {9})).no_low_precision(); }
SF_OP_TEST(isfinite) {
  sample(randn({9}) / randint(0, 2, {9})).no_low_precision();
  sample(randint(0, 3, {9}));
  rejects("must be a tensor", none);
}
SF_OP_TEST(bitwise_not) {
  sample(randint(-9, 9, {9}, kInt16));
  sample(boolean({9}));
  rejects("integer or bool", randn({3}));
}

// ---- two tensors
SF_OP_TEST(add) {
  sample(randn({2, 3, 4}), randn({2, 3, 4}));
  sample(randn({2, 3, 4}), randn({3, 1}), 2);
  sample(randn({4, 3}).transpose(0, 1), randn({3, 4}));
  sample(randn({}), randn({5}));
  sample(randn({0, 3}), randn({3}));
  sample(randn({5}), 2.5);
  sample(randint(0, 9, {5}, kInt8), randint(0, 9, {5}, kInt32), 3);
  rejects("do not broadcast", randn({2, 3}), randn({4}));
  rejects("alpha must be an integer", randint(0, 9, {5}), randint(0, 9, {5}), 0.5);
}
SF_OP_TEST(sub) {
  sample(randn({33}), randn({33}), 0.5);
  sample(3, randn({4}));
  rejects("cannot be subtracted", boolean({3}), boolean({3}));
}
SF_OP_TEST(mul) {
  sample(randn({2, 70}), randn({2, 1}));
  sample(randn({5, 7}).transpose(0, 1), randn({7, 5}));
  sample(boolean({5}), randn({5}));
}
SF_OP_TEST(div) {
  sample(randn({6, 5}), rand({5}, 0.5, 2));
  sample(distinct({20}), 0.7, "floor");
  sample(distinct({20}), 0.7, "trunc");
  sample(randint(-20, 20, {20}), randint(1, 5, {20}));
  sample(randint(-20, 20, {20}), randint(1, 5, {20}), "trunc");
  rejects("rounding_mode", randn({2}), randn({2}), "up");
  rejects("ZeroDivisionError", randint(1, 5, {3}), 0, "trunc");
}
SF_OP_TEST(pow) {
  sample(rand({40}, 0.3, 3), rand({40}, -2, 2));
  sample(rand({8}, 0.3, 3), 2);
  sample(2.0, randn({8}));
  sample(randint(-4, 5, {8}), 3);
  rejects("negative integer powers", randint(1, 5, {3}), -1);
  rejects("two bool tensors", boolean({3}), boolean({3}));
}
SF_OP_TEST(maximum) {
  sample(distinct({6, 8}), distinct({6, 8}));
  sample(randint(-4, 5, {8}), randint(-4, 5, {8}, kInt32));
}
SF_OP_TEST(minimum) { sample(distinct({6, 8}), distinct({8})); }
SF_OP_TEST(atan2) { sample(rand({20}, 0.5, 2), rand({20}, -2, -0.5)); }
SF_OP_TEST(remainder) {
  sample(rand({9}, 0.1, 0.9) + randint(-4, 4, {9}), 1.0).no_low_precision();
  sample(randint(-20, 20, {20}), randint(1, 5, {20}));
  rejects("ZeroDivisionError", randint(1, 5, {3}), randint(0, 1, {3}));
  rejects("two bool tensors", boolean({3}), boolean({3}));
}
SF_OP_TEST(floor_divide) {
  sample(distinct({20}), 0.7).no_golden();  // torch has no gradient for it
  sample(randint(-20, 20, {20}), randint(1, 5, {20}));
  rejects("ZeroDivisionError", randint(1, 5, {3}), 0);
}
SF_OP_TEST(eq) {
  sample(randint(0, 3, {4, 5}), randint(0, 3, {5}));
  sample(randn({4, 5}), randn({4, 1}));
  rejects("do not broadcast", randn({3}), randn({4}));
}
SF_OP_TEST(ne) { sample(randint(0, 3, {4, 5}), randint(0, 3, {5})); }
SF_OP_TEST(lt) { sample(distinct({4, 5}), distinct({5})); }
SF_OP_TEST(le) { sample(distinct({4, 5}), distinct({5})); }
SF_OP_TEST(gt) { sample(distinct({4, 5}).transpose(0, 1), distinct({4})); }
SF_OP_TEST(ge) { sample(distinct({4, 5}), 0.5); }
SF_OP_TEST(logical_and) {
  sample(boolean({4, 5}), boolean({5}));
  sample(randint(0, 2, {9}), randn({9}));
}
SF_OP_TEST(logical_or) { sample(boolean({4, 5}), boolean({5})); }
SF_OP_TEST(logical_xor) { sample(boolean({4, 5}), randint(0, 3, {5}, kInt8)); }
SF_OP_TEST(bitwise_and) {
  sample(randint(-50, 50, {4, 5}), randint(-50, 50, {5}));
  sample(boolean({4, 5}), boolean({4, 1}));
  sample(randint(0, 50, {5}, kUInt8), 7);
  rejects("integer or bool", randn({3}), randn({3}));
}
SF_OP_TEST(bitwise_or) { sample(randint(-50, 50, {4, 5}, kInt16), randint(-50, 50, {5}, kInt32)); }
SF_OP_TEST(bitwise_xor) { sample(randint(-50, 50, {4, 5}), boolean({5})); }
SF_OP_TEST(bitwise_left_shift) {
  sample(randint(-50, 50, {4, 5}, kInt32), randint(0, 40, {5}, kInt32));
  rejects("needs integer", boolean({3}), boolean({3}));
}
SF_OP_TEST(bitwise_right_shift) { sample(randint(-50, 50, {4, 5}, kInt32), randint(0, 40, {5}, kInt32)); }

// ---- three
SF_OP_TEST(where) {
  sample(boolean({4, 5}), randn({4, 5}), randn({5}));
  sample(boolean({4, 1}), randn({5}), 0.5);
  sample(boolean({4}), randint(0, 9, {4}), 1);
  rejects("must be a bool tensor", randn({3}), randn({3}), randn({3}));
  rejects("do not broadcast", boolean({3}), randn({4}), randn({4}));
}
SF_OP_TEST(lerp) {
  sample(randn({4, 5}), randn({4, 5}), rand({4, 5}));
  sample(randn({5, 4}).transpose(0, 1), randn({5}), rand({4, 1}));
  rejects("one dtype", randn({3}), randint(0, 3, {3}), rand({3}));
}
SF_OP_TEST(masked_fill) {
  sample(randn({4, 5}), boolean({4, 5}), 2.0);
  sample(randn({4, 5}), boolean({5}), -1);
  sample(randint(0, 9, {4}), boolean({4}), 7);
  rejects("cannot hold", randint(0, 9, {4}), boolean({4}), 0.5);
  rejects("must be a bool tensor", randn({4}), randn({4}), 1.0);
}

}  // namespace sf::test
