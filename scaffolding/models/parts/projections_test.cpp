// What a model asks of its linear layers is the plain composition of calls, whatever the layers are made of, and who
// looks at one sees each of its calls.
#include "scaffolding/models/parts/projections.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

using Kind = Projection::Kind;

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

// Counts the calls of a module while it lives.
struct Watched {
  nn::Module& module;
  int calls = 0;
  uint64_t hook;
  explicit Watched(nn::Module& m) : module(m) {
    hook = m.register_forward_hook([this](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
  }
  Watched(const Watched&) = delete;
  ~Watched() { module.remove_hook(hook); }
};

class Projections : public testing::Test {
 protected:
  void SetUp() override { manual_seed(3); }
  autograd::NoGrad no_grad_;
};

// Three layers of one input, and what stands in for them in float8.
struct Three {
  nn::Linear q{16, 32}, k{16, 32}, v{16, 16};
  nn::LinearFP8 q8{16, 32, true, true, true, kFloat8E4M3, {}, q.weight},
      k8{16, 32, true, true, true, kFloat8E4M3, {}, k.weight}, v8{16, 16, true, true, true, kFloat8E4M3, {}, v.weight};
  void in_float8() {
    q.replace_by([this] { return &q8; });
    k.replace_by([this] { return &k8; });
    v.replace_by([this] { return &v8; });
  }
};

TEST_F(Projections, WhatStandsInForALayerSaysWhatMayBeDoneWithIt) {
  nn::Linear layer(64, 32);
  EXPECT_EQ(projection_of(layer).kind, Kind::Dense);
  {
    Watched watched(layer);
    EXPECT_EQ(projection_of(layer).kind, Kind::Called);
  }
  EXPECT_EQ(projection_of(layer).kind, Kind::Dense);
  nn::LinearNF4 nf4(64, 32, true, true, {}, layer.weight);
  nn::LinearFP8 by_rows(64, 32, true, true, true, kFloat8E4M3, {}, layer.weight),
      by_weight(64, 32, true, false, false, kFloat8E4M3, {}, layer.weight);
  nn::Identity unknown;
  for (auto& [stand_in, kind] : {std::pair<nn::Module*, Kind>{&nf4, Kind::Stored},
                                 {&by_rows, Kind::Float8},
                                 {&by_weight, Kind::Stored},
                                 {&unknown, Kind::Called}}) {
    layer.replace_by([m = stand_in] { return m; });
    EXPECT_EQ(projection_of(layer).kind, kind) << stand_in->type();
    Watched watched(*stand_in);
    EXPECT_EQ(projection_of(layer).kind, Kind::Called) << stand_in->type();
  }
}

TEST_F(Projections, ActivationsAndResidualsAreThoseOfOneOpAfterTheOther) {
  nn::Linear layer(8, 12);
  const Tensor x = randn({2, 5, 8});
  for (const char* name : {"", "relu", "gelu", "gelu_tanh", "silu", "quick_gelu", "geglu", "swiglu"}) {
    const std::string activation = name;
    const Tensor product = layer(x), want = activation.empty() ? product : activate(product, activation),
                 residual = randn(want.shape());
    for (bool adds : {false, true}) {
      const ProjectOptions options{.activation = activation, .residual = adds ? residual : Tensor()};
      EXPECT_LT(difference(project(layer, x, options), adds ? residual + want : want), 2e-6) << name;
      Watched watched(layer);
      EXPECT_EQ(difference(project(layer, x, options), adds ? residual + want : want), 0) << name;
      EXPECT_EQ(watched.calls, 1) << name;
    }
  }
  SF_EXPECT_ERROR(ValueError, "activation must be relu, gelu", activate(x, "tanh"));
}

TEST_F(Projections, DropoutStandsBetweenTheProductAndTheResidual) {
  nn::Linear layer(8, 12);
  nn::Dropout dropout(0.5);
  const Tensor x = randn({2, 5, 8}), residual = randn({2, 5, 12});
  manual_seed(7);
  const Tensor want = residual + dropout(layer(x));
  manual_seed(7);
  EXPECT_EQ(difference(project(layer, x, {.dropout = &dropout, .residual = residual}), want), 0);
  dropout.eval();
  EXPECT_EQ(difference(project(layer, x, {.dropout = &dropout, .residual = residual}), residual + layer(x)), 0);
  Watched watched(dropout);
  project(layer, x, {.dropout = &dropout, .residual = residual});
  EXPECT_EQ(watched.calls, 1);
}

TEST_F(Projections, AQuantisedLayerKeepsActivationsResidualsAndTexts) {
  nn::Linear layer(64, 32);
  nn::LinearNF4 nf4(64, 32, true, true, {}, layer.weight);
  layer.replace_by([&] { return &nf4; });
  const Tensor x = randn({3, 64}), residual = randn({3, 32});
  EXPECT_LT(difference(project(layer, x, {.activation = "silu", .residual = residual}), residual + silu(nf4(x))), 1e-6);
  EXPECT_EQ(difference(project_each({&layer, &layer}, x)[1], nf4(x)), 0);
  EXPECT_FALSE(pack({&layer, &layer}));
}

// One kernel for the product with its bias, activation or residual, of every format: blocks are read once and no result
// is gone over again.
TEST_F(Projections, StoredWeightsAreMultipliedAndFinishedInOnePass) {
  const Tensor x = randn({3, 64}), residual = randn({3, 32});
  for (const std::string format : {"nf4", "fp4", "int8", "float8_e4m3fn", "Q8_0", "Q4_0", "float16"}) {
    nn::Linear layer(64, 32);
    if (format == "float16") nn::put_half(layer, layer.weight.to(kFloat16), kFloat32);
    else nn::quantize_layer(layer, format, layer.weight, kFloat32);
    ASSERT_EQ(projection_of(layer).kind, Kind::Stored) << format;
    const Tensor product = layer(x);
    for (const ProjectOptions& o : {ProjectOptions{}, {.activation = "gelu"}, {.residual = residual}}) {
      std::vector<std::string> calls;
      Tensor got;
      {
        KernelWatcher watcher([&](const KernelCall& call) { calls.push_back(call.table.name()); });
        got = project(layer, x, o);
      }
      const Tensor want = !o.activation.empty() ? gelu(product) : o.residual ? product + residual : product;
      EXPECT_LT(difference(got, want), 1e-5) << format;
      ASSERT_EQ(calls.size(), 1u) << format << ' ' << o.activation << ' ' << (calls.empty() ? "" : calls[0]);
      EXPECT_TRUE(calls[0] == "coded_product" || calls[0] == "gguf_product") << calls[0];
    }
  }
}

TEST_F(Projections, PackedWeightsKeepIdentityAndValuesAndGiveTheSameProducts) {
  Three of;
  const Tensor x = randn({2, 5, 16});
  const Tensors want = project_each({&of.q, &of.k, &of.v}, x);
  const Tensor held = of.k.weight, values = of.k.weight.clone();
  EXPECT_FALSE(side_by_side({of.q.weight, of.k.weight, of.v.weight}));
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(pack({&of.q, &of.k, &of.v}));
  EXPECT_EQ(side_by_side({of.q.weight, of.k.weight, of.v.weight}).shape(), (Shape{80, 16}));
  EXPECT_EQ(side_by_side({of.q.bias, of.k.bias, of.v.bias}).shape(), (Shape{80}));
  EXPECT_TRUE(of.k.weight.is_same(held));
  EXPECT_EQ(difference(of.k.weight, values), 0);
  const Tensors got = project_each({&of.q, &of.k, &of.v}, x);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(difference(got[i], want[i]), 0);
}

TEST_F(Projections, LayersOfSeveralKindsStayWhereTheyAre) {
  nn::Linear a(8, 4), b(8, 4, false), c(6, 4), d(8, 4);
  EXPECT_FALSE(pack({&a, &b}));  // one has a bias
  EXPECT_FALSE(pack({&a, &c}));  // of another input
  nn::to(c, {.dtype = kBFloat16});
  Watched watched(d);
  EXPECT_FALSE(pack({&a, &d}));
  EXPECT_FALSE(side_by_side({a.weight, d.weight}));
}

TEST_F(Projections, RowsInFloat8AreReadByAllOrByNone) {
  Three of;
  const Tensor x = randn({2, 5, 16});
  EXPECT_FALSE(take_float8({&of.q, &of.k, &of.v}));
  const ProjectionInput rows(layer_norm_fp8(x, {}, {}, 1e-5), kFloat32);
  SF_EXPECT_ERROR(ValueError, "rows in float8 are for a layer that multiplies in it, got Linear", project(of.q, rows));
  of.in_float8();
  EXPECT_TRUE(take_float8({&of.q, &of.k, &of.v}));
  // Apart, and side by side as one product.
  const Tensors apart = project_each({&of.q, &of.k, &of.v}, rows);
  const Tensor dense = layer_norm(x, {16}, {}, {}, 1e-5), residual = randn({2, 5, 32});
  EXPECT_LT(difference(apart[0], of.q8(dense)), 1e-4);
  EXPECT_LT(difference(project(of.q, rows, {.residual = residual}), residual + apart[0]), 1e-5);
  EXPECT_LT(difference(project(of.q, rows, {.activation = "silu"}), silu(apart[0])), 1e-5);
  EXPECT_TRUE(pack({&of.q, &of.k, &of.v}));
  EXPECT_TRUE(side_by_side({of.q8.weight, of.k8.weight, of.v8.weight}));
  const Tensors together = project_each({&of.q, &of.k, &of.v}, rows);
  for (size_t i = 0; i < 3; ++i) EXPECT_LT(difference(together[i], apart[i]), 1e-5);
  Watched watched(of.k8);
  EXPECT_FALSE(take_float8({&of.q, &of.k, &of.v}));
  project_each({&of.q, &of.k, &of.v}, x);
  EXPECT_EQ(watched.calls, 1);
}

TEST_F(Projections, AHookOnOneLayerSeesItsCallsAlone) {
  Three of;
  pack({&of.q, &of.k, &of.v});
  const Tensor x = randn({2, 5, 16});
  const Tensors want = project_each({&of.q, &of.k, &of.v}, x);
  for (nn::Linear* one : {&of.q, &of.k, &of.v}) {
    Watched watched(*one);
    const Tensors got = project_each({&of.q, &of.k, &of.v}, x);
    EXPECT_EQ(watched.calls, 1);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(difference(got[i], want[i]), 0);
  }
}

TEST(CudaProjections, packed_layers_are_one_product_unless_a_hook_or_a_gradient_wants_them_apart) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  Three of;
  const Tensor x = randn({2, 5, 16});
  const std::initializer_list<const nn::Linear*> layers{&of.q, &of.k, &of.v};
  Tensors want = project_each(layers, x);
  for (nn::Linear* layer : {&of.q, &of.k, &of.v}) nn::to(*layer, {.device = Device("cuda")});
  ASSERT_TRUE(pack(layers));
  auto expect_equal = [&](const Tensors& got) {
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(difference(got[i].cpu(), want[i]), 1e-5);
  };
  auto is_one = [](const Tensors& products) { return products[0].storage().get() == products[2].storage().get(); };
  {
    autograd::NoGrad off;
    Tensors got = project_each(layers, x.cuda());
    EXPECT_TRUE(is_one(got));
    expect_equal(got);
    Watched watched(of.v);
    got = project_each(layers, x.cuda());
    EXPECT_FALSE(is_one(got));
    EXPECT_EQ(watched.calls, 1);
    expect_equal(got);
  }
  for (nn::Linear* layer : {&of.q, &of.k, &of.v}) layer->weight.requires_grad_(false);
  const Tensors got = project_each(layers, x.cuda());  // the biases alone are trained
  EXPECT_FALSE(is_one(got));
  got[1].sum().backward();
  EXPECT_TRUE(of.k.bias.grad());
}

}  // namespace
}  // namespace sf::models
