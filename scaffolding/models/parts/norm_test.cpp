#include "scaffolding/models/parts/norm.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

TEST(Norms, ABlockIsToldSixThingsWithAndWithoutATableOfItsOwn) {
  const Tensor all = randn({2, 6 * 4}), table = randn({6, 4});
  const BlockModulation zero = block_modulation(all), single = block_modulation(all, table);
  const Tensors parts{zero.shift_msa, zero.scale_msa, zero.gate_msa, zero.shift_mlp, zero.scale_mlp, zero.gate_mlp};
  const Tensors with_table{single.shift_msa, single.scale_msa, single.gate_msa,
                           single.shift_mlp, single.scale_mlp, single.gate_mlp};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(difference(parts[size_t(i)], all.narrow(1, 4 * i, 4)), 0);
    EXPECT_EQ(difference(with_table[size_t(i)], all.narrow(1, 4 * i, 4) + table.narrow(0, i, 1)), 0);
    EXPECT_EQ(with_table[size_t(i)].shape(), (Shape{2, 4}));
  }
  const Tensor one = randn({2, 1, 4});  // the same given to each row
  const Tensors rows = rows_with_table(table.narrow(0, 0, 2), one);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(difference(rows[1], one.squeeze(1) + table.narrow(0, 1, 1)), 0);
}

TEST(Norms, RowsAreWrittenInFloat8WhereTheyAreReadSoAndNobodyLooks) {
  TransformerNorm norm(16, 1e-5, true), timed(16, 1e-5, false, 10);
  const Tensor x = randn({2, 3, 16}), step = scalar_tensor(3, kInt64);
  EXPECT_FALSE(norm.before(true, x).is_float8());  // a gradient is recorded
  autograd::NoGrad off;
  const ProjectionInput rows = norm.before(true, x);
  ASSERT_TRUE(rows.is_float8());
  EXPECT_EQ(rows.dtype, kFloat32);
  EXPECT_FALSE(norm.before(false, x).is_float8());
  EXPECT_EQ(difference(norm.before(false, x).x, norm(x)), 0);
  EXPECT_EQ(difference(timed.before(true, x, step).x, timed(x, step)), 0);
  size_t arguments = 0;
  norm.register_forward_hook(
      [&](nn::Module&, const nn::Values& args, const Value&) { return arguments = args.size(), Value(); });
  EXPECT_FALSE(norm.before(true, x).is_float8());
  EXPECT_EQ(arguments, 1u);
  norm.before(true, x, Tensor());
  EXPECT_EQ(arguments, 2u);
}

TEST(Norms, ARootMeanSquareNormIsScaledAndItsHooksSeeIt) {
  manual_seed(3);
  nn::RMSNorm norm(Shape{8}, 1e-5), plain(Shape{8});
  norm.weight.detach().copy_(randn({8}));
  const Tensor x = randn({2, 3, 8}), scale = randn({2, 8});
  const Tensor want = norm(x) * (1 + scale).unsqueeze(1);
  EXPECT_LT(difference(scaled(norm, x, scale), want), 1e-5);
  EXPECT_LT(difference(scaled(plain, x, scale), plain(x) * (1 + scale).unsqueeze(1)),
            1e-5);  // with its dtype's epsilon
  int calls = 0;
  norm.register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
  EXPECT_LT(difference(scaled(norm, x, scale), want), 1e-5);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace sf::models
