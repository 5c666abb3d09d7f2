// What headers say of models: every kind by a few of its names, files that are broken or hostile, folders.
#include "scaffolding/models/single_file/description.h"

#include <sys/stat.h>

#include "scaffolding/io/checkpoint_head.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

using io::LocalModel;
using Shapes = std::vector<std::pair<std::string, Shape>>;

class Description : public io::TestFolder {
 protected:
  // A safetensors file whose data are a hole.
  std::string sparse(const std::string& name, const Shapes& shapes, const std::string& dtype = "F16",
                     const std::string& metadata = "") const {
    std::string header = "{" + metadata;
    int64_t at = 0;
    for (auto& [tensor, shape] : shapes) {
      std::string sizes;
      for (int64_t n : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(n);
      const int64_t end = at + (dtype == "F32" ? 4 : 2) * numel(shape);
      header += (header.size() > 1 ? ",\"" : "\"") + tensor + R"(":{"dtype":")" + dtype + R"(","shape":[)" + sizes +
                "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
      at = end;
    }
    header += "}";
    const uint64_t length = header.size();
    write(name, std::string(reinterpret_cast<const char*>(&length), 8) + header);
    std::filesystem::resize_file(path(name), 8 + length + uint64_t(at));
    return path(name);
  }
  static ModelDescription of(const std::string& file, LocalModel::Form form = LocalModel::File,
                             io::ModelUse use = io::ModelUse::Any) {
    return describe_model({file, "x", "", form, use, false});
  }
  void expect(const Shapes& shapes, const char* kind, const std::string& title) const {
    const ModelDescription is = of(sparse("a.safetensors", shapes));
    EXPECT_EQ(is.kind, kind) << is.problem;
    EXPECT_EQ(is.title, title);
    EXPECT_EQ(is.precision, "float16");
  }
};

const std::string kUnet = "model.diffusion_model.input_blocks.", kText = ".1.transformer_blocks.0.attn2.to_k.weight";
const Shapes kVae = {{"first_stage_model.decoder.conv_in.weight", {512, 4, 3, 3}},
                     {"first_stage_model.decoder.conv_out.weight", {3, 128, 3, 3}}};
const std::pair<std::string, Shape> kClip = {"cond_stage_model.transformer.text_model.final_layer_norm.weight", {768}};

Shapes with_vae(Shapes shapes) {
  shapes.insert(shapes.end(), kVae.begin(), kVae.end());
  return shapes;
}

TEST_F(Description, OfWholeModels) {
  const std::string first = kUnet + "0.0.weight";
  expect(with_vae({{first, {320, 4, 3, 3}}, {kUnet + "2" + kText, {320, 768}}, kClip}), "model",
         "Stable Diffusion 1.x");
  expect(with_vae({{first, {320, 9, 3, 3}}, {kUnet + "2" + kText, {320, 768}}, kClip}), "model",
         "Stable Diffusion 1.x for inpainting");
  expect(with_vae({{first, {320, 4, 3, 3}},
                   {kUnet + "2" + kText, {320, 1024}},
                   {"cond_stage_model.model.token_embedding.weight", {49408, 1024}}}),
         "model", "Stable Diffusion 2.x");
  expect(with_vae({{first, {320, 4, 3, 3}},
                   {kUnet + "4" + kText, {640, 2048}},
                   {"conditioner.embedders.1.model.positional_embedding", {77, 1280}}}),
         "model", "Stable Diffusion XL");
  expect({{first, {320, 4, 3, 3}}, kClip}, "model", "Stable Diffusion 1.x without a VAE");
  expect({{"double_blocks.0.img_attn.norm.key_norm.scale", {128}}}, "part", "FLUX.1, its transformer alone");
  expect({{"double_layers.0.attn.w2q.weight", {128}}}, "model", "AuraFlow (not supported)");
}

TEST_F(Description, OfParts) {
  expect({{"input_blocks.0.0.weight", {320, 4, 3, 3}}}, "part", "Stable Diffusion 1.x, its UNet alone");
  expect(kVae, "vae", "VAE with 4 latent channels");
  expect({{"encoder.conv_in.weight", {128, 3, 3, 3}},
          {"decoder.conv_in.weight", {512, 16, 3, 3}},
          {"decoder.conv_out.weight", {3, 128, 3, 3}}},
         "vae", "VAE with 16 latent channels");
  expect({{"controlnet_cond_embedding.conv_in.weight", {16, 3, 3, 3}}}, "part", "ControlNet");
  expect({{"cap_embedder.0.weight", {2560}}, {"x_pad_token", {1, 3840}}}, "part", "Z-Image, its transformer alone");
  expect({{"text_model.final_layer_norm.weight", {768}}}, "part", "CLIP text encoder");
  expect({{"emb_params", {4, 768}}}, "embedding", "textual inversion");
  expect({{"linear.weight", {4, 4}}}, "other", "tensors such as linear.weight");
}

TEST_F(Description, OfUpscalers) {
  expect({{"conv_first.weight", {64, 3, 3, 3}}, {"body.0.rdb1.conv1.weight", {32, 64, 3, 3}}}, "upscaler",
         "ESRGAN upscaler (RRDB)");
  expect({{"model.0.weight", {64, 3, 3, 3}}, {"model.1.sub.0.RDB1.conv1.0.weight", {32, 64, 3, 3}}}, "upscaler",
         "ESRGAN upscaler (RRDB)");
  expect({{"params.body.0.weight", {64, 3, 3, 3}},
          {"params.body.1.weight", {64}},
          {"params.body.2.weight", {64, 64, 3, 3}}},
         "upscaler", "Real-ESRGAN upscaler (compact)");
  EXPECT_EQ(of(sparse("b.safetensors", {{"a.weight", {2}}}), LocalModel::File, io::ModelUse::Upscaler).kind,
            "upscaler");
}

TEST_F(Description, OfLoras) {
  const std::string stem = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn2_to_k";
  for (auto& [width, title] : {std::pair(768, "LoRA for Stable Diffusion 1.x"),
                               {1024, "LoRA for Stable Diffusion 2.x"},
                               {2048, "LoRA for Stable Diffusion XL"},
                               {77, "LoRA"}})
    expect({{stem + ".lora_down.weight", {8, width}}, {stem + ".lora_up.weight", {320, 8}}, {stem + ".alpha", {}}},
           "lora", title);
}

TEST_F(Description, PrecisionIsOfMostNumbers) {
  EXPECT_EQ(of(sparse("a.safetensors", {{"a", {3}}}, "F32")).precision, "float32");
  EXPECT_EQ(of(sparse("b.safetensors", {{"a", {3}}}, "BF16")).precision, "bfloat16");
  auto tensor = [](DType dtype, int64_t n) { return io::Object(zeros({n}, dtype)); };
  io::save_torch(io::Object::container(io::Object::Dict, {"a", tensor(kFloat16, 60), "b", tensor(kFloat32, 40)}),
                 path("c.pt"));
  const ModelDescription is = of(path("c.pt"));
  EXPECT_EQ(is.precision, "float16, float32");
  EXPECT_EQ(is.parameters, 100);
  EXPECT_EQ(is.bytes, std::filesystem::file_size(path("c.pt")));
}

TEST_F(Description, PackedFilesSayTheirClass) {
  const ModelDescription is =
      of(sparse("a.safetensors", {{"unet.conv_in.weight", {8, 4, 3, 3}}}, "F16",
                R"("__metadata__":{"scaffolding:model_index.json":"{\"_class_name\":\"DiTPipeline\"}"})"));
  EXPECT_EQ(is.title, "DiTPipeline in one file") << is.problem;
}

TEST_F(Description, BrokenFilesSayWhyInOneLine) {
  auto broken = [](const std::string& file, const char* why) {
    const ModelDescription is = of(file);
    EXPECT_EQ(is.kind, "broken");
    EXPECT_NE(is.problem.find(why), std::string::npos) << is.problem;
    EXPECT_EQ(is.problem.find(file), std::string::npos) << is.problem;
  };
  broken(write("a.safetensors", "no"), "is no safetensors");
  broken(write("b.safetensors", std::string("\x20\0\0\0\0\0\0\0{}", 10)), "header");
  broken(path("none.safetensors"), "cannot open");
  ASSERT_EQ(mkfifo(path("fifo.pt").c_str(), 0600), 0);
  broken(path("fifo.pt"), "not a regular file");
  // a header of 17 MB, which is there
  const uint64_t length = io::kMostHead + 1;
  write("c.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + "{");
  std::filesystem::resize_file(path("c.safetensors"), 8 + length);
  broken(path("c.safetensors"), "at most 16777216 are looked at");
  std::filesystem::create_directories(path("pipe/unet"));
  write("pipe/model_index.json", R"({"_class_name": "DiTPipeline"})");
  EXPECT_EQ(of(path("pipe"), LocalModel::Pipeline).problem, path("pipe/unet") + ": has no weights");
  const ModelDescription old = of(write("old.pt", "\x80\x02}q\x01."));
  EXPECT_EQ(old.kind, "other");
  EXPECT_NE(old.problem.find("before 1.6"), std::string::npos) << old.problem;
}

TEST_F(Description, OfFolders) {
  std::filesystem::create_directories(path("pipe/transformer"));
  std::filesystem::create_directories(path("vae"));
  write("pipe/model_index.json", R"({"_class_name": "DiTPipeline"})");
  sparse("pipe/transformer/diffusion_pytorch_model.safetensors", {{"a", {5}}}, "BF16");
  const ModelDescription pipe = of(path("pipe"), LocalModel::Pipeline);
  EXPECT_EQ(pipe.kind + " " + pipe.title + " " + pipe.precision, "pipeline DiTPipeline bfloat16") << pipe.problem;
  EXPECT_GT(pipe.bytes, 40u);
  write("vae/config.json", R"({"_class_name": "AutoencoderKL"})");
  sparse("vae/diffusion_pytorch_model.safetensors", {{"a", {5}}});
  EXPECT_EQ(of(path("vae"), LocalModel::Part).kind, "vae");
}

}  // namespace
}  // namespace sf::models
