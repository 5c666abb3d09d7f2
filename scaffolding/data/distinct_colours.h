// DistinctColours: the pixels of a drawing that can be seen, each with the place of its colour in a list in which no
// colour stands twice. What is costly for a colour is then done once for all its pixels. A value.
#pragma once
#include <vector>

#include "scaffolding/data/colour_names.h"

namespace sf::data {

class DistinctColours {
 public:
  struct Pixel {
    uint32_t at, colour;
    uint8_t alpha;
  };
  // Of pixels uint8 [H, W, 4], contiguous, whose opacity is `least` or more; of every step-th row and column.
  DistinctColours(const Tensor& pixels, int least, int64_t step = 1);

  const std::vector<Pixel>& pixels() const { return pixels_; }  // row by row
  const std::vector<std::array<uint8_t, 3>>& colours() const { return colours_; }
  std::vector<Oklch> oklch() const;  // of colours()

 private:
  std::vector<Pixel> pixels_;
  std::vector<std::array<uint8_t, 3>> colours_;
};

}  // namespace sf::data
