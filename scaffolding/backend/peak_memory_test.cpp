#include "scaffolding/backend/peak_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace sf {
namespace {

TEST(PeakMemory, IsTheMostSinceItBegan) {
  constexpr int64_t kBytes = 64 << 20;
  auto use = [](int64_t bytes) {
    std::vector<char> block(static_cast<size_t>(bytes));
    std::memset(block.data(), 1, block.size());
    return block[block.size() / 2];
  };
  use(kBytes);
  const PeakMemory peak;
  const int64_t before = peak.host();
  EXPECT_GT(before, 1 << 20);
  use(3 * kBytes);  // more than is asked for: where the system keeps the old peak, pages may be reclaimed in between
  EXPECT_GE(peak.host(), before + kBytes);
  EXPECT_EQ(peak.device(), 0);
}

}  // namespace
}  // namespace sf
