// LoRAs by name below folders, and the hashes by which the web UI knows them again.
#include "scaffolding/models/adapters/lora_folders.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/sha.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/adapters/lora_hash.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

class LoraFoldersTest : public io::TestFolder {
 protected:
  std::string save(const std::string& name, const io::Metadata& metadata = {}, double value = 1) {
    fs::create_directories(fs::path(path(name)).parent_path());
    io::save_safetensors({{"x.lora_down.weight", full({2, 3}, value)}}, path(name), metadata);
    return path(name);
  }
  std::string touch(const std::string& name) {
    fs::create_directories(fs::path(path(name)).parent_path());
    return write(name, "anything");
  }
  Paths find(const std::string& name) { return LoraFolders({folder_.string()}).find(name); }
};

TEST_F(LoraFoldersTest, FindsFilesAndFoldersByName) {
  const std::string style = touch("style.safetensors"), ink = touch("sub/deep/ink v1.2.pt"),
                    old = touch("sub/old.ckpt"), bin = touch("sub/bin.bin");
  touch("sub/peft.v2/adapter_model.safetensors");
  touch("hub/pytorch_lora_weights.safetensors");
  const std::string beside = touch("hub/beside.safetensors");
  touch("notes.txt");
  touch(".hidden/secret.safetensors");
  for (const char* name : {"style", "style.safetensors", "./style"}) EXPECT_EQ(find(name), Paths{style}) << name;
  for (const char* name : {"ink v1.2", "ink v1.2.pt", "sub/deep/ink v1.2", "sub//deep/../deep/ink v1.2.pt"})
    EXPECT_EQ(find(name), Paths{ink}) << name;
  EXPECT_EQ(find("old"), Paths{old});
  EXPECT_EQ(find("bin"), Paths{bin});
  EXPECT_EQ(find("peft.v2"), Paths{path("sub/peft.v2")});
  EXPECT_EQ(find("hub"), Paths{path("hub")});
  EXPECT_EQ(find("beside"), Paths{beside});
  for (const char* name : {"notes", "secret", "styl", "", "sub/style", "../style", "/", "Style", "ink v1"})
    EXPECT_EQ(find(name), Paths{}) << name;
  EXPECT_EQ(LoraFolders({folder_.string()}).names(),
            (Paths{"beside", "bin", "hub", "ink v1.2", "old", "peft.v2", "style"}));
  SF_EXPECT_ERROR(RuntimeError, "there is no folder", LoraFolders({path("none")}));
}

TEST_F(LoraFoldersTest, FoldersWithAPartForEachComponent) {
  save("both/unet/adapter_model.safetensors");
  save("both/text_encoder/adapter_model.safetensors");
  EXPECT_EQ(LoraFolders({folder_.string()}).names(), Paths{"both"});
  const std::string hash = lora_hash(path("both"));
  EXPECT_EQ(hash.size(), 12u);
  save("both/text_encoder/adapter_model.safetensors", {}, 2);
  EXPECT_NE(lora_hash(path("both")), hash) << "of every part";
  save("other/pictures/adapter_model.safetensors");
  EXPECT_EQ(LoraFolders({folder_.string()}).names(), (Paths{"both", "pictures"})) << "no component";
}

TEST_F(LoraFoldersTest, TellsSeveralOfOneName) {
  const std::string a = touch("a/style.safetensors"), b = touch("b/style.pt"), other = touch("b/other.pt");
  EXPECT_EQ(find("style"), (Paths{a, b}));
  EXPECT_EQ(find("style.pt"), Paths{b});
  EXPECT_EQ(find("b/style"), Paths{b});
  EXPECT_EQ(LoraFolders({path("a"), path("b")}).find("style"), (Paths{a, b}));
  EXPECT_EQ(LoraFolders({path("a"), path("a")}).find("style"), Paths{a});
  // Links are their target, and a folder that leads to itself has an end.
  fs::create_symlink(a, path("linked.safetensors"));
  fs::create_directory_symlink(folder_, path("b/loop"));
  EXPECT_EQ(find("linked"), Paths{path("linked.safetensors")});
  EXPECT_EQ(find("other"), Paths{other});
}

TEST_F(LoraFoldersTest, FindsByTheTrainingsName) {
  const std::string file = save("Ink-v3_1234.safetensors", {{"ss_output_name", "ink"}});
  touch("broken.safetensors");
  EXPECT_EQ(find("ink"), Paths{file});
  const std::string named = save("ink.safetensors");
  EXPECT_EQ(find("ink"), Paths{named}) << "a file's name comes first";
}

TEST_F(LoraFoldersTest, NamesOfPaths) {
  touch("a/x.v1.safetensors");
  touch("peft.v1/adapter_model.safetensors");
  EXPECT_EQ(lora_name(path("a/x.v1.safetensors")), "x.v1");
  for (const char* place : {"peft.v1", "peft.v1/", "peft.v1/adapter_model.safetensors"})
    EXPECT_EQ(lora_name(path(place)), "peft.v1") << place;
  EXPECT_EQ(lora_name(path("absent.pt")), "absent");
  EXPECT_TRUE(is_lora_path(path("a/x.v1.safetensors")));
  EXPECT_TRUE(is_lora_path(path("peft.v1")));
  for (const char* place : {"a", "absent.pt"}) EXPECT_FALSE(is_lora_path(path(place))) << place;
}

TEST_F(LoraFoldersTest, HashesAreTheWebUIs) {
  // SHA-256 of six ones in float32, whatever the header says.
  const std::string ones = [] {
    const std::vector<float> data(6, 1);
    io::Sha sha(io::Sha::Sha256);
    sha.update(data.data(), data.size() * sizeof(float));
    return sha.hex().substr(0, 12);
  }();
  EXPECT_EQ(lora_hash(save("a.safetensors")), ones);
  EXPECT_EQ(lora_hash(save("b.safetensors", {{"ss_seed", "1"}})), ones);
  EXPECT_NE(lora_hash(save("c.safetensors", {}, 2)), ones);
  EXPECT_EQ(lora_hash(save("d.safetensors", {{"sshs_model_hash", "0123456789ABcdef"}})), "0123456789ab");
  for (const char* nonsense : {"", "short", "no digits \" at all"})
    EXPECT_EQ(lora_hash(save("e.safetensors", {{"sshs_model_hash", nonsense}})), ones) << nonsense;
  // Of PEFT's folder the config is a part: it scales the layers.
  save("peft/adapter_model.safetensors");
  EXPECT_EQ(lora_hash(path("peft")), ones);
  write("peft/adapter_config.json", R"({"peft_type": "LORA", "r": 2})");
  const std::string configured = lora_hash(path("peft"));
  EXPECT_NE(configured, ones);
  write("peft/adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})");
  EXPECT_NE(lora_hash(path("peft")), configured);
  SF_EXPECT_ERROR(RuntimeError, "absent", lora_hash(path("absent")));
  SF_EXPECT_ERROR(ValueError, "broken", lora_hash(touch("broken.safetensors")));
}

}  // namespace
}  // namespace sf::models
