#include "scaffolding/nn/module.h"

#include <gtest/gtest.h>

#include "scaffolding/backend/backend.h"
#include "scaffolding/nn/nn.h"
#include "scaffolding/ops/ops.h"

using namespace sf;

namespace {

struct Block : nn::Module {
  nn::Linear fc{3, 3};
  std::optional<nn::Conv1d> shortcut;
  Tensor scale = nn::parameter(ones({3}));
  nn::Buffer count{zeros({1})};
  nn::Buffer scratch{zeros({2}), false};
  SF_MODULE(Block, fc, shortcut, scale, count, scratch)
  Tensor forward(const Tensor& x) const { return fc(x) * scale; }
};

struct Net : nn::Module {
  nn::Linear in{2, 3};
  nn::ModuleList<Block> blocks;
  nn::Sequential head{nn::ReLU(), nn::Linear(3, 2, false)};
  SF_MODULE(Net, in, blocks, head)
  Net() {
    blocks.emplace_back();
    blocks.emplace_back().shortcut.emplace(3, 3, 1);
  }
  Tensor forward(Tensor x) const {
    x = in(x);
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
};

struct Projection : nn::Module {
  nn::ModuleTuple<nn::Linear, nn::Dropout> to_out{nn::Linear(2, 3), nn::Dropout(0.0)};
  SF_MODULE(Projection, to_out)
  Tensor forward(const Tensor& x) const { return to_out.get<1>()(to_out.get<0>()(x)); }
};

struct Tied : nn::Module {
  nn::Embedding embed{5, 4};
  nn::Linear out{4, 5, false};
  SF_MODULE(Tied, embed, out)
  Tied() { out.weight = embed.weight; }
};

std::vector<std::string> keys(nn::Module& m) {
  std::vector<std::string> out;
  for (auto& [name, t] : nn::state_dict(m)) out.push_back(name);
  return out;
}

}  // namespace

TEST(Module, MemberNamesAreStateDictKeys) {
  Net net;
  EXPECT_EQ(keys(net), (std::vector<std::string>{
                           "in.weight", "in.bias", "blocks.0.scale", "blocks.0.count", "blocks.0.fc.weight",
                           "blocks.0.fc.bias", "blocks.1.scale", "blocks.1.count", "blocks.1.fc.weight",
                           "blocks.1.fc.bias", "blocks.1.shortcut.weight", "blocks.1.shortcut.bias", "head.1.weight"}));
  EXPECT_EQ(nn::named_buffers(net).size(), 4u);
  EXPECT_EQ(nn::parameters(net).size(), 11u);
}

TEST(Module, ParametersOfMembersTrain) {
  Net net;
  net(randn({4, 2})).sum().backward();
  for (auto& [name, t, persistent, owner] : nn::named_parameters(net)) {
    bool used = name.find("shortcut") == name.npos;
    EXPECT_EQ(bool(t.grad()), used) << name;
  }
  nn::zero_grad(net);
  EXPECT_FALSE(net.in.weight.grad());
}

TEST(Module, LoadNamesMissingUnexpectedAndWrongShapedKeys) {
  Net net;
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : nn::state_dict(net)) state[name] = t.clone();
  state["in.wieght"] = state["in.weight"];
  state.erase("in.weight");
  state["in.bias"] = zeros({7});
  try {
    nn::load_state_dict(net, state);
    FAIL();
  } catch (const RuntimeError& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("Missing key(s) in state_dict: \"in.weight\" (closest: 'in.wieght')"), text.npos) << text;
    EXPECT_NE(text.find("Unexpected key(s) in state_dict: \"in.wieght\" (closest: 'in.weight')"), text.npos) << text;
    EXPECT_NE(text.find("size mismatch for in.bias: copying a param with shape [7] from checkpoint, the shape in "
                        "current model is [3]"),
              text.npos)
        << text;
  }
}

TEST(Module, NothingIsLoadedWhenSomethingDoesNotFit) {
  nn::Linear fc(2, 2);
  std::vector<double> before = fc.weight.to_vector();
  EXPECT_THROW(nn::load_state_dict(fc, {{"weight", zeros({2, 2})}, {"bias", zeros({3})}}), RuntimeError);
  EXPECT_EQ(fc.weight.to_vector(), before);
  auto report = nn::load_state_dict(fc, {{"weight", zeros({2, 2})}, {"other", zeros({3})}}, {.strict = false});
  EXPECT_EQ(report.missing_keys, std::vector<std::string>{"bias"});
  EXPECT_EQ(report.unexpected_keys, std::vector<std::string>{"other"});
  EXPECT_EQ(fc.weight.to_vector(), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Module, AssignTakesTheGivenMemoryAndKeepsTheParameter) {
  nn::Linear fc(2, 2, true, {.device = Device(Device::Meta)});
  Tensor handle = fc.weight, given = ones({2, 2});
  // no memory to copy into
  EXPECT_THROW(nn::load_state_dict(fc, {{"weight", given}, {"bias", zeros({2})}}), RuntimeError);
  nn::load_state_dict(fc, {{"weight", given}, {"bias", zeros({2})}}, {.assign = true});
  EXPECT_EQ(handle.data_ptr(), given.data_ptr());
  EXPECT_TRUE(handle.requires_grad());
}

TEST(Module, ToKeepsIdentityAndSharing) {
  Tied tied;
  EXPECT_EQ(nn::parameters(tied).size(), 1u);
  EXPECT_EQ(keys(tied).size(), 2u);
  Tensor before = tied.embed.weight;
  tied.embed.weight.set_grad(ones({5, 4}));
  nn::to(tied, {.dtype = kBFloat16});
  EXPECT_TRUE(tied.embed.weight.is_same(before) && tied.out.weight.is_same(before));
  EXPECT_EQ(before.dtype(), kBFloat16);
  EXPECT_EQ(before.grad().dtype(), kBFloat16);
  EXPECT_TRUE(before.requires_grad());
}

TEST(Module, ToHoldsOneTensorTwiceAtMost) {
  constexpr int64_t kSize = 512;
  nn::ModuleList<nn::Linear> layers;
  for (int i = 0; i < 8; ++i) layers.emplace_back(kSize, kSize, false);
  cpu::reset_peak();
  size_t before = cpu::allocated_bytes(), one = kSize * kSize * sizeof(double);
  nn::to(layers, {.dtype = kFloat64});
  size_t after = cpu::allocated_bytes();
  EXPECT_GE(after, before + 8 * one / 2);              // twice the bytes
  EXPECT_LE(cpu::max_allocated_bytes(), after + one);  // the last tensor in both dtypes, and no more
}

TEST(Module, TrainReachesAllBelow) {
  Net net;
  net.eval();
  for (auto& m : nn::named_modules(net)) EXPECT_FALSE(m.module->training) << m.name;
  net.train();
  EXPECT_TRUE(net.blocks[1].shortcut->training);
}

TEST(Module, HooksRunWhereverTheLayerIsCalled) {
  Net net;
  int calls = 0;
  uint64_t id =
      net.blocks[0].fc.register_forward_hook([&](nn::Module& m, const nn::Values& args, const Value& y) -> Value {
        ++calls;
        EXPECT_STREQ(m.type(), "Linear");
        EXPECT_EQ(args.size(), 1u);
        return zeros_like(std::get<Tensor>(y));
      });
  Tensor x = net(ones({1, 2}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(net.blocks[0](ones({1, 3})).to_vector(), (std::vector<double>{0, 0, 0}));
  net.blocks[0].fc.remove_hook(id);
  net(ones({1, 2}));
  EXPECT_EQ(calls, 2);
  net.in.register_forward_pre_hook([](nn::Module&, const nn::Values&) { return nn::Values{zeros({1, 2})}; });
  EXPECT_EQ(net.in(ones({1, 2})).to_vector(), net.in.bias.to_vector());
}

TEST(Module, ATupleNumbersItsMembers) {
  Projection p;
  EXPECT_EQ(keys(p), (std::vector<std::string>{"to_out.0.weight", "to_out.0.bias"}));
  EXPECT_EQ(p(ones({1, 2})).shape(), (Shape{1, 3}));
  EXPECT_STREQ(nn::get_submodule(p, "to_out.1").type(), "Dropout");
}

TEST(Module, MovesAndCopiesAsAValue) {
  nn::Linear a(2, 2);
  a.eval();
  void* bytes = a.weight.data_ptr();
  nn::Linear b = std::move(a);
  EXPECT_EQ(b.weight.data_ptr(), bytes);
  EXPECT_FALSE(b.training);
  nn::Linear c = b;  // shares the tensors
  EXPECT_TRUE(c.weight.is_same(b.weight));
}

TEST(Module, PrintsAsTorchDoes) {
  Net net;
  EXPECT_EQ(nn::repr(net), R"(Net(
  (in): Linear(in_features=2, out_features=3, bias=True)
  (blocks): ModuleList(
    (0): Block(
      (fc): Linear(in_features=3, out_features=3, bias=True)
      (shortcut): None
    )
    (1): Block(
      (fc): Linear(in_features=3, out_features=3, bias=True)
      (shortcut): Conv1d(3, 3, kernel_size=(1,), stride=(1,))
    )
  )
  (head): Sequential(
    (0): ReLU()
    (1): Linear(in_features=3, out_features=2, bias=False)
  )
))");
}

TEST(Module, GetSubmoduleNamesTheClosest) {
  Net net;
  EXPECT_EQ(&nn::get_submodule(net, "blocks.1.fc"), &net.blocks[1].fc);
  try {
    nn::get_submodule(net, "blocsk.1");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_STREQ(e.what(), "get_submodule: Net has no module 'blocsk' (closest: 'blocks')");
  }
}

TEST(Layer, IsMadeAndCalledByName) {
  auto m = nn::make_layer("Conv2d", {int64_t(3), int64_t(4), int64_t(3), Value(Shape{2, 1})});
  EXPECT_EQ(std::get<Tensor>(m->call({zeros({1, 3, 8, 8})})).shape(), (Shape{1, 4, 3, 6}));
  EXPECT_THROW(nn::make_layer("Conv2d", {int64_t(3), int64_t(4)}), TypeError);
  try {
    nn::make_layer("Conv2D", {});
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_STREQ(e.what(), "make_layer: there is no layer 'Conv2D' (closest: 'Conv2d')");
  }
}

TEST(Layer, OnTheMetaDeviceDrawsNothing) {
  manual_seed(3);
  double expected = rand({1}).item();
  manual_seed(3);
  nn::MultiheadAttention meta(8, 2, {.tensor = {.device = Device(Device::Meta)}});
  nn::Embedding embedding(4, 3, {.padding_idx = 1, .tensor = {.device = Device(Device::Meta)}});
  EXPECT_EQ(rand({1}).item(), expected);
}
