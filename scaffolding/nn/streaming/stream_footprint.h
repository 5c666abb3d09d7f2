// StreamFootprint: what a device holds of groups of these sizes, counted before a streamer is made. A streamer chooses
// by the same functions. Bytes are those of weights: beside them an allocator rounds each tensor up, and slots have
// their tensors at multiples of 256 bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace sf::nn {

struct StreamFootprint {
  std::vector<bool> stays;     // of each group
  int64_t resident_bytes = 0;  // of those that stay
  int64_t slot_bytes = 0;      // of all slots; 0 where nothing is streamed
  int64_t streamed_bytes = 0;  // that each call copies
  int64_t device_bytes() const { return resident_bytes + slot_bytes; }
};

// Which groups stay in so many bytes: spread evenly, so that copies have work to hide behind everywhere.
std::vector<bool> spread_evenly(const std::vector<int64_t>& group_bytes, int64_t bytes);

// group_bytes: of StreamGroups, in their order. slots: StreamOptions::slots. All groups stay where slots would
// be no smaller.
StreamFootprint stream_footprint(const std::vector<int64_t>& group_bytes, int64_t resident_bytes, int64_t slots = 3);

// StreamOptions::resident_bytes with which groups that stay and slots take at most device_bytes, and little less.
// Absent where the slots alone take more.
std::optional<int64_t> resident_bytes_within(const std::vector<int64_t>& group_bytes, int64_t device_bytes,
                                             int64_t slots = 3);

}  // namespace sf::nn
