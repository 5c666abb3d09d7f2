// Models by name in folders as other programs have them, and folders that are made to be walked for ever.
#include "scaffolding/io/hub/local_models.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/hub_cache.h"
#include "scaffolding/io/test_folder.h"

namespace sf::io {
namespace {

namespace fs = std::filesystem;

// HOME and what else says where models are, for one test.
class LocalModels : public TestFolder {
 protected:
  LocalModels() {
    for (const char* name :
         {"HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "SF_MODELS"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
      names_.push_back(name);
    }
    setenv("HOME", path("home").c_str(), 1);
  }
  ~LocalModels() override {
    for (const char* name : names_) {
      unsetenv(name);
      if (before_.count(name)) setenv(name, before_[name].c_str(), 1);
    }
  }
  std::string file(const std::string& name, const std::string& text = "x") const {
    fs::create_directories(fs::path(path(name)).parent_path());
    return write(name, text);
  }
  static std::vector<std::string> names(const std::vector<LocalModel>& models) {
    std::vector<std::string> out;
    for (auto& model : models) out.push_back(model.name);
    return out;
  }
  std::vector<LocalModel> below(const std::string& folder) const {
    return local_models({{ModelPlace::Folder, path(folder), "test"}});
  }

 private:
  std::map<std::string, std::string> before_;
  std::vector<const char*> names_;
};

using Names = std::vector<std::string>;

TEST_F(LocalModels, OfEveryProgram) {
  file("home/ComfyUI/models/checkpoints/sdxl/ink.safetensors");
  file("home/ComfyUI/models/checkpoints/put_checkpoints_here");
  file("home/Documents/ComfyUI/models/vae/soft.safetensors");
  file("home/stable-diffusion-webui/models/Stable-diffusion/paint.ckpt");
  file("home/stable-diffusion-webui/models/Lora/style.safetensors");
  file("home/StabilityMatrix/Data/Models/ESRGAN/4x.pth");
  file("own/flat.gguf");
  setenv("SF_MODELS", (path("own") + ":").c_str(), 1);
  const auto models = local_models(model_places());
  EXPECT_EQ(names(models), (Names{"flat.gguf", "checkpoints/sdxl/ink.safetensors", "vae/soft.safetensors",
                                  "Lora/style.safetensors", "Stable-diffusion/paint.ckpt", "ESRGAN/4x.pth"}));
  const ModelUse uses[] = {ModelUse::Any,  ModelUse::Model, ModelUse::Vae,
                           ModelUse::Lora, ModelUse::Model, ModelUse::Upscaler};
  for (size_t i = 0; i < models.size(); ++i) EXPECT_EQ(models[i].use, uses[i]) << models[i].name;
  EXPECT_EQ(models[0].program, "");
  EXPECT_EQ(models[2].program, "ComfyUI");
  EXPECT_EQ(models[0].path, path("own/flat.gguf"));
  setenv("SF_MODELS", path("none").c_str(), 1);
  SF_EXPECT_ERROR(ValueError, "SF_MODELS: there is no folder '" + path("none"), model_places());
}

TEST_F(LocalModels, APlaceThatIsALinkToAnotherIsLookedThroughOnce) {
  file("home/ComfyUI/models/vae/a.pt");
  fs::create_directories(path("home/stable-diffusion-webui"));
  fs::create_symlink(path("home/ComfyUI/models"), path("home/stable-diffusion-webui/models"));
  EXPECT_EQ(model_places().size(), 1u);
  EXPECT_EQ(local_models(model_places()).size(), 1u);
}

TEST_F(LocalModels, AreCalledByTheLastPartsOfTheirNames) {
  file("m/checkpoints/sdxl/Ink.safetensors");
  file("m/checkpoints/sd15/ink2.ckpt");
  file("m/checkpoints/v1.5.pruned.safetensors");
  const auto models = below("m");
  for (auto* name : {"Ink", "ink", "INK.SAFETENSORS", "sdxl/ink", "checkpoints/sdxl/ink.safetensors", "./sdxl/ink"})
    EXPECT_EQ(names(models_called(name, models)), Names{"checkpoints/sdxl/Ink.safetensors"}) << name;
  EXPECT_EQ(names(models_called("v1.5.pruned", models)), Names{"checkpoints/v1.5.pruned.safetensors"});
  for (auto* name : {"nk", "ink.ckpt", "xl/ink", "ink/", "v1", "v1.5", "", ".", "/", ".safetensors", "checkpoints"})
    EXPECT_EQ(models_called(name, models).size(), std::string(name) == "ink/" ? 1u : 0u) << name;
}

TEST_F(LocalModels, OfOneNameAreAllThereUnlessCaseTellsThem) {
  file("m/a/ink.safetensors");
  file("m/b/Ink.safetensors");
  file("m/c/ink.pt");
  const auto models = below("m");
  EXPECT_EQ(models_called("INK", models).size(), 3u);
  EXPECT_EQ(names(models_called("ink", models)), (Names{"a/ink.safetensors", "c/ink.pt"}));
  EXPECT_EQ(names(models_called("Ink", models)), Names{"b/Ink.safetensors"});
  EXPECT_EQ(names(models_called("ink.pt", models)), Names{"c/ink.pt"});
  fs::create_symlink(path("m/b/Ink.safetensors"), path("m/c/Ink.safetensors"));
  EXPECT_EQ(models_called("Ink", below("m")).size(), 1u);  // one file
}

TEST_F(LocalModels, FoldersOfDiffusersAreOneModel) {
  file("m/diffusers/pipe/model_index.json", "{}");
  file("m/diffusers/pipe/unet/diffusion_pytorch_model.safetensors");
  file("m/vae/soft/config.json", "{}");
  file("m/vae/soft/diffusion_pytorch_model.safetensors");
  file("m/Lora/style/adapter_config.json", "{}");
  file("m/Lora/style/adapter_model.safetensors");
  const auto models = below("m");
  EXPECT_EQ(names(models), (Names{"Lora/style", "diffusers/pipe", "vae/soft"}));
  EXPECT_EQ(models[0].form, LocalModel::Part);
  EXPECT_EQ(models[1].form, LocalModel::Pipeline);
  EXPECT_EQ(models[2].use, ModelUse::Vae);
  EXPECT_EQ(names(models_called("PIPE", models)), Names{"diffusers/pipe"});
}

TEST_F(LocalModels, WalksEnd) {
  file("m/a/one.pt");
  fs::create_symlink(path("m"), path("m/a/again"));
  fs::create_symlink(path("m/a"), path("m/b"));
  fs::create_symlink(path("m/loop"), path("m/loop"));
  fs::create_symlink(path("m/none.pt"), path("m/dangling.pt"));
  fs::create_symlink("/dev/zero", path("m/zero.pt"));
  ASSERT_EQ(mkfifo(path("m/fifo.pt").c_str(), 0600), 0);
  file("m/.hidden/two.pt");
  std::string deep = "m";
  for (int i = 0; i < kMostModelDepth; ++i) deep += "/d";
  file(deep + "/deep.pt");
  file(deep + "/d/deeper.pt");
  std::string found;
  for (auto& name : names(below("m"))) found += fs::path(name).filename().string() + " ";
  EXPECT_EQ(found, "one.pt deep.pt ");
}

class Snapshot : public LocalModels {
 protected:
  const std::string commit_ = std::string(40, 'a'), repo_ = "home/.cache/huggingface/hub/models--org--small/";
  void repository() const {
    const std::string in = repo_ + "snapshots/" + commit_ + "/";
    file(repo_ + "refs/main", commit_);
    file(
        in + "model_index.json",
        R"({"_class_name": "P", "unet": ["diffusers", "U"], "scheduler": ["diffusers", "S"], "safety": [null, null]})");
    file(in + "unet/config.json", "{}");
    file(in + "unet/diffusion_pytorch_model.safetensors");
    file(in + "scheduler/scheduler_config.json", "{}");
    file(in + "one.safetensors");
  }
  std::string in(const std::string& name) const { return path(repo_ + "snapshots/" + commit_ + "/" + name); }
};

TEST_F(Snapshot, IsAModelByItsRepositorysName) {
  repository();
  const auto models = local_models(model_places());
  EXPECT_EQ(names(models), (Names{"org/small", "org/small/one.safetensors"}));
  EXPECT_TRUE(models[0].repository);
  EXPECT_EQ(models[0].path, in("").substr(0, in("").size() - 1));
  for (auto* name : {"small", "org/small", "ORG/Small"}) EXPECT_EQ(models_called(name, models).size(), 1u) << name;
  EXPECT_EQ(names(models_called("one", models)), Names{"org/small/one.safetensors"});
}

TEST_F(Snapshot, IsWholeOrIsNot) {
  EXPECT_EQ(whole_snapshot("org/small"), "");
  repository();
  EXPECT_EQ(whole_snapshot("org/small") + "/", in(""));
  EXPECT_EQ(whole_snapshot("../small"), "");
  auto is_broken_by = [&](const std::string& name, const std::string& text) {
    const std::string now = bytes_of(in(name));
    if (text.empty()) fs::remove(in(name));
    else write(repo_ + "snapshots/" + commit_ + "/" + name, text);
    EXPECT_EQ(whole_snapshot("org/small"), "") << name;
    write(repo_ + "snapshots/" + commit_ + "/" + name, now);
    EXPECT_NE(whole_snapshot("org/small"), "") << name;
  };
  is_broken_by("unet/diffusion_pytorch_model.safetensors", "");
  is_broken_by("scheduler/scheduler_config.json", "");
  is_broken_by("model_index.json", "{");
  is_broken_by("model_index.json", R"({"../../x": ["a", "b"]})");
  const std::string index = R"({"weight_map": {"a": "x-00001-of-00001.safetensors"}})";
  file(repo_ + "snapshots/" + commit_ + "/unet/diffusion_pytorch_model.safetensors.index.json", index);
  EXPECT_EQ(whole_snapshot("org/small"), "");
  fs::remove(in("unet/diffusion_pytorch_model.safetensors.index.json"));
  fs::create_symlink("../../blobs/none", in("unet/dangling.bin"));
  EXPECT_EQ(whole_snapshot("org/small"), "");
}

}  // namespace
}  // namespace sf::io
