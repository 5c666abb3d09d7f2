#include "scaffolding/nn/half_weights.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::nn {
namespace {

double half_apart(const Tensor& a, const Tensor& b) {
  return amax(abs(a.to(kFloat64) - b.to(kFloat64))).item<double>();
}

struct HalvedLayers : Module {
  Linear fc{64, 24};
  Conv2d conv{48, 64, 3, {.padding = 1}}, down{48, 32, 3, {.stride = 2, .padding = 1}}, point{48, 40, 1},
      grouped{48, 16, 3, {.groups = 2}}, round{48, 64, 3, {.padding = 1, .padding_mode = "circular"}},
      wide{512, 512, 3, {.padding = 1}};
  Embedding table{10, 64};
  LayerNorm norm{{64}};
  SF_MODULE(HalvedLayers, fc, conv, down, point, grouped, round, wide, table, norm)
};

// Weights that float16 holds, in both.
void halve(HalvedLayers& kept, HalvedLayers& widened) {
  autograd::NoGrad off;
  std::map<std::string, Tensor> weights;
  for (auto& p : named_parameters(widened)) {
    const Tensor half = p.tensor.to(kFloat16);
    Tensor(p.tensor).copy_(half);
    weights.emplace(p.name, half);
  }
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : state_dict(widened)) state.emplace(name, t);
  load_state_dict(kept, state, {.strict = true});
  for (auto& m : named_modules(kept))
    if (auto w = weights.find(m.name + ".weight"); w != weights.end() && m.module != &kept.norm)
      ASSERT_TRUE(put_half(*m.module, w->second, kFloat32)) << m.name;
}

TEST(HalfWeights, LayersGiveWhatTheirWidenedWeightsDo) {
  HalvedLayers kept, widened;
  halve(kept, widened);
  EXPECT_EQ(format_of(*kept.conv.present()), "float16");
  autograd::NoGrad off;
  const Tensor rows = randn({5, 64});
  EXPECT_LT(half_apart(kept.fc(rows), widened.fc(rows)), 1e-5);
  EXPECT_LT(half_apart(static_cast<LinearHalf*>(kept.fc.present())->forward_plus(rows, randn({5, 24}) * 0.0 + 2.0),
                       widened.fc(rows) + 2.0),
            1e-5);
  for (int64_t size : {3, 24})
    for (bool last : {false, true}) {
      Tensor x = randn({2, 48, size, size}), many = randn({1, 512, size, size});
      if (last) x = x.contiguous(MemoryFormat::ChannelsLast), many = many.contiguous(MemoryFormat::ChannelsLast);
      EXPECT_LT(half_apart(kept.conv(x), widened.conv(x)), 1e-5);
      EXPECT_LT(half_apart(kept.down(x), widened.down(x)), 1e-5);
      EXPECT_LT(half_apart(kept.point(x), widened.point(x)), 1e-5);
      EXPECT_LT(half_apart(kept.grouped(x), widened.grouped(x)), 1e-5);
      EXPECT_LT(half_apart(kept.round(x), widened.round(x)), 1e-5);
      EXPECT_LT(half_apart(kept.wide(many), widened.wide(many)), 5e-5);  // strips of channels
      EXPECT_EQ(kept.conv(x).is_contiguous(MemoryFormat::ChannelsLast), last);
    }
  EXPECT_LT(half_apart(kept.conv(randn({48, 6, 6}) * 0.0), widened.conv(randn({48, 6, 6}) * 0.0)), 1e-6);
  const Tensor ids = to_dtype(arange(0, 10, 1), kInt64);
  EXPECT_EQ(half_apart(kept.table(ids), widened.table(ids)), 0);
  EXPECT_EQ(kept.table(ids).dtype(), kFloat32);
  EXPECT_EQ(half_apart(dense_weight_of(*kept.conv.present()), widened.conv.weight), 0);
  SF_EXPECT_ERROR(ValueError, "channels", kept.conv(randn({1, 47, 6, 6})));
}

TEST(HalfWeights, GradientsGoToInputsAndBiases) {
  HalvedLayers kept, widened;
  halve(kept, widened);
  Tensor x = randn({1, 48, 8, 8}), y = x.clone();
  x.requires_grad_(), y.requires_grad_();
  sum(square(kept.conv(x))).backward();
  sum(square(widened.conv(y))).backward();
  EXPECT_LT(half_apart(x.grad(), y.grad()), 1e-3);
  EXPECT_LT(half_apart(static_cast<Conv2dHalf*>(kept.conv.present())->bias.grad(), widened.conv.bias.grad()), 1e-3);
}

TEST(HalfWeights, FollowTheModelsDtype) {
  HalvedLayers kept, widened;
  halve(kept, widened);
  autograd::NoGrad off;
  const Tensor x = randn({1, 48, 8, 8});
  const Tensor want = widened.conv(x), rows = randn({5, 64});
  to(kept, {.dtype = kFloat32});  // weights become float32: plain layers' results
  EXPECT_LT(half_apart(kept.conv(x), want), 1e-5);
  EXPECT_LT(half_apart(kept.fc(rows), widened.fc(rows)), 1e-5);
  to(kept, {.dtype = kBFloat16});
  EXPECT_EQ(kept.conv(x.to(kBFloat16)).dtype(), kBFloat16);
  EXPECT_LT(half_apart(kept.conv(x.to(kBFloat16)), want), 0.1);
}

TEST(HalfWeights, OtherModulesStayAsTheyAre) {
  Linear fc(8, 4);
  EXPECT_FALSE(put_half(fc, randn({4, 8}), kFloat32));
  EXPECT_FALSE(put_half(fc, randn({4, 9}).to(kFloat16), kFloat32));
  LayerNorm norm({8});
  EXPECT_FALSE(put_half(norm, randn({8}).to(kFloat16), kFloat32));
  EXPECT_TRUE(put_half(fc, randn({4, 8}).to(kBFloat16), kFloat32));
  EXPECT_FALSE(put_half(fc, randn({4, 8}).to(kBFloat16), kFloat32));  // something stands there
}

}  // namespace
}  // namespace sf::nn
