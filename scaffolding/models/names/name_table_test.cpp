#include "scaffolding/models/names/name_table.h"

#include "scaffolding/core/default_device.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/model.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

using Entries = std::vector<TensorList::Entry>;
using Tensors_ = std::map<std::string, Tensor>;

NameTable table_of(const Entries& model, const NameRules& rules) {
  return NameTable(TensorList(model), rules, "Net as 'other'");
}

Tensors_ random_of(const Entries& model) {
  Tensors_ out;
  for (auto& [name, shape] : model) out[name] = randn(shape);
  return out;
}

bool same(const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && bool(all(eq(a, b)).item()); }

// Written and read again, every tensor is what it was.
Tensors_ there_and_back(const Entries& model, const NameRules& rules, const Tensors_& ours) {
  NameTable table = table_of(model, rules);
  Tensors_ theirs = table.write(ours, "the net");
  for (auto& source : table.sources()) {
    EXPECT_TRUE(theirs.count(source.name)) << source.name;
    EXPECT_TRUE(theirs[source.name].shape() == source.shape) << source.name;
  }
  for (auto& t : table.tensors())
    EXPECT_TRUE(same(table.read(t, [&](auto& name) { return theirs.at(name); }), ours.at(t.name))) << t.name;
  return theirs;
}

// Black Forest Labs' names of FLUX.1, at a width of 4 with 2 + 3 rows more in the single blocks:
// as much as a table must be able to say.
NameRules flux() {
  const NameRules two = NameRules()
                            .join({"attn.to_q", "attn.to_k", "attn.to_v"}, "img_attn.qkv")
                            .join({"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}, "txt_attn.qkv")
                            .rename("attn.norm_q.weight", "img_attn.norm.query_norm.scale")
                            .rename("ff.net.0.proj", "img_mlp.0");
  const NameRules one =
      NameRules().join({"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}, "linear1").rename("proj_out", "linear2");
  return NameRules()
      .rename("x_embedder", "img_in")
      .inside("transformer_blocks.{i}", "double_blocks.{i}", two)
      .inside("single_transformer_blocks.{i}", "single_blocks.{i}", one)
      .swap_halves("norm_out.linear", "final_layer.adaLN_modulation.1");
}

Entries linear(const std::string& name, int64_t out, int64_t in) {
  return {{name + ".weight", {out, in}}, {name + ".bias", {out}}};
}

Entries flux_model() {
  Entries out = linear("x_embedder", 4, 3);
  auto add = [&](const std::string& name, int64_t rows, int64_t in) {
    for (auto& e : linear(name, rows, in)) out.push_back(e);
  };
  for (std::string block : {"transformer_blocks.0", "transformer_blocks.1"}) {
    for (const char* part :
         {".attn.add_v_proj", ".attn.to_q", ".attn.to_k", ".attn.to_v", ".attn.add_k_proj", ".attn.add_q_proj"})
      add(block + part, 4, 4);
    out.push_back({block + ".attn.norm_q.weight", {2}});
    add(block + ".ff.net.0.proj", 16, 4);
  }
  add("single_transformer_blocks.0.proj_mlp", 9, 4);
  for (const char* part : {"to_q", "to_k", "to_v"}) add(std::string("single_transformer_blocks.0.attn.") + part, 4, 4);
  add("single_transformer_blocks.0.proj_out", 4, 13);
  add("norm_out.linear", 8, 4);
  return out;
}

TEST(Names, FluxThereAndBack) {
  Entries model = flux_model();
  auto ours = random_of(model);
  auto theirs = there_and_back(model, flux(), ours);
  EXPECT_EQ(theirs.size(), 2u + 2 * 7u + 4u + 2u);
  auto part = [&](const char* block, const char* name) { return ours.at(std::string(block) + name); };
  const char* two = "transformer_blocks.1.attn.";
  EXPECT_TRUE(same(theirs.at("double_blocks.1.img_attn.qkv.weight"),
                   cat({part(two, "to_q.weight"), part(two, "to_k.weight"), part(two, "to_v.weight")}, 0)));
  EXPECT_TRUE(same(theirs.at("double_blocks.1.txt_attn.qkv.bias"),
                   cat({part(two, "add_q_proj.bias"), part(two, "add_k_proj.bias"), part(two, "add_v_proj.bias")}, 0)));
  EXPECT_TRUE(same(theirs.at("double_blocks.0.img_attn.norm.query_norm.scale"),
                   ours.at("transformer_blocks.0.attn.norm_q.weight")));
  Tensor linear1 = theirs.at("single_blocks.0.linear1.weight");  // 4 + 4 + 4 + 9 rows
  EXPECT_TRUE((linear1.shape() == Shape{21, 4}));
  EXPECT_TRUE(same(narrow(linear1, 0, 12, 9), ours.at("single_transformer_blocks.0.proj_mlp.weight")));
  EXPECT_TRUE(same(narrow(linear1, 0, 8, 4), ours.at("single_transformer_blocks.0.attn.to_v.weight")));
  Tensor modulation = theirs.at("final_layer.adaLN_modulation.1.bias"), norm_out = ours.at("norm_out.linear.bias");
  EXPECT_TRUE(same(modulation, cat({narrow(norm_out, 0, 4, 4), narrow(norm_out, 0, 0, 4)}, 0)));
}

TEST(Names, NormsThatAreOneMore) {
  const NameRules rules = NameRules().rename("norm", "output_norm", NameChange::OneMore).rename("up", "ffn_up");
  Entries model = linear("up", 4, 3);
  model.push_back({"norm.weight", {4}});
  auto ours = random_of(model);
  ours["norm.weight"] = tensor(std::vector<double>{0, -1, 0.25, 2}, {4}, kFloat32);  // nothing of which rounding takes
  const auto theirs = there_and_back(model, rules, ours);
  EXPECT_TRUE(same(theirs.at("output_norm.weight"), ours.at("norm.weight") + 1));
  EXPECT_TRUE(same(theirs.at("ffn_up.bias"), ours.at("up.bias")));
}

TEST(Names, WhereRowsLie) {
  NameTable table = table_of(flux_model(), flux());
  const NamedTensor* mlp = table.find("single_transformer_blocks.0.proj_mlp.bias");
  ASSERT_TRUE(mlp && table.pieces(*mlp).size() == 1);
  const NamePiece& piece = table.pieces(*mlp)[0];
  EXPECT_EQ(table.sources()[piece.source].name, "single_blocks.0.linear1.bias");
  EXPECT_EQ(piece.source_row, 12);
  EXPECT_EQ(piece.rows, 9);
  const NamedTensor* swapped = table.find("norm_out.linear.weight");
  ASSERT_TRUE(swapped && table.pieces(*swapped).size() == 2);
  EXPECT_EQ(table.pieces(*swapped)[0].source_row, 4);
  EXPECT_EQ(table.pieces(*swapped)[1].source_row, 0);
  EXPECT_FALSE(table.find("nothing"));
}

// Stable Diffusion 3: the last block attends from one side only, and its context has two of six shifts,
// the other way round.
TEST(Names, LayoutsThatDependOnTheModel) {
  NameRules sd3;
  sd3.join({"blocks.{i}.attn.to_q", "blocks.{i}.attn.to_k", "blocks.{i}.attn.to_v"},
           "joint_blocks.{i}.x_block.attn.qkv")
      .rename("blocks.{i}.norm1_context.linear", "joint_blocks.{i}.context_block.adaLN_modulation.1")
      .with([](const TensorList& model, NameRules& rules) {
        std::string last = std::to_string(model.count("blocks") - 1);
        rules.swap_halves("blocks." + last + ".norm1_context.linear",
                          "joint_blocks." + last + ".context_block.adaLN_modulation.1");
      });
  Entries model;
  for (std::string block : {"blocks.0", "blocks.1"}) {
    for (const char* part : {".attn.to_q", ".attn.to_k", ".attn.to_v"})
      model.push_back({block + part + ".weight", {4, 4}});
    model.push_back({block + ".norm1_context.linear.bias", {block == "blocks.1" ? 8 : 24}});
  }
  auto ours = random_of(model);
  auto theirs = there_and_back(model, sd3, ours);
  EXPECT_TRUE(same(theirs.at("joint_blocks.0.context_block.adaLN_modulation.1.bias"),
                   ours.at("blocks.0.norm1_context.linear.bias")));
  EXPECT_FALSE(same(theirs.at("joint_blocks.1.context_block.adaLN_modulation.1.bias"),
                    ours.at("blocks.1.norm1_context.linear.bias")));
}

TEST(Names, EveryLayout) {
  Entries model = {{"conv.weight", {4, 3, 2, 2}}, {"conv.bias", {4}},        {"point.weight", {5, 4}},
                   {"point.bias", {5}},           {"turned.weight", {2, 3}}, {"pos", {1, 6, 4}},
                   {"gate.weight", {6, 4}},       {"parts.weight", {6, 4}},  {"scale", {}},
                   {"low.weight", {2, 4}},        {"high.weight", {3, 4}},   {"first.bias", {4}},
                   {"second.bias", {4}}};
  NameRules rules = NameRules()
                        .rename("conv", "patch", NameChange::Flat)
                        .rename("point", "conv1x1", NameChange::Pointwise)
                        .rename("turned.weight", "matrix", NameChange::Transposed)
                        .reshape("pos", "positions", {-1, 4})
                        .split("gate", {"value", "gate"})
                        .split("parts", {"a", "b", "c"}, {1, 2, 3})
                        .slice("low", "both", 0)
                        .slice("high", "both", 2)
                        .slices("first", "woven", {0, 4})
                        .slices("second", "woven", {2, 6})
                        .same({"scale"});
  auto ours = random_of(model);
  auto theirs = there_and_back(model, rules, ours);
  EXPECT_TRUE((theirs.at("patch.weight").shape() == Shape{4, 12}));
  EXPECT_TRUE((theirs.at("patch.bias").shape() == Shape{4}));
  EXPECT_TRUE((theirs.at("conv1x1.weight").shape() == Shape{5, 4, 1, 1}));
  EXPECT_TRUE(same(theirs.at("matrix"), transpose(ours.at("turned.weight"), 0, 1)));
  EXPECT_TRUE((theirs.at("positions").shape() == Shape{6, 4}));
  EXPECT_TRUE(same(theirs.at("gate.weight"), narrow(ours.at("gate.weight"), 0, 3, 3)));
  EXPECT_TRUE(same(theirs.at("c.weight"), narrow(ours.at("parts.weight"), 0, 3, 3)));
  EXPECT_TRUE(same(theirs.at("both.weight"), cat({ours.at("low.weight"), ours.at("high.weight")}, 0)));
  const Tensor first = ours.at("first.bias"), second = ours.at("second.bias");
  EXPECT_TRUE(
      same(theirs.at("woven.bias"),
           cat({narrow(first, 0, 0, 2), narrow(second, 0, 0, 2), narrow(first, 0, 2, 2), narrow(second, 0, 2, 2)}, 0)));
  // A convolution of one pixel that another program wrote as a linear layer.
  NameTable table = table_of(model, rules);
  EXPECT_TRUE(same(table.read(*table.find("point.weight"), [&](auto&) { return ours.at("point.weight"); }),
                   ours.at("point.weight")));
}

TEST(Names, WhatIsWholeIsBorrowed) {
  Entries model = {{"a.weight", {4, 2}}, {"b.weight", {2, 2}}};
  NameTable table = table_of(model, NameRules().join({"a", "b"}, "ab"));
  Tensor ab = randn({6, 2});
  Tensor b = table.read(*table.find("b.weight"), [&](auto&) { return ab; });
  EXPECT_EQ(b.data_ptr(), static_cast<const char*>(ab.data_ptr()) + 8 * sizeof(float));
}

TEST(Names, TheRuleThatNamesMostCounts) {
  Entries model = {{"blocks.0.fc.weight", {2}},
                   {"blocks.1.fc.weight", {2}},
                   {"blocks.1.out.weight", {2}},
                   {"head.weight", {2}},
                   {"blocks.x.fc", {2}}};
  NameRules rules = NameRules()
                        .rename("", "")
                        .rename("blocks.{i}", "layers.{i}")
                        .rename("blocks.1.fc", "special")
                        .rename("blocks.{i}.out", "out{i}.{i}");
  NameTable table = table_of(model, rules);
  auto source = [&](const char* name) { return table.first_source(*table.find(name)).name; };
  EXPECT_EQ(source("blocks.0.fc.weight"), "layers.0.fc.weight");
  EXPECT_EQ(source("blocks.1.fc.weight"), "special.weight");
  EXPECT_EQ(source("head.weight"), "head.weight");
  EXPECT_EQ(source("blocks.x.fc"), "blocks.x.fc");
  EXPECT_EQ(source("blocks.1.out.weight"), "out1.1.weight");
  table.rename_sources([](const std::string& name) { return "model." + name; });
  EXPECT_EQ(source("head.weight"), "model.head.weight");
  EXPECT_EQ(source("blocks.1.fc.weight"), "model.special.weight");
  EXPECT_EQ(table_of({{"text_model.a", {1}}}, NameRules().rename("text_model", "")).sources()[0].name, "a");
}

TEST(Names, RulesThatContradictEachOther) {
  Entries two = {{"a.weight", {4, 2}}, {"b.weight", {4, 2}}};
  auto refused = [&](const char* message, const Entries& model, const NameRules& rules) {
    SF_EXPECT_ERROR(ValueError, message, table_of(model, rules));
  };
  refused("Net as 'other': 'a.weight' and 'b.weight' are both rows 0 to 4 of 'x.weight'", two,
          NameRules().rename("a", "x").rename("b", "x"));
  refused("'a.weight' and 'b.weight' are both rows 3 to 4 of 'x.weight'", two,
          NameRules().slice("a", "x", 0).slice("b", "x", 3));
  refused("rows 4 to 6 of 'x.weight', before those of 'b.weight', belong to no tensor", two,
          NameRules().slice("a", "x", 0).slice("b", "x", 6));
  refused("'x.weight' lacks its part 'c', which the model does not have", two, NameRules().join({"a", "b", "c"}, "x"));
  refused("'x.weight' lacks its part 'c', which the model does not have", two, NameRules().join({"a", "c", "b"}, "x"));
  refused("parts of 'x.weight' differ beside their rows: 'a.weight' is [4, 2] and 'b.weight' is [4, 3]",
          {{"a.weight", {4, 2}}, {"b.weight", {4, 3}}}, NameRules().join({"a", "b"}, "x"));
  refused("'x.weight' lies in two ways, one for 'a.weight' and one for 'b.weight'", two,
          NameRules().rename("a", "x", NameChange::Transposed).slice("b", "x", 4));
  refused("two rules name 'a': as 'x' and as 'y'", two, NameRules().rename("a", "x").rename("a", "y"));
  refused("the rule for 'a' does not say what stands for all braces of 'x.{i}'", two, NameRules().rename("a", "x.{i}"));
  refused("'odd' has no halves, it is [3]", {{"odd", {3}}}, NameRules().swap_halves("odd", "x"));
  refused("'odd' of 3 rows cannot be 2 tensors of 1 rows each", {{"odd", {3}}}, NameRules().split("odd", {"x", "y"}));
  refused("'odd' of 3 rows cannot be 2 tensors of 5 rows together", {{"odd", {3}}},
          NameRules().split("odd", {"x", "y"}, {2, 3}));
  refused("'odd' of 3 rows cannot be 2 equal parts", {{"odd", {3}}}, NameRules().slices("odd", "x", {0, 4}));
  refused("'one' is one number and has no rows to cut", {{"one", {}}}, NameRules().swap_halves("one", "x"));
  refused("'pos' is [2, 3] and cannot be [4, 2]", {{"pos", {2, 3}}}, NameRules().reshape("pos", "x", {4, 2}));
  refused("must name one tensor, and 'a.weight' is another", two, NameRules().reshape("a", "x", {8}).same({"b"}));
  refused("two tensors are the part 'blocks.{i}' of 'x'", {{"blocks.0", {1}}, {"blocks.1", {1}}, {"c", {1}}},
          NameRules().join({"blocks.{i}", "c"}, "x"));
  SF_EXPECT_ERROR(NotSupported, "Net as 'other': no rule names 'b.weight'",
                  table_of(two, NameRules().rename("a", "x")));
}

TEST(Names, TensorsOfOtherShapes) {
  NameTable table = table_of({{"a.weight", {4, 2}}}, NameRules().rename("a", "x"));
  SF_EXPECT_ERROR(ValueError, "the net lacks 'a.weight'", table.write({}, "the net"));
  SF_EXPECT_ERROR(ValueError, "the net has 'a.weight' of [2, 4], which should be [4, 2]",
                  table.write({{"a.weight", zeros({2, 4})}}, "the net"));
  SF_EXPECT_ERROR(ValueError, "Net as 'other': 'x.weight' is [2, 4] and should be [4, 2]",
                  table.read(table.tensors()[0], [](auto&) {
                    return zeros({2, 4});
                  }));
}

// Every layout that a class has names every tensor of that class's default model, there and back.
TEST(Names, EveryRegisteredLayout) {
  auto classes = classes_with_layouts();
  ASSERT_GE(classes.size(), 4u);
  for (auto& name : classes) {
    ASSERT_TRUE(find_model(name)) << name;
    DefaultDevice nowhere{Device(Device::Meta)};
    auto model = make_model(name, io::Object::container(io::Object::Dict));
    std::map<std::string, Tensor> ours;
    for (auto& [key, t] : nn::state_dict(*model)) ours.emplace(key, t);
    for (auto& layout : layouts_of(name)) {
      NameTable table = name_table(*model, name, layout);
      EXPECT_EQ(table.tensors().size(), ours.size());
      auto theirs = table.write(ours, name);
      EXPECT_EQ(theirs.size(), table.sources().size());
      for (auto& t : table.tensors())
        EXPECT_TRUE(table.read(t, [&](auto& source) { return theirs.at(source); }).shape() == t.shape) << t.name;
    }
    SF_EXPECT_ERROR(ValueError, "has no names in the layout 'gone'; there are own, ", name_table(*model, name, "gone"));
  }
}

}  // namespace
}  // namespace sf::models
