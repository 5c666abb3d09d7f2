// NameIndex: where a name stands in a list of things with names. It holds places alone, so that it is copied with its
// list, and it makes no memory but once: a checkpoint has thousands of names.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sf::models {

class NameIndex {
 public:
  static constexpr size_t kNone = size_t(-1);
  // names at most: half of the slots stay free
  explicit NameIndex(size_t most = 0) : slots_(std::bit_ceil(2 * most + 1), kFree) {}

  template <class List> size_t find(const List& list, std::string_view name) const {
    const uint32_t place = slots_[slot(list, name)];
    return place == kFree ? kNone : place;
  }
  // Adds the name at a place of the list. The place where it stands: another one if it was there before.
  template <class List> size_t add(const List& list, size_t place) {
    uint32_t& there = slots_[slot(list, list[place].name)];
    if (there == kFree) there = uint32_t(place);
    return there;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  template <class List> size_t slot(const List& list, std::string_view name) const {
    for (size_t at = std::hash<std::string_view>()(name);; ++at) {
      const uint32_t place = slots_[at & (slots_.size() - 1)];
      if (place == kFree || list[place].name == name) return at & (slots_.size() - 1);
    }
  }
  std::vector<uint32_t> slots_;
};

}  // namespace sf::models
