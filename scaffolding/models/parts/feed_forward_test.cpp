#include "scaffolding/models/parts/feed_forward.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

TEST(FeedForward, TwoLayersAreOneCallAfterTheOther) {
  manual_seed(2);
  nn::Linear first(8, 20), second(20, 8);
  nn::Dropout dropout(0.25);
  for (bool recorded : {false, true}) {
    std::optional<autograd::NoGrad> off;
    if (!recorded) off.emplace();
    const Tensor x = randn({2, 3, 8}), residual = randn({2, 3, 8});
    for (const char* name : {"relu", "gelu", "gelu_tanh", "silu", "quick_gelu"}) {
      const Tensor want = second(activate(first(x), name));
      EXPECT_LT(difference(two_layers(first, name, nullptr, second, x), want), 1e-5) << name;
      EXPECT_LT(difference(two_layers(first, name, nullptr, second, x, residual), residual + want), 1e-5) << name;
    }
    manual_seed(9);
    const Tensor want = residual + second(dropout(relu(first(x))));
    manual_seed(9);
    EXPECT_LT(difference(two_layers(first, "relu", &dropout, second, x, residual), want), 1e-5);
  }
}

TEST(FeedForward, EveryActivationBesideAResidualAndUnderHooks) {
  autograd::NoGrad off;
  manual_seed(2);
  const Tensor x = randn({2, 3, 8}), residual = randn({2, 3, 8});
  for (const char* name : {"geglu", "gelu", "gelu-approximate", "geglu-approximate", "swiglu", "linear-silu"}) {
    FeedForward layer(8, {.activation_fn = name});
    auto& net = layer.net;
    const Tensor want = layer(x), by_parts = net.get<2>()(net.get<1>()(net.get<0>()(x)));
    EXPECT_EQ(difference(want, by_parts), 0) << name;
    EXPECT_EQ(difference(layer.beside(residual, x), residual + want), 0) << name;
    for (nn::Module* part :
         std::initializer_list<nn::Module*>{&layer, &net.get<0>(), &net.get<0>().proj, &net.get<1>(), &net.get<2>()}) {
      int calls = 0;
      const uint64_t hook =
          part->register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
      EXPECT_LT(difference(layer.beside(residual, x), residual + want), 2e-6) << name << " " << part->type();
      EXPECT_EQ(calls, 1) << name << " " << part->type();
      part->remove_hook(hook);
    }
  }
}

TEST(FeedForward, AGateOfItsOwnAndHooksOnEither) {
  autograd::NoGrad off;
  manual_seed(2);
  nn::Linear gate(8, 20, false), up(8, 20, false);
  const Tensor x = randn({2, 3, 8}), want = silu(gate(x)) * up(x);
  EXPECT_LT(difference(gated(gate, up, x), want), 1e-6);
  for (nn::Linear* layer : {&gate, &up}) {
    int calls = 0;
    const uint64_t hook =
        layer->register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
    EXPECT_LT(difference(gated(gate, up, x), want), 1e-6);
    EXPECT_EQ(calls, 1);
    layer->remove_hook(hook);
  }
}

TEST(FeedForward, BothProjectionsInFloat8ReadRows) {
  autograd::NoGrad off;
  manual_seed(2);
  FeedForward layer(16);
  nn::Linear &first = layer.net.get<0>().proj, &second = layer.net.get<2>();
  nn::LinearFP8 first8(16, 128, true, true, true, kFloat8E4M3, {}, first.weight),
      second8(64, 16, true, true, true, kFloat8E4M3, {}, second.weight);
  first8.bias.copy_(first.bias), second8.bias.copy_(second.bias);
  layer.eval();
  first.replace_by([&] { return &first8; });
  EXPECT_FALSE(layer.takes_float8());
  second.replace_by([&] { return &second8; });
  EXPECT_TRUE(layer.takes_float8());
  const Tensor x = randn({2, 3, 16}), residual = randn({2, 3, 16});
  const Tensor got = layer.beside(residual, ProjectionInput(layer_norm_fp8(x, {}, {}, 1e-5), kFloat32));
  EXPECT_LT(difference(got, residual + layer(layer_norm(x, {16}, {}, {}, 1e-5))), 1e-2);
  for (nn::Module* part :
       std::initializer_list<nn::Module*>{&layer, &layer.net.get<0>(), &layer.net.get<1>(), &second8}) {
    const uint64_t hook =
        part->register_forward_hook([](nn::Module&, const nn::Values&, const Value&) { return Value(); });
    EXPECT_FALSE(layer.takes_float8()) << part->type();
    part->remove_hook(hook);
  }
}

}  // namespace
}  // namespace sf::models
