// The adapters of a model by name: on, off, several, fused, and nothing changed where one is refused.
#include "scaffolding/models/adapters/adapters.h"

#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

struct TwoLayersConfig {
  io::Fields fields() { return {}; }
};
struct TwoLayers : ConfiguredModel<TwoLayersConfig> {
  nn::Linear first{8, 6}, second{6, 4};
  SF_MODULE(TwoLayers, first, second)
  TwoLayers() : ConfiguredModel({}) {}
  Tensor forward(const Tensor& x) const { return second(first(x)); }
};

LoraLayer layer(const std::string& module, int64_t in, int64_t out, double scale = 1) {
  return {.module = module,
          .stem = module,
          .down = randn({2, in}),
          .up = randn({out, 2}),
          .rank = 2,
          .rows = out,
          .alpha = 2 * scale,
          .scale = scale};
}

bool same(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item() == 0; }

class AdaptersTest : public testing::Test {
 protected:
  AdaptersTest() {
    manual_seed(11);
    x = randn({3, 8});
    a = {layer("first", 8, 6), layer("second", 6, 4, 0.5)}, b = {layer("second", 6, 4)};
  }
  // What the model gives with these weights of a and b.
  Tensor expected(double of_a, double of_b) const {
    auto with = [](const nn::Linear& l, const Tensor& x, std::vector<std::pair<const LoraLayer*, double>> on) {
      Tensor y = linear(x, l.weight, l.bias);
      for (auto& [lora, weight] : on) y = y + linear(linear(x, lora->down), lora->up) * (lora->scale * weight);
      return y;
    };
    return with(model.second, with(model.first, x, {{&a[0], of_a}}), {{&a[1], of_a}, {&b[0], of_b}});
  }
  void is(double of_a, double of_b) const {
    EXPECT_LE(amax(abs(model(x) - expected(of_a, of_b))).item(), 1e-5) << of_a << ", " << of_b;
  }
  autograd::NoGrad no_grad_;
  TwoLayers model;
  Tensor x;
  std::vector<LoraLayer> a, b;
};

TEST_F(AdaptersTest, OnOffAndSeveral) {
  EXPECT_FALSE(model.has_adapters());
  Adapters& adapters = model.adapters();
  adapters.add("a", a);
  adapters.add("b", b);
  is(0, 0);
  adapters.set({{"a", 0.5}});
  is(0.5, 0);
  adapters.set({{"b", 2}, {"a", 1}});
  is(1, 2);
  EXPECT_EQ(adapters.active(), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(adapters.names(), (std::vector<std::string>{"a", "b"}));
  adapters.scale(0.5);
  is(0.5, 1);
  adapters.scale(1);
  adapters.enable(false);
  is(0, 0);
  adapters.enable(true);
  is(1, 2);
  adapters.remove("b");
  is(1, 0);
  adapters.remove("a");
  is(0, 0);
  EXPECT_EQ(model.first.adapter(), nullptr);
}

TEST_F(AdaptersTest, WeightsByModuleAndAnotherInItsPlace) {
  Adapters& adapters = model.adapters();
  adapters.add("a", a);
  adapters.set({{"a", 1, [](const std::string& module) { return module == "first" ? 1.0 : 0.0; }}});
  EXPECT_NE(model.first.adapter(), nullptr);
  EXPECT_EQ(model.second.adapter(), nullptr) << "a weight of 0 costs nothing";
  adapters.set({{"a", 1}});
  adapters.add("aside", b);
  adapters.rename("aside", "a");
  is(0, 1);
  EXPECT_EQ(adapters.names(), (std::vector<std::string>{"a"}));
}

TEST_F(AdaptersTest, FusedAndTheOldBytesAgain) {
  Adapters& adapters = model.adapters();
  const Tensor first = model.first.weight.clone(), second = model.second.weight.clone();
  adapters.add("a", a);
  adapters.add("b", b);
  adapters.set({{"a", 0.7}, {"b", 0.4}});
  adapters.fuse(1, true, std::vector<std::string>{"a"});
  EXPECT_EQ(model.first.adapter(), nullptr);
  EXPECT_EQ(adapters.fused(), (std::vector<std::string>{"a"}));
  adapters.fuse();
  EXPECT_EQ(model.second.adapter(), nullptr);
  adapters.unfuse();
  EXPECT_TRUE(same(model.first.weight, first));
  EXPECT_TRUE(same(model.second.weight, second));
  is(0.7, 0.4);
  adapters.fuse(0.5);
  adapters.enable(false);
  EXPECT_FALSE(same(model.second.weight, second)) << "what is in the weights cannot be turned off";
  adapters.unfuse();
  adapters.enable(true);
  is(0.7, 0.4);
}

TEST_F(AdaptersTest, RefusalsChangeNothing) {
  Adapters& adapters = model.adapters();
  adapters.add("a", a);
  adapters.set({{"a", 1}});
  auto refused = [&](auto&& f, const char* why) {
    const std::string what = io::error_of<ValueError>(f);
    EXPECT_NE(what.find(why), std::string::npos) << what;
    EXPECT_EQ(adapters.names(), (std::vector<std::string>{"a"}));
    is(1, 0);
  };
  refused([&] { adapters.add("a", b); }, "already");
  refused([&] { adapters.add("b", {}); }, "no layer");
  refused([&] { adapters.add("b", {layer("third", 6, 4)}); }, "no module 'third'");
  refused([&] { adapters.add("b", {layer("second", 6, 5)}); }, "rows");
  refused([&] { adapters.set({{"b", 1}}); }, "there are a");
  refused([&] { adapters.remove("b"); }, "no adapter 'b'");
  LoraLayer broken = layer("second", 6, 4);
  broken.up = broken.up * NAN;
  refused([&] { adapters.add("b", {broken}); }, "second");
}

}  // namespace
}  // namespace sf::models
