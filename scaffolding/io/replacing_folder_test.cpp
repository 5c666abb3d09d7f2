#include "scaffolding/io/replacing_folder.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/test_folder.h"

namespace sf::io {
namespace {

class ReplacingFolderTest : public TestFolder {
 protected:
  void save(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    ReplacingFile file(path(name));
    file.write(text.data(), text.size());
    file.commit();
  }
  void save_all(const std::string& text) const {
    save("model/part/config", text);
    save("model/part/weights", text);
    save("model/index", text);
  }
  std::string all() const {
    return bytes_of(path("model/part/config")) + bytes_of(path("model/part/weights")) + bytes_of(path("model/index"));
  }
  size_t files_of_all() const {
    size_t n = 0;
    for (auto& e : std::filesystem::recursive_directory_iterator(folder_)) n += e.is_regular_file();
    return n;
  }
};

TEST_F(ReplacingFolderTest, FilesTakeTheirPlacesTogether) {
  save_all("1");
  ReplacingFolder whole(path("model"), "index");
  save_all("2");
  save("elsewhere", "at once");
  EXPECT_EQ(bytes_of(path("elsewhere")), "at once");
  EXPECT_EQ(all(), "111");
  EXPECT_EQ(files_of_all(), 7u);
  ReplacingFolder::remove(path("model/part/weights"));  // after its new one: gone with the commit
  EXPECT_EQ(all(), "111");
  whole.commit();
  EXPECT_EQ(all(), "22");
  EXPECT_EQ(files_of_all(), 3u);
  save("model/index", "3");
  EXPECT_EQ(all(), "23");
}

TEST_F(ReplacingFolderTest, WithoutACommitNothingIsChanged) {
  save_all("1");
  {
    ReplacingFolder whole(path("model"), "index");
    save_all("2");
    ReplacingFolder::remove(path("model/index"));
  }
  EXPECT_EQ(all(), "111");
  EXPECT_EQ(files_of_all(), 3u);
  {
    ReplacingFolder whole(path("other"), "index");
    save("other/part/deeper/weights", "2");
  }
  EXPECT_FALSE(std::filesystem::exists(path("other")));
  save("model/index", "3");  // no folder is written any more
  EXPECT_EQ(all(), "113");
}

TEST_F(ReplacingFolderTest, OneWithinAnotherWaitsForIt) {
  save_all("1");
  {
    ReplacingFolder whole(path("model"), "index");
    {
      ReplacingFolder part(path("model/part/"), "config");
      save("model/part/weights", "2");
      save("model/part/config", "2");
      part.commit();
    }
    EXPECT_EQ(all(), "111");
    save("model/index", "2");
    whole.commit();
  }
  EXPECT_EQ(all(), "222");
  ReplacingFolder whole(path("model"), "index"), beside(path("beside"), "index");  // not within
  save("beside/index", "3");
  beside.commit();
  EXPECT_EQ(bytes_of(path("beside/index")), "3");
}

// What a stop between two renames leaves.
TEST_F(ReplacingFolderTest, TheIndexesAreAwayWhileFilesAreReplaced) {
  save_all("1");
  ReplacingFolder whole(path("model"), "index");
  {
    ReplacingFolder part(path("model/part"), "config");
    save("model/part/config", "2");
    save("model/part/weights", "2");
    part.commit();
  }
  save("model/index", "2");
  for (auto& e : std::filesystem::directory_iterator(path("model/part")))
    if (e.path().filename().string().starts_with("weights.")) std::filesystem::remove(e.path());
  SF_EXPECT_ERROR(RuntimeError, "refuses to load", whole.commit());
  EXPECT_FALSE(std::filesystem::exists(path("model/index")));
  EXPECT_FALSE(std::filesystem::exists(path("model/part/config")));
}

TEST_F(ReplacingFolderTest, AFolderInAFilesPlaceIsRefusedBeforeAnythingIsReplaced) {
  save_all("1");
  std::filesystem::create_directory(path("model/part/names"));
  ReplacingFolder whole(path("model"), "index");
  save_all("2");
  save("model/part/names", "2");
  SF_EXPECT_ERROR(RuntimeError, "is a folder, and a file is to take its place", whole.commit());
  EXPECT_EQ(all(), "111");
}

TEST_F(ReplacingFolderTest, LinksAreFollowed) {
  save("elsewhere", "1");
  std::filesystem::create_directory(path("model"));
  std::filesystem::create_symlink(path("elsewhere"), path("model/index"));
  ReplacingFolder whole(path("model"), "index");
  save("model/index", "2");
  EXPECT_EQ(bytes_of(path("elsewhere")), "1");
  whole.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path("model/index")));
  EXPECT_EQ(bytes_of(path("elsewhere")), "2");
}

}  // namespace
}  // namespace sf::io
