#include "scaffolding/io/file.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/io/test_folder.h"

namespace sf::io {
namespace {

class MappedFileTest : public TestFolder {};

// KB in memory of the mapping that begins there, as the kernel counts them.
// It may have taken cold pages back by itself.
int64_t resident(const void* begin) {
  std::ostringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>(begin) << "-";
  std::ifstream smaps("/proc/self/smaps");
  bool there = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(address.str())) there = true;
    if (there && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

TEST_F(MappedFileTest, releasing_keeps_pages_that_were_written) {
  if (access("/proc/self/pagemap", R_OK) != 0 || access("/proc/self/smaps", R_OK) != 0)
    GTEST_SKIP() << "unproven here: the kernel does not say which pages were written";
  const int64_t page = sysconf(_SC_PAGESIZE), pages = 5000;  // more than are asked for at once
  MappedFile file(write("pages", std::string(size_t(pages * page), 'f')));
  auto* data = reinterpret_cast<char*>(const_cast<std::byte*>(file.data()));
  int64_t sum = 0;
  for (int64_t i = 0; i < pages; ++i) sum += data[i * page];
  EXPECT_EQ(sum, pages * 'f');
  const std::vector<int64_t> written{1, 2, 2047, 2048, 3000, pages - 1};
  cpu::will_write(data, file.size());
  for (int64_t i : written) data[i * page + 7] = 'w';
  const int64_t kept = int64_t(written.size() + 1) * page / 1024;
  EXPECT_GT(resident(data), kept);

  release_mapped(data + 1, size_t((pages - 2) * page));  // neither the first page nor the last one
  EXPECT_LE(resident(data), kept);
  for (int64_t i : written) EXPECT_EQ(data[i * page + 7], 'w') << i;
  for (int64_t i = 0; i < pages; ++i) ASSERT_EQ(data[i * page], 'f') << i;  // read again
}

TEST_F(MappedFileTest, memory_of_no_file_and_ranges_beyond_one_are_left_alone) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  std::vector<char> memory(8 * page, 'm');
  release_mapped(memory.data(), memory.size());
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 'm'), std::ptrdiff_t(8 * page));
  MappedFile file(write("two", std::string(2 * page, 'f')));
  release_mapped(file.data(), 3 * page);
  release_mapped(file.data(), 0);
  EXPECT_EQ(char(file.data()[2 * page - 1]), 'f');
}

}  // namespace
}  // namespace sf::io
