// Pipelines as one file: there and back, and files that lie about themselves.
#include "scaffolding/diffusion/pipelines/pipeline_single_file.h"

#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::diffusion {
namespace {

using test::options;

class PipelineSingleFile : public io::TestFolder {
 protected:
  static StableDiffusionPipeline pipeline() {
    auto pipe = test::tiny();
    pipe.tokenizer = std::make_shared<tokenizers::CLIPTokenizer>(tokenizers::train_bpe({"red apple, blue sea"}));
    pipe.advised_guidance_scale = 2.5;
    return pipe;
  }
};

TEST_F(PipelineSingleFile, ComesBackAsItWas) {
  auto pipe = pipeline();
  save_single_file(pipe, path("one.safetensors"));
  EXPECT_EQ(single_file_content(pipe).kind, nullptr);
  auto loaded = load_single_file_pipeline(path("one.safetensors")).pipeline;
  EXPECT_STREQ(loaded->name(), "StableDiffusionPipeline");
  EXPECT_EQ(loaded->advised_guidance_scale, 2.5);
  auto& again = dynamic_cast<StableDiffusionPipeline&>(*loaded);
  EXPECT_EQ(pipe(options()).images.to_vector(), again(options()).images.to_vector());
  EXPECT_EQ(again.tokenizer->vocabulary(), pipe.tokenizer->vocabulary());
  EXPECT_STREQ(again.scheduler->name(), "DDIMScheduler");
  EXPECT_EQ(again.text_encoder, nullptr);
  save_single_file(again, path("two.safetensors"));
  EXPECT_EQ(bytes_of(path("one.safetensors")), bytes_of(path("two.safetensors")));
  save_single_file(pipe, path("half.safetensors"), kFloat16);
  EXPECT_EQ(io::SafetensorsFile(path("half.safetensors")).entry("unet.conv_in.weight").dtype, "F16");
}

// A file of 16 bits in float32: its weights stay as they lie, and the pictures are those of the widened ones.
TEST_F(PipelineSingleFile, WeightsOf16BitsStayWhereTheyLie) {
  auto pipe = pipeline();
  for (DType dtype : {kFloat16, kBFloat16}) {
    save_single_file(pipe, path("half.safetensors"), dtype);
    auto loaded = [&](std::optional<int64_t> from) {
      return load_single_file_pipeline(path("half.safetensors"), {.dtype = kFloat32, .keep_half_from = from}).pipeline;
    };
    auto kept = [&](DiffusionPipeline& p) {
      int64_t layers = 0;
      for (auto& m : nn::named_modules(*dynamic_cast<StableDiffusionPipeline&>(p).unet->model()))
        layers += !nn::format_of(*m.module).empty();
      return layers;
    };
    auto widened = loaded({}), half = loaded(1), few = loaded(int64_t(1) << 40);
    EXPECT_EQ(kept(*widened), 0);
    EXPECT_EQ(kept(*few), 0);
    EXPECT_GT(kept(*half), 30);
    auto pictures = [](DiffusionPipeline& p) { return dynamic_cast<StableDiffusionPipeline&>(p)(options()).images; };
    EXPECT_LT(amax(abs(pictures(*half) - pictures(*widened))).item<float>(), 1e-4);
    EXPECT_EQ(dynamic_cast<StableDiffusionPipeline&>(*half).unet->dtype(), kFloat32);
  }
}

TEST_F(PipelineSingleFile, IsAFolderAgain) {
  auto pipe = pipeline();
  save_single_file(pipe, path("one.safetensors"));
  save_pipeline(*load_single_file_pipeline(path("one.safetensors")).pipeline, path("folder"));
  auto again = StableDiffusionPipeline::from_pretrained(path("folder"));
  EXPECT_EQ(pipe(options()).images.to_vector(), again(options()).images.to_vector());
  EXPECT_EQ(again.advised_guidance_scale, 2.5);
}

TEST_F(PipelineSingleFile, BytesThatAreNoTextAreKept) {
  std::string bytes = "\x01\xFF";
  bytes += std::string(3, '\0');
  const models::PackedFiles files{{"model_index.json", "{}"}, {"tokenizer/spiece.model", bytes}};
  EXPECT_EQ(models::packed_files(models::packed_metadata(files), "x"), files);
}

TEST_F(PipelineSingleFile, FilesThatLieAreRefused) {
  const SingleFileContent good = single_file_content(pipeline());
  auto refused = [&](const char* message, const std::function<void(SingleFileContent&)>& change) {
    SingleFileContent changed = good;
    change(changed);
    const std::string file = path("a.safetensors");
    io::save_safetensors(changed.tensors, file, changed.metadata);
    try {
      load_single_file_pipeline(file);
      ADD_FAILURE() << "nothing was thrown for: " << message;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  };
  auto set = [](const char* key, const std::string& value) {
    return [=](SingleFileContent& c) { c.metadata[key] = value; };
  };
  auto replace = [](const char* key, const std::string& from, const std::string& to) {
    return [=](SingleFileContent& c) {
      std::string& text = c.metadata.at(key);
      const size_t at = text.find(from);
      ASSERT_NE(at, text.npos) << from;
      text.replace(at, from.size(), to);
    };
  };
  const char *index = "scaffolding:model_index.json", *unet = "scaffolding:unet/config.json";
  for (const char* key : {"scaffolding:../../etc/passwd", "scaffolding:/etc/passwd", "scaffolding:unet/../config.json",
                          "scaffolding:unet/a/b.json", "scaffolding:other.json", "scaffolding:unet/.hidden",
                          "scaffolding:unet/a\nb.json"})
    refused("is no file of a pipeline's folder", set(key, "{}"));
  refused("and no model_index.json", [&](auto& c) { c.metadata.erase(index); });
  refused("must be base64", set("scaffolding-base64:tokenizer/spiece.model", "~"));
  refused("the metadata has 'unet/config.json' twice", set("scaffolding-base64:unet/config.json", "e30="));
  refused("files of a pipeline, at most 64", [](auto& c) {
    for (int i = 0; i < 64; ++i) c.metadata["scaffolding:x/" + std::to_string(i) + ".json"] = "{}";
  });
  refused("at most 32000000 are read", set("scaffolding:x/y.json", std::string(32'000'001, ' ')));
  refused("JSON", set(index, "{"));
  refused("nested deeper", set(unet, "{\"a\": " + std::string(1000, '[') + std::string(1000, ']') + "}"));
  refused("has no _class_name", set(index, "{}"));
  refused("there is no pipeline", replace(index, "StableDiffusionPipeline", "StableCascadePipeline"));
  refused("AutoencoderKL", replace(index, "UNet2DConditionModel", "AutoencoderKL"));
  refused("has no scheduler", replace(index, "DDIMScheduler", "AutoencoderKL"));
  refused("there is no class 'os.system'", replace(index, "DDIMScheduler", "os.system"));
  refused("tokenizer: there is no class 'pickle'", replace(index, "CLIPTokenizer", "pickle"));
  refused("_guidance_scale' must be a number", replace(index, "2.5", "\"much\""));
  refused("of another shape", replace(unet, "\"cross_attention_dim\": 16", "\"cross_attention_dim\": 32"));
  refused("in_channels", replace(unet, "\"in_channels\": 4", "\"in_channels\": \"four\""));
  refused("tokenizer/merges.txt: line 1 must be two tokens", set("scaffolding:tokenizer/merges.txt", "a b c\n"));
  refused("tokenizer/vocab.json: it is nested more than 64 deep",
          set("scaffolding:tokenizer/vocab.json", std::string(100'000, '[')));
  refused("has the config of a vae and none of its tensors",
          [](auto& c) { std::erase_if(c.tensors, [](auto& t) { return t.first.starts_with("vae."); }); });
  refused("lacks 1 tensor: 'unet.conv_in.weight'", [](auto& c) { c.tensors.erase("unet.conv_in.weight"); });
}

// Without memory: its shapes alone are looked at.
TEST_F(PipelineSingleFile, PublishedSizesGetTheNamesThatOthersKnow) {
  for (auto& kind : models::single_file_kinds()) {
    std::map<std::string, models::ModelPart> parts;
    for (auto& part : kind.parts) {
      if (part.places.empty()) continue;
      auto& made = parts[part.name];
      made.class_name = part.class_name;
      const models::NameTable table = models::single_file_names(part, part.config);
      for (auto& t : table.tensors()) made.tensors.emplace(t.name, zeros({1}).expand(t.shape));
    }
    const models::SingleFileKind* found = models::kind_of_parts(parts);
    ASSERT_TRUE(found) << kind.name;
    EXPECT_EQ(found->name, kind.name);
    auto& tensors = parts.begin()->second.tensors;
    const Tensor first = tensors.begin()->second;
    tensors.begin()->second = zeros({1, 2, 3});
    EXPECT_EQ(models::kind_of_parts(parts), nullptr) << kind.name;
    tensors.begin()->second = first;
    parts["image_encoder"].class_name = "CLIPVisionModel";
    EXPECT_EQ(models::kind_of_parts(parts), nullptr) << kind.name;
  }
}

TEST_F(PipelineSingleFile, PublishedKindsBringTheirTokenizers) {
  for (auto& kind : models::single_file_kinds())
    for (auto& part : kind.parts) {
      if (!part.name.starts_with("text_encoder") || part.class_name == "T5EncoderModel") continue;
      const std::string name = "tokenizer" + part.name.substr(std::string("text_encoder").size());
      auto found =
          std::find_if(kind.tokenizers.begin(), kind.tokenizers.end(), [&](auto& t) { return t.name == name; });
      ASSERT_NE(found, kind.tokenizers.end()) << kind.name << " " << name;
      auto tokenizer = tokenizers::load_tokenizer(found->class_name, {"here", found->files});
      EXPECT_EQ(int64_t(tokenizer->size()), part.config.find("vocab_size")->as_int());
      // OpenAI's encoder was trained with the end of text behind texts, OpenCLIP's with zeros.
      const bool open_clip = part.places[0].layout == "open_clip" || part.config.find("hidden_size")->as_int() == 1280;
      EXPECT_EQ(tokenizer->token_to_id(tokenizer->config().pad_token->content), open_clip ? 0 : 49407) << kind.name;
      EXPECT_EQ(tokenizer->encode("cat").ids, (std::vector<int64_t>{49406, 2368, 49407}));
    }
}

}  // namespace
}  // namespace sf::diffusion
