#include "scaffolding/data/distinct_colours.h"

#include <bit>

namespace sf::data {

DistinctColours::DistinctColours(const Tensor& pixels, int least, int64_t step) {
  constexpr uint32_t kNone = UINT32_MAX;
  const int64_t height = pixels.size(0), width = pixels.size(1);
  const auto* p = pixels.data<uint8_t>();
  pixels_.reserve(size_t(height * width / (step * step) + height + width + 1));
  struct Entry {
    uint32_t rgb = kNone, colour = 0;
  };
  std::vector<Entry> table(1024);  // open addressing, at most half full
  const auto found = [&](uint32_t rgb) -> Entry& {
    size_t i = (rgb * 0x9E3779B1u) >> (32 - std::countr_zero(table.size()));
    while (table[i].rgb != rgb && table[i].rgb != kNone) i = (i + 1) & (table.size() - 1);
    return table[i];
  };
  Entry last;
  for (int64_t y = 0; y < height; y += step)
    for (int64_t x = 0; x < width; x += step) {
      const int64_t at = y * width + x;
      const uint8_t* q = p + 4 * at;
      if (q[3] < least) continue;
      const uint32_t rgb = uint32_t(q[0]) | uint32_t(q[1]) << 8 | uint32_t(q[2]) << 16;
      if (rgb != last.rgb) {
        Entry& entry = found(rgb);
        if (entry.rgb == kNone) {
          entry = {rgb, uint32_t(colours_.size())};
          colours_.push_back({q[0], q[1], q[2]});
        }
        last = entry;
        if (2 * colours_.size() > table.size()) {
          std::vector<Entry> all(4 * table.size());
          std::swap(all, table);
          for (const Entry& e : all)
            if (e.rgb != kNone) found(e.rgb) = e;
        }
      }
      pixels_.push_back({uint32_t(at), last.colour, q[3]});
    }
}

std::vector<Oklch> DistinctColours::oklch() const {
  std::vector<Oklch> out;
  out.reserve(colours_.size());
  for (auto& rgb : colours_) out.push_back(oklch_of(rgb));
  return out;
}

}  // namespace sf::data
