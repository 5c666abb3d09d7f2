#include "scaffolding/server/jobs/file_hashes.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scaffolding/io/test_folder.h"

namespace sf::server {
namespace {

class FileHash : public io::TestFolder {};

TEST_F(FileHash, IsKeptUntilTheFileChanges) {
  std::ofstream(path("a")) << "abc";
  const char* abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  {
    FileHashes hashes(path("cache"));
    EXPECT_EQ(hashes.of(path("a")), "");
    hashes.compute({path("a"), path("none")});
    hashes.wait();
    EXPECT_EQ(hashes.of(path("a")), abc);
    EXPECT_EQ(hashes.file_of("ba7816bf8f"), path("a"));
    EXPECT_EQ(hashes.file_of("ba7816b"), "");
    EXPECT_EQ(hashes.file_of("0000000000"), "");
  }
  FileHashes again(path("cache"));
  EXPECT_EQ(again.of(path("a")), abc);
  std::ofstream(path("a")) << "abcd";
  again.compute({path("a")});
  again.wait();
  EXPECT_NE(again.of(path("a")), abc);
}

TEST_F(FileHash, OfADamagedCacheIsComputedAgain) {
  for (const char* text : {"{", "[1]", R"({"/x": 3})", R"({"/x": {"bytes": "a", "changed": 1, "sha256": ""}})"}) {
    std::ofstream(path("cache")) << text;
    EXPECT_EQ(FileHashes(path("cache")).of("/x"), "") << text;
  }
}

}  // namespace
}  // namespace sf::server
