#include "scaffolding/models/quantized_folder.h"

#include <filesystem>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/test_networks.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

// Other programs' layers are compared by tests/python/models/test_quantized_folders_of_others.py.
class QuantizedFolder : public io::TestFolder {
 protected:
  static constexpr const char* kFile = "model/diffusion_pytorch_model.safetensors";
  void SetUp() override {
    io::TestFolder::SetUp();
    manual_seed(1);
    UNet2DConditionModel model(test::tiny_unet(32));
    save_model(model, path("model"));
  }
  Tensor run(Model& model) {
    autograd::NoGrad off;
    return dynamic_cast<UNet2DConditionModel&>(model).forward(x_, full({1}, 3, kInt64), text_);
  }
  // The model in few bits; its folder has their tensors, and says so.
  std::unique_ptr<Model> quantised(const std::string& format, const std::string& config,
                                   const nn::QuantizeOptions& options = {}) {
    auto model = load_model(path("model"));
    nn::quantize_(*model, format, options);
    std::map<std::string, Tensor> state;
    for (auto& [name, t] : nn::state_dict(*model)) state.emplace(name, t);
    io::save_safetensors(state, path(kFile));
    said(config);
    return model;
  }
  void said(const std::string& config) {
    io::Object whole = load_model_config(path("model"));
    std::vector<io::Object> items = whole.items();
    items.insert(items.end(), {"quantization_config", io::parse_config(config, "test")});
    io::write_config_file(io::Object::container(io::Object::Dict, std::move(items)), path("model/config.json"));
  }
  void expect_back(Model& model) {
    auto again = load_model(path("model"));
    auto a = nn::named_modules(model), b = nn::named_modules(*again);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_STREQ(a[i].module->type(), b[i].module->type()) << a[i].name;
    EXPECT_EQ(amax(abs(run(*again) - run(model))).item(), 0);
    EXPECT_FALSE(again->config().find("quantization_config"));
  }
  Tensor x_ = randn({1, 4, 8, 8}), text_ = randn({1, 5, 16});
};

TEST_F(QuantizedFolder, BitsandbytesInt8) {
  auto model = quantised("int8", R"({"quant_method": "bitsandbytes", "load_in_8bit": true})");
  expect_back(*model);
}

TEST_F(QuantizedFolder, BlocksOfLinearLayersAndConvolutions) {
  auto model = load_model(path("model"));
  std::string layers;
  for (auto& p : nn::plan_quantization(*model, "Q8_0"))
    layers += (layers.empty() ? "\"" : ", \"") + p.name + R"(": {"format": "Q8_0"})";
  const std::string config = R"({"quant_method": "scaffolding", "layers": {)" + layers + "}}";
  expect_back(*quantised("Q8_0", config));
}

TEST_F(QuantizedFolder, ModelsInFewBitsAreWrittenAsTheyAreRead) {
  struct Way {
    const char *format, *method;
    bool dynamic = false, per_row = true;
  };
  for (const Way& way : {Way{"nf4", "bitsandbytes"}, Way{"fp4", "bitsandbytes"}, Way{"int8", "bitsandbytes"},
                         Way{"int8", "scaffolding", true}, Way{"float8_e4m3fn", "torchao"},
                         Way{"float8_e4m3fn", "scaffolding", true}, Way{"float8_e5m2", "scaffolding", false, false},
                         Way{"Q8_0", "scaffolding"}, Way{"Q4_K", "scaffolding", true}}) {
    SCOPED_TRACE(way.format);
    auto model = load_model(path("model"));
    nn::quantize_(*model, way.format, {.per_row = way.per_row, .dynamic = way.dynamic});
    save_model(*model, path("few"));
    EXPECT_EQ(load_model_config(path("few")).find("quantization_config")->find("quant_method")->text(), way.method);
    auto again = load_model(path("few"));
    auto a = nn::named_modules(*model), b = nn::named_modules(*again);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_STREQ(a[i].module->type(), b[i].module->type()) << a[i].name;
      EXPECT_EQ(a[i].module->extra_repr(), b[i].module->extra_repr()) << a[i].name;
    }
    EXPECT_EQ(amax(abs(run(*again) - run(*model))).item(), 0);
    save_model(*again, path("twice"));
    for (const char* file : {"config.json", "diffusion_pytorch_model.safetensors"})
      EXPECT_EQ(bytes_of(path(std::string("few/") + file)), bytes_of(path(std::string("twice/") + file))) << file;
    SF_EXPECT_ERROR(ValueError, "saved as safetensors", save_model(*model, path("bin"), {.safe_serialization = false}));
    EXPECT_FALSE(std::filesystem::exists(path("bin")));
  }
}

TEST_F(QuantizedFolder, WhatIsNotReadIsRefusedByName) {
  said(R"({"quant_method": "awq"})");
  SF_EXPECT_ERROR(NotSupported, "must be bitsandbytes, torchao, quanto or scaffolding, got 'awq'",
                  load_model(path("model")));
  SF_EXPECT_ERROR(
      ValueError, "quantised already",
      load_model(path("model"), {.quantize = std::make_shared<nn::QuantizeConfig>(nn::QuantizeConfig{"nf4", {}})}));
}

TEST_F(QuantizedFolder, LayersOfTorchFilesAreRefused) {
  auto model = load_model(path("model"));
  std::filesystem::remove(path(kFile));
  save_model(*model, path("model"), {.safe_serialization = false});
  for (const char* method : {"torchao", "quanto"}) {
    said(std::string(R"({"quant_method": ")") + method + R"("})");
    SF_EXPECT_ERROR(NotSupported, "layers are read from safetensors", load_model(path("model")));
    save_model(*model, path("model"), {.safe_serialization = false});
  }
}

TEST_F(QuantizedFolder, RowsThatDoNotFitAreRefused) {
  auto model = load_model(path("model"));
  const std::string name = nn::plan_quantization(*model, "int8")[0].name;
  said(R"({"quant_method": "scaffolding", "layers": {")" + name + R"(": {"format": "Q4_K"}}})");
  SF_EXPECT_ERROR(ValueError, "are no whole blocks of Q4_K", load_model(path("model")));
}

}  // namespace
}  // namespace sf::models
