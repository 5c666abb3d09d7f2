#include "scaffolding/io/hub/hub_cache.h"

#include <thread>

#include "scaffolding/io/hub/hub.h"
#include "scaffolding/io/test_folder.h"

namespace sf::io {
namespace {

const std::string kCommit(40, 'a');

struct HubCacheTest : TestFolder {
  HubCache cache{folder_.string(), "org/name"};
  HubOptions here{.cache_dir = folder_.string(), .local_files_only = true};
};

TEST_F(HubCacheTest, a_link_leads_to_the_blob_from_any_depth) {
  cache.prepare();
  write("models--org--name/blobs/e1", "content");
  for (std::string name : {"a", "b/c", "d/e/f"}) {
    cache.link(kCommit, name, "e1");
    cache.link(kCommit, name, "e1");  // again: replaced
    EXPECT_EQ(bytes_of(cache.pointer(kCommit, name)), "content") << name;
  }
  EXPECT_EQ(find_in_cache("org/name", "a", here), std::nullopt);
  cache.write_ref("main", kCommit);
  cache.write_ref("refs/pr/1", kCommit);
  EXPECT_EQ(find_in_cache("org/name", "d/e/f", here), cache.snapshot(kCommit) + "/d/e/f");
  EXPECT_EQ(cache.commit_of("refs/pr/1"), kCommit);
  EXPECT_EQ(cache.commit_of("v2"), "");
}

TEST_F(HubCacheTest, a_list_of_files_is_read_as_it_was_written) {
  cache.write_tree(kCommit, {{"a", 7, "b1", ""}, {"b/c", uint64_t(5) << 32, "b2", "s2"}});
  auto tree = cache.read_tree(kCommit);
  ASSERT_TRUE(tree && tree->size() == 2);
  EXPECT_EQ((*tree)[1].path, "b/c");
  EXPECT_EQ((*tree)[1].size, uint64_t(5) << 32);
  EXPECT_EQ((*tree)[1].sha256, "s2");
  for (std::string damaged :
       {"", "{", "[]", "{\"format_version\": 2, \"files\": {}}", "{\"format_version\": 1, \"files\": {\"a\": 1}}"}) {
    write("models--org--name/trees/" + kCommit + ".json", damaged);
    EXPECT_FALSE(cache.read_tree(kCommit)) << damaged;
  }
}

TEST_F(HubCacheTest, one_holds_a_lock_and_the_other_waits) {
  cache.prepare();
  std::atomic<int> waited{0};
  auto first = std::make_unique<HubCache::Lock>(cache, "e1", [] {});
  std::thread second([&] { HubCache::Lock lock(cache, "e1", [&] { ++waited; }); });
  while (waited == 0) std::this_thread::yield();
  first.reset();
  second.join();
  struct Stop {};
  HubCache::Lock held(cache, "e1", [] {});
  EXPECT_THROW(HubCache::Lock(cache, "e1", [] { throw Stop(); }), Stop);
}

TEST_F(HubCacheTest, a_damaged_ref_is_none) {
  const std::vector<std::string> texts = {"", "../../x", "main", std::string(40, 'A'), std::string(1 << 20, 'a')};
  for (auto& text : texts) {
    std::filesystem::create_directories(folder_ / "models--org--name/refs");
    write("models--org--name/refs/main", text);
    EXPECT_EQ(cache.commit_of("main"), "");
  }
  write("models--org--name/refs/main", kCommit + "\n");
  EXPECT_EQ(cache.commit_of("main"), kCommit);
}

TEST(HubNames, paths_in_a_repository) {
  for (const char* good : {"a", "a/b.c", ".gitattributes", "a..b", "unet/model-00001-of-00002.safetensors", "ü/€"})
    EXPECT_NO_THROW(check_repo_path(good)) << good;
  for (const char* bad :
       {"", "/a", "a/", "a//b", "..", "../a", "a/..", "a/./b", "a\\b", "c:/x", "a/D:b", "a\nb", "\x7f"})
    EXPECT_THROW(check_repo_path(bad), ValueError) << bad;
}

TEST(HubNames, variables_and_home_in_a_path) {
  setenv("SF_TEST_FOLDER", "/x y", 1);
  EXPECT_EQ(expand_user("$SF_TEST_FOLDER/a"), "/x y/a");
  EXPECT_EQ(expand_user("${SF_TEST_FOLDER}b$"), "/x yb$");
  EXPECT_EQ(expand_user("${SF_TEST_FOLDER"), "${SF_TEST_FOLDER");
  EXPECT_EQ(expand_user("a~$NOT_THERE_"), "a~$NOT_THERE_");
  unsetenv("SF_TEST_FOLDER");
}

}  // namespace
}  // namespace sf::io
