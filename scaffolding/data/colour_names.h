// What people call a colour, and what a drawing is called by the colour most of it has: fixed rules in OKLCH (Ottosson
// 2020), whose hue, lightness and chroma are about as they are seen. Functions only; any thread.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::data {

struct Oklch {
  float lightness = 0, chroma = 0, hue = 0;  // 0 to 1; 0 to about 0.32; degrees in [0, 360)
};
Oklch oklch_of(const std::array<uint8_t, 3>& rgb);
// Chroma is taken away until the colour can be shown.
std::array<uint8_t, 3> rgb_of(const Oklch& colour);

// "white", "black", "gray", "red", ...: those of background_colours(), in its order. "grey" is none of them.
const std::vector<std::string>& colour_names();
constexpr int kNoColour = -1;
int named_colour(const Oklch& colour);  // a place in colour_names(), or kNoColour: sand, skin
int named_colour(const std::string& name);
bool is_colour_word(const std::string& word);  // a name, or "grey"

// How much of something has which colour.
struct ColourShares {
  std::vector<double> share;  // of each name; they sum up to 1 at most
  // The name that most of it has. Empty where nothing has a name.
  std::string most() const;
  // most(), where so much of it has it, and a third more than has any other. Else empty.
  std::string clearly(double least = 0.45) const;
};
// Of the pixels of a drawing uint8 [4, H, W] that are more than half opaque; of a large one, of a grid of them.
ColourShares colours_of_drawing(const Tensor& drawing);
// Of the pixels of a picture uint8 [3, H, W] that differ from `ground` by more than an antialiased outline does.
ColourShares colours_of_picture(const Tensor& picture, const std::array<uint8_t, 3>& ground);

}  // namespace sf::data
