#include "scaffolding/nn/streaming/page_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "scaffolding/io/file.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/io/test_folder.h"

namespace sf::nn {
namespace {

class PageReaderTest : public io::TestFolder {
 protected:
  static constexpr uint64_t kBytes = 20 << 20;
  static uint64_t pages(const std::byte* data) {  // that this process has mapped or the page cache holds
    std::vector<unsigned char> there(kBytes / uint64_t(sysconf(_SC_PAGESIZE)));
    if (mincore(const_cast<std::byte*>(data), kBytes, there.data()) != 0) return 0;
    return uint64_t(std::count_if(there.begin(), there.end(), [](unsigned char c) { return c & 1; }));
  }
  static bool soon(const std::function<bool()>& f) {
    for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (f()) return true;
    return false;
  }
};

TEST_F(PageReaderTest, reads_what_was_dropped) {
  const std::string path = write("weights", std::string(kBytes, 'w'));
  const io::MappedFile file(path);
  if (!io::read_pages(file.data(), kBytes)) GTEST_SKIP() << "unproven here: the kernel has no MADV_POPULATE_READ";
  const uint64_t all = pages(file.data());
  const int fd = open(path.c_str(), O_RDONLY);
  fsync(fd);  // a page that is not on the disk yet stays
  close(fd);
  io::release_mapped(file.data(), kBytes, true);
  if (pages(file.data()) == all) GTEST_SKIP() << "unproven here: the file system keeps its pages";
  PageReader reader;
  const auto* data = reinterpret_cast<const char*>(file.data());
  reader.start({{data, 1000}, {data + 1000, kBytes - 1000}});
  EXPECT_TRUE(soon([&] { return pages(file.data()) == all; }));
  reader.stop();
  EXPECT_EQ(char(file.data()[kBytes - 1]), 'w');
}

TEST_F(PageReaderTest, stops_starts_again_and_survives_a_file_that_shrank) {
  const std::string path = write("weights", std::string(kBytes, 'w'));
  const io::MappedFile file(path);
  const auto* data = reinterpret_cast<const char*>(file.data());
  PageReader reader;
  reader.stop();
  reader.start({});
  for (int i = 0; i < 20; ++i) reader.start({{data, kBytes}});
  reader.stop();
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_FALSE(io::read_pages(data, kBytes)) << "touching it would end the program";
  reader.start({{data, kBytes}});
}

}  // namespace
}  // namespace sf::nn
