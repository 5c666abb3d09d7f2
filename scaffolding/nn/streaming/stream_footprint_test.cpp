#include "scaffolding/nn/streaming/stream_footprint.h"

#include <gtest/gtest.h>

namespace sf::nn {
namespace {

std::string stays(const std::vector<int64_t>& groups, int64_t bytes, int64_t slots = 3) {
  std::string out;
  for (bool is : stream_footprint(groups, bytes, slots).stays) out += is ? 'x' : '.';
  return out;
}

TEST(StreamFootprint, what_stays_is_spread) {
  const std::vector<int64_t> eight(8, 10);
  EXPECT_EQ(stays(eight, 0), "........");
  EXPECT_EQ(stays(eight, 9), "........");
  EXPECT_EQ(stays(eight, 20), ".x...x..");
  EXPECT_EQ(stays(eight, 40), "x.x.x.x.");
  EXPECT_EQ(stays(eight, 50), "xxxxxxxx") << "three slots are as large as the three that would be away";
  EXPECT_EQ(stays(eight, 50, 0), "x.xx.x.x") << "the CPU has no slots";
  EXPECT_EQ(stays({}, 50), "");
}

TEST(StreamFootprint, counts_slots_of_the_largest_group_that_is_streamed) {
  const StreamFootprint f = stream_footprint({40, 10, 10, 10, 10, 10, 10}, 40);
  EXPECT_EQ(f.resident_bytes + f.streamed_bytes, 100);
  EXPECT_EQ(f.device_bytes(), f.resident_bytes + f.slot_bytes);
  // Three slots of 40 would take more than all groups.
  EXPECT_EQ(stays({40, 10, 10, 10, 10}, 20), "xxxxx");
  EXPECT_EQ(stream_footprint({40, 10, 10, 10, 10}, 0).device_bytes(), 80);
}

TEST(StreamFootprint, resident_bytes_within_is_the_most_that_fits) {
  const std::vector<std::vector<int64_t>> models{
      std::vector<int64_t>(12, 10), {40, 10, 10, 10, 10, 10, 10, 30, 20}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {7}, {}};
  for (auto& groups : models)
    for (int64_t room = 0; room < 200; ++room) {
      int64_t most = -1;  // by trying all
      for (int64_t bytes = 0; bytes <= room; ++bytes) {
        const StreamFootprint f = stream_footprint(groups, bytes);
        if (f.device_bytes() <= room) most = std::max(most, f.resident_bytes);
      }
      const auto found = resident_bytes_within(groups, room);
      ASSERT_EQ(found.has_value(), most >= 0) << room;
      if (!found) continue;
      const StreamFootprint f = stream_footprint(groups, *found);
      EXPECT_LE(f.device_bytes(), room);
      EXPECT_EQ(f.resident_bytes, most) << groups.size() << " groups within " << room;
    }
}

}  // namespace
}  // namespace sf::nn
