// Numbers that say what a picture looks like, by fixed formulas: no network, so that they judge every model alike and
// the same tomorrow. Pictures are uint8 [3, H, W], resized to 128x128 where they are not. Functions only; any thread.
#pragma once
#include <array>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::train {

// Where which colours and edges are, 1344 numbers: CIE Lab (divided by 30) of 16x16 areas, and histograms of gradients
// (Dalal and Triggs 2005) of 8x8 cells: 9 directions without sign, each weighted by the square root of its length, of
// the channel that changes most at 64x64. Near pictures are those at a small angle after the mean of a set is taken
// away.
constexpr int64_t kLayoutFeatures = 16 * 16 * 3 + 8 * 8 * 9;
std::vector<float> layout_features(const Tensor& picture);

// The same, coarser, 336 numbers: Lab of 8x8 areas, gradients of 4x4 cells.
constexpr int64_t kCoarseFeatures = 8 * 8 * 3 + 4 * 4 * 9;
std::vector<float> coarse_features(const std::vector<float>& layout);

// How a picture is drawn, whatever it shows, 121 numbers: square roots of shares. Of what is not background
// (border_colour): lengths of gradients and second differences at three scales (flat areas, outlines, shading,
// texture), lightness, chroma, hue; and how the figure fills the frame.
constexpr int64_t kTextureFeatures = 3 * (14 + 9) + 10 + 10 + 16 + 16;
std::vector<float> texture_features(const Tensor& picture);

// The median of the outer three pixels, for each channel: the background, where there is one.
std::array<uint8_t, 3> border_colour(const Tensor& picture);
double lab_distance(const std::array<uint8_t, 3>& a, const std::array<uint8_t, 3>& b);  // CIE 1976

}  // namespace sf::train
