#include "scaffolding/train/checkpoint_folders.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::train {

namespace {

class CheckpointFoldersTest : public io::TestFolder {
 protected:
  std::string save(CheckpointFolders& c, int64_t step, const std::string& content = "content") {
    std::string folder = c.begin(step);
    std::ofstream(folder + "/weights", std::ios::binary) << content << step;
    return c.commit(step);
  }
  using Steps = std::vector<int64_t>;
};

TEST_F(CheckpointFoldersTest, AppearWholeAndTheOldestGo) {
  CheckpointFolders c(path("run"), 2);
  c.begin(1);
  EXPECT_EQ(c.steps(), Steps{});
  c.abandon(1);
  for (int64_t step : {9, 10, 11}) EXPECT_EQ(save(c, step), path("run/checkpoint-" + std::to_string(step)));
  EXPECT_EQ(c.steps(), (Steps{10, 11}));
  verify_checkpoint(c.path(11));
  EXPECT_EQ(c.find("latest")->path, c.path(11));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("run")), {}), 2);
}

TEST_F(CheckpointFoldersTest, HalfWrittenOnesAreNoneAndAreCleaned) {
  CheckpointFolders c(path("run"));
  save(c, 3);
  c.begin(4);
  std::filesystem::create_directories(path("run/checkpoint-x.tmp"));  // not ours
  EXPECT_EQ(c.find("latest")->path, c.path(3));
  c.clean();
  EXPECT_FALSE(std::filesystem::exists(path("run/checkpoint-4.tmp")));
  EXPECT_TRUE(std::filesystem::exists(path("run/checkpoint-x.tmp")));
}

TEST_F(CheckpointFoldersTest, WhatAKilledRunDidNotRemoveGoesLater) {
  CheckpointFolders all(path("run"));
  for (int64_t step : {3, 6, 9, 12}) save(all, step);
  all.keep_to_limit(9);
  EXPECT_EQ(all.steps(), (Steps{3, 6, 9, 12})) << "no limit";
  CheckpointFolders(path("run"), 2).keep_to_limit(9);
  EXPECT_EQ(all.steps(), (Steps{6, 9, 12})) << "what is newer stays";
}

TEST_F(CheckpointFoldersTest, DamageIsFoundAndNamed) {
  CheckpointFolders c(path("run"), 1);
  save(c, 1);
  EXPECT_FALSE(CheckpointFolders(path("other")).find("latest"));
  auto damage = [&](const std::string& content) { std::ofstream(c.path(1) + "/weights", std::ios::binary) << content; };
  damage("contenu1");
  SF_EXPECT_ERROR(ValueError, "checkpoint-1/weights: is damaged", c.find("checkpoint-1"));
  SF_EXPECT_ERROR(ValueError, "no checkpoint in", c.find("latest"));
  damage("cont");
  SF_EXPECT_ERROR(ValueError, "weights: has 4 bytes, 8 were written", c.find("checkpoint-1"));
  // A damaged one of a later step neither counts among those that are kept nor stands in the way of its successor.
  CheckpointFolders d(path("second"), 1);
  save(d, 1);
  std::filesystem::create_directories(d.path(9));
  auto found = d.find("latest");
  EXPECT_EQ(found->path, d.path(1));
  ASSERT_EQ(found->damaged.size(), 1u);
  EXPECT_NE(found->damaged[0].find("checkpoint-9/manifest.json: is missing"), std::string::npos) << found->damaged[0];
  save(d, 5);
  EXPECT_EQ(d.steps(), (Steps{5, 9}));
  save(d, 9);
  EXPECT_EQ(d.steps(), Steps{9});
  verify_checkpoint(d.path(9));
}

TEST_F(CheckpointFoldersTest, HostileManifestsAreRefused) {
  CheckpointFolders c(path("run"));
  save(c, 1);
  for (const char* text : {"", "[]", "{\"files\": 3}", "{\"files\": {\"../x\": {\"size\": 1, \"crc32\": 1}}}",
                           "{\"files\": {\"weights\": {\"size\": -1}}}", "{\"files\": {\"weights\": []}}"}) {
    std::ofstream(c.path(1) + "/manifest.json", std::ios::binary) << text;
    SF_EXPECT_ERROR(ValueError, "manifest.json: is damaged", verify_checkpoint(c.path(1)));
  }
}

TEST_F(CheckpointFoldersTest, RefusesFoldersThatCannotBe) {
  write("file", "");
  SF_EXPECT_ERROR(RuntimeError, "output_dir must be a folder", CheckpointFolders(path("file")));
  SF_EXPECT_ERROR(RuntimeError, "output_dir must be", CheckpointFolders("/proc/nowhere"));
  CheckpointFolders c(path("run"));
  save(c, 2);
  save(c, 3);
  SF_EXPECT_ERROR(ValueError, "holds checkpoint-3 already", c.find(""));
  SF_EXPECT_ERROR(ValueError, "there is no checkpoint-7", c.find("checkpoint-7"));
  SF_EXPECT_ERROR(ValueError, "remove what is newer", c.find(c.path(2)));
  EXPECT_NE(c.failure(4, "disk full").find("checkpoint-4 could not be written: disk full"), std::string::npos);
}

}  // namespace

}  // namespace sf::train
