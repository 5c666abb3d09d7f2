// A side path adds what its factors say, whatever the layer is made of and whichever path computes it, and no more
// error than the bare layer has.
#include "scaffolding/models/parts/lora.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/models/parts/context_cache.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

class LoraPaths : public testing::Test {
 protected:
  void SetUp() override { manual_seed(5); }
  autograd::NoGrad no_grad_;
};

double worst(const Tensor& got, const Tensor& want) {
  return amax(abs(got.to(kFloat64) - want.to(kFloat64))).item() / amax(abs(want.to(kFloat64))).item();
}

// What a linear layer with these terms computes, in float64.
Tensor exact(const Tensor& x, const Tensor& weight, const Tensor& bias, const std::vector<LoraTerm>& terms) {
  auto wide = [](const Tensor& t) { return t ? t.to(kFloat64) : t; };
  Tensor y = linear(wide(x), wide(weight), wide(bias));
  for (auto& t : terms) y = y + linear(linear(wide(x), wide(t.down)), wide(t.up)) * t.scale;
  return y;
}

std::vector<LoraTerm> terms(int64_t in, int64_t out, int count) {
  std::vector<LoraTerm> made;
  for (int i = 0; i < count; ++i) made.push_back({randn({4 + i, in}) * 0.1, randn({out, 4 + i}) * 0.1, {}, 0, 0.5 + i});
  return made;
}

TEST_F(LoraPaths, BesideLinearLayersAreExact) {
  for (DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    for (int count : {1, 3}) {
      nn::Linear layer(48, 40);
      layer.weight = layer.weight.to(dtype), layer.bias = layer.bias.to(dtype);
      std::vector<LoraTerm> side = terms(48, 40, count);
      for (auto& t : side) t.down = t.down.to(dtype), t.up = t.up.to(dtype);
      const Tensor x = randn({2, 7, 48}).to(dtype), residual = randn({2, 7, 40}).to(dtype);
      const double bare = worst(layer(x), exact(x, layer.weight, layer.bias, {}));
      layer.adapt(std::make_shared<LoraPath>(layer, side, dtype, Device()));
      const Tensor want = exact(x, layer.weight, layer.bias, side);
      EXPECT_LE(worst(layer(x), want), 1.5 * bare + 1e-7) << name(dtype) << " by a call, " << count;
      EXPECT_LE(worst(project(layer, x), want), 1.5 * bare + 1e-7) << name(dtype) << " within the product, " << count;
      EXPECT_LE(worst(project(layer, x, {.residual = residual}), want + residual.to(kFloat64)), 2.5 * bare + 1e-7);
      EXPECT_LE(worst(project(layer, x, {.activation = "gelu"}), gelu(want)), 3 * bare + 1e-6);
      EXPECT_LE(worst(project(layer, x, {.activation = "geglu"}), geglu(want)), 4 * bare + 1e-6);
      layer.adapt(nullptr);
      EXPECT_EQ(worst(layer(x), exact(x, layer.weight, layer.bias, {})), bare);
    }
  }
}

TEST_F(LoraPaths, LeaveTheKindWhatItIs) {
  nn::Linear layer(64, 32);
  const std::vector<LoraTerm> side = terms(64, 32, 1);
  auto path = std::make_shared<LoraPath>(layer, side, kFloat32, Device());
  const Tensor x = randn({5, 64}), update = linear(linear(x, side[0].down), side[0].up) * side[0].scale;
  const Tensor bare = layer(x);
  layer.adapt(path);
  EXPECT_EQ(projection_of(layer).kind, Projection::Kind::Dense);
  EXPECT_EQ(projection_of(layer).lora, path);
  EXPECT_FALSE(is_plain(layer)) << "kernels that know no side paths go by this";

  nn::LinearNF4 nf4(64, 32, true, true, {}, layer.weight);
  nn::LinearFP8 fp8(64, 32, true, true, false, kFloat8E4M3, {}, layer.weight);
  for (nn::Module* stored : {static_cast<nn::Module*>(&nf4), static_cast<nn::Module*>(&fp8)}) {
    layer.replace_by([stored] { return stored; });
    layer.adapt(nullptr);
    const Tensor alone = project(layer, x);
    stored->adapt(std::make_shared<LoraPath>(*stored, side, kFloat32, Device()));
    EXPECT_EQ(projection_of(layer).kind, Projection::Kind::Stored);
    EXPECT_LE(worst(project(layer, x), alone + update), 1e-6);
    EXPECT_LE(worst(layer(x), alone + update), 1e-6);
    stored->adapt(nullptr);
  }
  layer.replace_by({});
  EXPECT_EQ(worst(layer(x), bare), 0);
}

TEST_F(LoraPaths, OfLayersOfOneInput) {
  for (DType dtype : {kFloat32, kBFloat16})
    for (int64_t rows : {5, 600}) {
      nn::Linear q(16, 12), k(16, 8), v(16, 8);
      const Tensor x = randn({1, rows, 16}).to(dtype);
      std::vector<std::pair<nn::Linear*, std::vector<LoraTerm>>> all{
          {&q, terms(16, 12, 2)}, {&k, terms(16, 8, 2)}, {&v, terms(16, 8, 3)}};
      for (auto& [layer, side] : all) {
        layer->weight = layer->weight.to(dtype), layer->bias = layer->bias.to(dtype);
        for (auto& t : side) t.down = t.down.to(dtype), t.up = t.up.to(dtype);
        layer->adapt(std::make_shared<LoraPath>(*layer, side, dtype, Device()));
      }
      const Tensors got = project_each({&q, &k, &v}, x);
      for (size_t i = 0; i < 3; ++i) {
        const Tensor want = exact(x, all[i].first->weight, all[i].first->bias, all[i].second);
        EXPECT_LE(worst(got[i], want), dtype == kFloat32 ? 1e-6 : 6e-3) << i << name(dtype);
      }
      all[2].first->adapt(nullptr);  // one of them has none
      EXPECT_LE(worst(project_each({&q, &k, &v}, x)[0], got[0]), 1e-2);
    }
}

TEST_F(LoraPaths, BesideStoredWeightsAddNoError) {
  for (DType dtype : {kBFloat16, kFloat16}) {
    nn::LinearNF4 nf4(64, 48, true, true, {std::nullopt, dtype}, randn({48, 64}));
    nn::LinearFP8 fp8(64, 48, true, true, false, kFloat8E4M3, {std::nullopt, dtype}, randn({48, 64}));
    const Tensor x = randn({9, 64}).to(dtype);
    std::vector<LoraTerm> side = terms(64, 48, 2);
    for (auto& t : side) t.down = t.down.to(dtype), t.up = t.up.to(dtype);
    auto check = [&](auto& layer) {
      const Tensor weight = layer.dense_weight(dtype);
      const double bare = worst(layer(x), exact(x, weight, layer.bias, {}));
      layer.adapt(std::make_shared<LoraPath>(layer, side, dtype, Device()));
      EXPECT_LE(worst(layer(x), exact(x, weight, layer.bias, side)), 1.5 * bare) << layer.type() << name(dtype);
    };
    check(nf4);
    check(fp8);
  }
}

TEST_F(LoraPaths, BesideConvolutionsAddNoError) {
  for (int64_t kernel : {1, 3})
    for (DType dtype : {kFloat32, kBFloat16}) {
      nn::Conv2d conv(8, 12, kernel, {.padding = kernel / 2});
      conv.weight = conv.weight.to(dtype), conv.bias = conv.bias.to(dtype);
      const Tensor x = randn({2, 8, 6, 6}).to(dtype);
      const LoraTerm term{
          (randn({4, 8, kernel, kernel}) * 0.1).to(dtype), (randn({12, 4, 1, 1}) * 0.1).to(dtype), {}, 0, 1};
      auto wide = [](const Tensor& t) { return t.to(kFloat64); };
      const Tensor bare = conv2d(wide(x), wide(conv.weight), wide(conv.bias), {1}, kernel / 2);
      const double error = worst(conv(x), bare);
      conv.adapt(std::make_shared<LoraPath>(conv, std::vector{term}, dtype, Device()));
      const Tensor want = bare + conv2d(conv2d(wide(x), wide(term.down), {}, {1}, kernel / 2), wide(term.up));
      EXPECT_LE(worst(conv(x), want), 1.5 * error + 1e-7) << kernel << name(dtype);
    }
}

TEST_F(LoraPaths, OfInputsInFloat8) {
  nn::Linear q(16, 12), k(16, 8, false);
  nn::LinearFP8 q8(16, 12, true, true, true, kFloat8E4M3, {}, q.weight),
      k8(16, 8, false, true, true, kFloat8E4M3, {}, k.weight);
  q.replace_by([&q8] { return &q8; });
  k.replace_by([&k8] { return &k8; });
  const Tensor x = randn({3, 5, 16}), normed = layer_norm(x, {16}, {}, {}, 1e-5), residual = randn({3, 5, 12});
  const ProjectionInput rows(layer_norm_fp8(x, {}, {}, 1e-5), kFloat32);
  const Tensor bare = project(q, rows), bare_k = project(k, rows);
  const std::vector<LoraTerm> side = terms(16, 12, 2);
  q8.adapt(std::make_shared<LoraPath>(q8, side, kFloat32, Device()));
  EXPECT_TRUE(take_float8({&q, &k})) << "what comes before goes on quantising";
  // of the input as the layer's own product sees it, in float8
  const Tensor seen = dequantize_fp8(rows.rows.q.reshape({15, 16}), rows.rows.scale).reshape({3, 5, 16});
  Tensor want = bare;
  for (auto& t : side) want = want + linear(linear(seen, t.down), t.up) * t.scale;
  EXPECT_LE(worst(project(q, rows), want), 1e-6);
  EXPECT_LE(worst(project(q, rows, {.residual = residual}), want + residual), 1e-6);
  const Tensors each = project_each({&q, &k}, rows);
  EXPECT_LE(worst(each[0], want), 1e-6);
  EXPECT_EQ(worst(each[1], bare_k), 0);
}

TEST_F(LoraPaths, ASlotIsWrittenInPlace) {
  nn::Linear layer(16, 8);
  auto slot = std::make_shared<LoraPath>(layer, 16, kFloat32, Device());
  const Tensor x = randn({3, 16}), bare = layer(x);
  layer.adapt(slot);
  EXPECT_EQ(worst(layer(x), bare), 0) << "empty";
  const void *down = slot->down.data_ptr(), *up = slot->up.data_ptr();
  for (int count : {3, 1, 2, 0}) {
    std::vector<LoraTerm> side = terms(16, 8, count);
    std::vector<LoraTerm> ready;
    for (auto& t : side) ready.push_back(LoraPath::ready(layer, t, kFloat32, Device()));
    const uint32_t before = slot->up.version();
    slot->fill(ready);
    EXPECT_LE(worst(layer(x), exact(x, layer.weight, layer.bias, side)), 1e-6) << count;
    EXPECT_EQ(slot->down.data_ptr(), down);
    EXPECT_EQ(slot->up.data_ptr(), up);
    EXPECT_NE(slot->up.version(), before) << "what is kept of results must see it";
  }
  EXPECT_THROW(slot->fill({LoraPath::ready(layer, {randn({17, 16}), randn({8, 17})}, kFloat32, Device())}), ValueError);
}

TEST(CudaLora, paths_on_the_device_are_slots_and_packed_layers_one_product) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(5);
  autograd::NoGrad off;
  nn::Linear q(16, 12), k(16, 8), v(16, 8), gate(16, 24);
  nn::Conv2d conv(8, 12, 3, {.padding = 1});
  const Tensor x = randn({2, 5, 16}), picture = randn({1, 8, 6, 6}), residual = randn({2, 5, 12});
  const LoraTerm three{randn({4, 8, 3, 3}) * 0.1, randn({12, 4, 1, 1}), {}, 0, 0.7};
  const std::vector<LoraTerm> of_q = terms(16, 12, 2), of_v = terms(16, 8, 1), of_gate = terms(16, 24, 1);
  auto adapt = [&](Device device) {
    auto put = [&](nn::Module& layer, const std::vector<LoraTerm>& side) {
      layer.adapt(std::make_shared<LoraPath>(layer, side, kFloat32, device));
    };
    put(q, of_q), put(v, of_v), put(gate, of_gate), put(conv, {three});
  };
  auto results = [&](Device device) {
    const Tensor here = x.to(device);
    Tensors all = project_each({&q, &k, &v}, here);
    all.push_back(project(q, here, {.residual = residual.to(device)}));
    all.push_back(project(gate, here, {.activation = "geglu"}));
    all.push_back(conv(picture.to(device)));
    return all;
  };
  adapt(Device());
  const Tensors want = results(Device());
  const Device cuda("cuda");
  for (nn::Module* m : std::initializer_list<nn::Module*>{&q, &k, &v, &gate, &conv}) nn::to(*m, {.device = cuda});
  adapt(cuda);
  ASSERT_TRUE(pack({&q, &k, &v}));
  const Tensors got = results(cuda);
  for (size_t i = 0; i < want.size(); ++i)  // convolutions may go by TF32
    EXPECT_LE(worst(got[i].cpu(), want[i]), i + 1 < want.size() ? 1e-5 : 2e-3) << i;
  EXPECT_EQ(got[0].storage().get(), got[2].storage().get()) << "one product";
  EXPECT_EQ(lora_of(q)->scale, 1) << "scales are in the slot's memory";
}

TEST_F(LoraPaths, HooksSeeTheSum) {
  nn::Linear layer(16, 8);
  const std::vector<LoraTerm> side = terms(16, 8, 2);
  layer.adapt(std::make_shared<LoraPath>(layer, side, kFloat32, Device()));
  Tensor seen;
  const auto id = layer.register_forward_hook([&](nn::Module&, const nn::Values&, const Value& y) {
    seen = std::get<Tensor>(y);
    return Value();
  });
  const Tensor x = randn({3, 16}), y = project(layer, x);
  EXPECT_EQ(projection_of(layer).kind, Projection::Kind::Called);
  EXPECT_LE(worst(y, exact(x, layer.weight, layer.bias, side)), 1e-6);
  EXPECT_EQ(worst(seen, y), 0);
  layer.remove_hook(id);
}

TEST_F(LoraPaths, OfRowsAndOfConvolutions) {
  nn::Linear joined(16, 24, false);
  const LoraTerm part{randn({2, 16}), randn({8, 2}), {}, 8, 1};
  joined.adapt(std::make_shared<LoraPath>(joined, std::vector{part}, kFloat32, Device()));
  const Tensor x = randn({3, 16}), bare = linear(x, joined.weight), got = joined(x);
  EXPECT_EQ(worst(got.narrow(1, 0, 8), bare.narrow(1, 0, 8)), 0);
  EXPECT_LE(worst(got.narrow(1, 8, 8), bare.narrow(1, 8, 8) + linear(linear(x, part.down), part.up)), 1e-6);
  EXPECT_EQ(worst(got.narrow(1, 16, 8), bare.narrow(1, 16, 8)), 0);
  const LoraTerm beyond{randn({2, 16}), randn({8, 2}), {}, 20, 1};
  EXPECT_THROW(LoraPath(joined, {beyond}, kFloat32, Device()), ValueError);
  const LoraTerm ranks{randn({2, 16}), randn({24, 3}), {}, 0, 1};
  EXPECT_THROW(LoraPath(joined, {ranks}, kFloat32, Device()), ValueError);

  nn::Conv2d conv(6, 10, 3, {.stride = 2, .padding = 1});
  const Tensor picture = randn({2, 6, 9, 9});
  const LoraTerm three{randn({4, 6, 3, 3}), randn({10, 4, 1, 1}), {}, 0, 0.7};
  const LoraTerm mid{randn({4, 6, 1, 1}), randn({10, 4, 1, 1}), randn({4, 4, 3, 3}), 0, 0.3};
  const Tensor plain = conv(picture);
  conv.adapt(std::make_shared<LoraPath>(conv, std::vector{three, mid}, kFloat32, Device()));
  const Tensor first = conv2d(conv2d(picture, three.down, {}, {2}, 1), three.up) * 0.7;
  const Tensor second = conv2d(conv2d(conv2d(picture, mid.down), mid.mid, {}, {2}, 1), mid.up) * 0.3;
  EXPECT_LE(worst(conv(picture), plain + first + second), 1e-5);
}

TEST_F(LoraPaths, WithinANormalisingConvolution) {
  nn::GroupNorm norm(4, 16);
  nn::Conv2d conv(16, 8, 3, {.padding = 1});
  const Tensor x = randn({2, 16, 8, 8}), residual = randn({2, 8, 8, 8}), shift = randn({2, 8, 1, 1});
  const LoraTerm term{randn({4, 16, 3, 3}) * 0.1, randn({8, 4, 1, 1}), {}, 0, 0.7};
  const Tensor h = silu(norm(x)), update = conv2d(conv2d(h, term.down, {}, {1}, 1), term.up) * 0.7;
  const Tensor want = conv(h) + update;
  conv.adapt(std::make_shared<LoraPath>(conv, std::vector{term}, kFloat32, Device()));
  EXPECT_LE(worst(norm_silu_conv(norm, conv, x), want), 1e-5);
  EXPECT_LE(worst(norm_silu_conv(norm, conv, x, residual), want + residual), 1e-5);
  EXPECT_LE(worst(norm_silu_conv(norm, conv, x, shift), want + shift), 1e-5);
}

TEST_F(LoraPaths, WhatIsKeptOfATextIsOfTheAdapter) {
  nn::Linear to_k(16, 8);
  ContextCache cache;
  ContextCache::Scope scope(cache);
  const Tensor text = randn({1, 5, 16});
  const Tensor bare = project_text(to_k, text);
  std::vector<LoraTerm> side = terms(16, 8, 1);
  to_k.adapt(std::make_shared<LoraPath>(to_k, side, kFloat32, Device()));
  const Tensor on = project_text(to_k, text);
  EXPECT_GT(worst(on, bare), 1e-3);
  EXPECT_EQ(project_text(to_k, text).data_ptr(), on.data_ptr()) << "kept";
  side[0].scale *= 2;
  to_k.adapt(std::make_shared<LoraPath>(to_k, side, kFloat32, Device()));
  EXPECT_LE(worst(project_text(to_k, text), exact(text, to_k.weight, to_k.bias, side)), 1e-6);
  to_k.adapt(nullptr);
  EXPECT_EQ(worst(project_text(to_k, text), bare), 0);
}

}  // namespace
}  // namespace sf::models
