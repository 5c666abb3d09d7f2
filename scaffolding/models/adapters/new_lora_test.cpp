// LoRAs that are trained: which layers get one, what their gradients are, and where their numbers lie.
#include "scaffolding/models/adapters/new_lora.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/adapters/adapters.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

struct MixedConfig {
  io::Fields fields() { return {}; }
};
struct MixedLayers : ConfiguredModel<MixedConfig> {
  nn::Conv2d conv{3, 64, {3, 3}};
  nn::Linear to_q{64, 32}, to_out{32, 5};
  SF_MODULE(MixedLayers, conv, to_q, to_out)
  MixedLayers() : ConfiguredModel({}) {}
  Tensor forward(const Tensor& x) const { return to_out(relu(to_q(conv(x).flatten(2).transpose(1, 2)))); }
};

class NewLoraTest : public testing::Test {
 protected:
  NewLoraTest() {
    manual_seed(5);
    x = randn({2, 3, 6, 7});
    nn::requires_grad_(model, false);
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (auto& [name, t] : model.adapters().parameters()) out.push_back(name);
    return out;
  }
  MixedLayers model;
  Tensor x;
};

TEST_F(NewLoraTest, NamesAndPatternsSayWhichLayers) {
  model.adapters().create("a", {.r = 2, .target_modules = {"to_q", "conv"}, .exclude_modules = {"conv"}});
  EXPECT_EQ(names(), (std::vector<std::string>{"to_q.lora_A.a.weight", "to_q.lora_B.a.weight"}));
  model.adapters().create("b", {.r = 2, .target_modules = {"all-linear"}});
  EXPECT_EQ(names().size(), 6u);
  model.adapters().create("c", {.target_pattern = "conv|to_.*", .rank_pattern = {{"to_out", 3}}});
  EXPECT_EQ(model.adapters().layers("c").size(), 3u);
  EXPECT_EQ(model.adapters().layers("c")[2].rank, 3);
  EXPECT_EQ(model.adapters().layers("c")[0].down.shape(), (Shape{8, 3, 3, 3}));
  EXPECT_EQ(model.adapters().active(), (std::vector<std::string>{"c"}));
}

TEST_F(NewLoraTest, RefusedOnesChangeNothing) {
  Adapters& a = model.adapters();
  SF_EXPECT_ERROR(ValueError, "target_modules must say which layers", a.create("a", {}));
  SF_EXPECT_ERROR(ValueError, "target_modules must say which layers",
                  a.create("a", {.target_modules = {"to_q"}, .target_pattern = "to_q"}));
  SF_EXPECT_ERROR(ValueError, "no module of MixedLayers is meant by target_modules 'q'",
                  a.create("a", {.target_modules = {"q"}}));
  SF_EXPECT_ERROR(ValueError, "r must be from 1", a.create("a", {.r = -1, .target_modules = {"to_q"}}));
  SF_EXPECT_ERROR(ValueError, "lora_dropout must be from 0",
                  a.create("a", {.target_modules = {"to_q"}, .lora_dropout = 1}));
  SF_EXPECT_ERROR(ValueError, "a name in target_modules is empty", a.create("a", {.target_modules = {""}}));
  EXPECT_TRUE(a.names().empty());
  EXPECT_FALSE(model.to_q.adapter());
}

// Beside dense weights, and beside blocks that stand for the same numbers.
TEST_F(NewLoraTest, GradientsAreThoseOfTheFormula) {
  for (bool quantised : {false, true}) {
    MixedLayers net;
    nn::requires_grad_(net, false);
    if (quantised) nn::quantize_(net, "q8_0", {.convolutions = false});
    auto plain = [&] {
      autograd::NoGrad off;
      return net(x);
    };
    const Tensor before = plain();
    net.adapters().create(
        "a", {.r = 4, .lora_alpha = 2, .target_modules = {"conv", "to_q"}, .init_lora_weights = NewLora::Init::Random});
    Tensors p;
    for (auto& [name, t] : net.adapters().parameters()) p.push_back(t);
    const Tensor y = net(x), step = randn(y.shape());
    EXPECT_GT(amax(abs(y - before)).item(), 1e-3);
    y.backward(step);
    // By hand, where the layers' own products are the model's.
    Tensors q;
    for (auto& t : p) q.push_back(t.detach().clone().requires_grad_());
    net.adapters().enable(false);
    Tensor h = net.conv(x) + conv2d(net.conv.convolve(x, q[0]), q[1]) * 0.5;
    h = h.flatten(2).transpose(1, 2);
    h = std::get<Tensor>(net.to_q.present()->call({h})) + linear(linear(h, q[2]), q[3]) * 0.5;
    std::get<Tensor>(net.to_out.present()->call({relu(h)})).backward(step);
    for (size_t i = 0; i < p.size(); ++i)
      EXPECT_LE(norm(p[i].grad() - q[i].grad()).item(), 1e-4 * norm(q[i].grad()).item()) << i << quantised;
    EXPECT_EQ(amax(abs(plain() - before)).item(), 0);
    net.adapters().enable(true);
    // Trained no more, it is what inference takes: the same numbers.
    const Tensor trained = plain();
    net.adapters().train("a", false);
    EXPECT_TRUE(net.adapters().parameters().empty());
    EXPECT_LE(amax(abs(plain() - trained)).item(), 1e-4);
  }
}

// One that was loaded: its factors become memory of its own.
TEST_F(NewLoraTest, ALoadedOneIsTrainedOn) {
  auto layer = [](int64_t row, int64_t rows) {
    return LoraLayer{.module = "to_q",
                     .down = randn({2, 64}),
                     .up = randn({rows, 2}),
                     .rank = 2,
                     .row = row,
                     .rows = rows,
                     .alpha = 2,
                     .scale = 1};
  };
  const LoraLayer half = layer(16, 16);
  model.adapters().add("half", {half});
  model.adapters().set({{"half"}});
  autograd::NoGrad off;
  const Tensor before = model(x);
  model.adapters().train("half");
  EXPECT_LE(amax(abs(model(x) - before)).item(), 1e-5);
  ASSERT_EQ(names().size(), 2u);
  Tensor down = model.adapters().parameters()[0].second, up = model.adapters().parameters()[1].second;
  EXPECT_EQ(up.shape(), (Shape{32, 2}));  // rows that it had nothing for are zeros
  EXPECT_TRUE(down.requires_grad());
  down.fill_(3);
  EXPECT_NE(half.down.to_vector()[0], 3);
  model.adapters().add("parts", {layer(0, 16), layer(16, 16)});
  SF_EXPECT_ERROR(NotSupported, "'parts' has several factors beside one layer", model.adapters().train("parts"));
  EXPECT_EQ(names().size(), 2u);
}

}  // namespace
}  // namespace sf::models
