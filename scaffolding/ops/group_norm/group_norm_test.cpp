#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/scaffolding.h"

namespace sf::test {

SF_OP_TEST(group_norm) {
  sample(randn({2, 6, 4, 4}), 3, randn({6}), randn({6}), 1e-5);
  sample(randn({2, 6, 4, 4}).transpose(2, 3), 3);
  sample(to_channels_last(randn({2, 8, 5, 3})), 2, randn({8}), randn({8}));
  sample(randn({3, 6}), 2);
  sample(randn({1, 4, 2, 3, 3}), 4, randn({4}));
  sample(randn({0, 4, 3}), 2).no_golden();
  rejects("num_groups must divide", randn({2, 6, 4}), 4);
  rejects("num_groups must divide", randn({2, 6, 4}), 0);
  rejects("input must be [N, C, ...]", randn({6}), 2);
  rejects("weight must have shape", randn({2, 6, 4}), 2, randn({4}));
  rejects("must be a floating-point tensor", randint(0, 3, {2, 6, 4}), 2);
}
SF_OP_TEST(group_norm_silu) {
  sample(randn({2, 6, 4, 4}), 3, randn({6}), randn({6}));
  sample(to_channels_last(randn({2, 32, 5, 3})), 8, randn({32}), randn({32}), 1e-6);
  // rows longer than 512 bytes, with a rest
  sample(to_channels_last(randn({1, 296, 3, 4})), 4, randn({296}), randn({296})).no_golden();
  sample(randn({1, 4, 17, 13}), 2, randn({4}), randn({4})).no_golden();
}

SF_OP_TEST(cat_group_norm_silu) {
  sample(randn({2, 4, 4, 4}), randn({2, 2, 4, 4}), 3, randn({6}), randn({6}));
  sample(to_channels_last(randn({2, 16, 5, 3})), to_channels_last(randn({2, 8, 5, 3})), 4, randn({24}), randn({24}),
         1e-6);
  // a group of channels of both
  sample(to_channels_last(randn({1, 5, 2, 3})), to_channels_last(randn({1, 7, 2, 3})), 2);
  sample(randn({2, 8, 1, 1}), randn({2, 16, 1, 1}), 3, randn({24}));  // a pixel has every layout
  sample(to_channels_last(randn({1, 8, 3, 3})), randn({1, 8, 3, 3}), 4);
  rejects("num_groups must divide", randn({2, 6, 4, 4}), randn({2, 1, 4, 4}), 3);
  rejects("cat", randn({2, 6, 4, 4}), randn({2, 6, 4, 5}), 3);
  rejects("weight must have shape", randn({2, 6, 4, 4}), randn({2, 6, 4, 4}), 3, randn({6}));
}

// Far from the mean, z reaches hundreds of standard deviations; with large weights any size.
// Nothing overflows on the way.
TEST(GroupNormSilu, equals_float64_for_any_size_of_z) {
  Generator g = make_generator();
  g->manual_seed(3);
  Tensor x = sf::randn({1, 64, 8, 8}, g), w = exp(sf::randn({64}, g) * 8), b = sf::randn({64}, g) * 50;
  for (DType t : {kFloat32, kBFloat16})
    for (bool rows : {true, false}) {
      Tensor xt = x.to(t), wt = w.to(t), bt = b.to(t), x64 = xt.to(kFloat64), w64 = wt.to(kFloat64),
             b64 = bt.to(kFloat64);
      Tensor y = group_norm_silu(rows ? to_channels_last(xt) : xt, 32, wt, bt).to(kFloat64),
             exact = group_norm_silu(x64, 32, w64, b64);
      // z is x gain + offset, terms that may cancel; what rounds them is an error of y e^-z in the tail
      Tensor terms = (abs(group_norm(x64, 32)) + 1) * w64.view({1, 64, 1, 1}) + abs(b64).view({1, 64, 1, 1});
      Tensor slope = clamp(abs(exact) * 2 + 1e-6, 0, 1.1);
      Tensor bound = abs(exact) * (t == kFloat32 ? 1e-6 : 6e-3) + terms * slope * 1e-6 + 1e-28;
      EXPECT_EQ(sf::all(le(abs(y - exact), bound)).item(), 1) << name(t) << (rows ? " rows" : " planes");
    }
}

}  // namespace sf::test
