// FreeU (Si et al. 2023, arXiv:2309.11497) as diffusers has it: better pictures of a trained UNet without training, by
// two factors in each of its two lowest up levels.
#pragma once
#include <optional>
#include <string_view>

#include "scaffolding/core/tensor.h"
#include "scaffolding/nn/module.h"

namespace sf::models {

// Of one level: backbone times the first half of its channels, skip times the lowest frequencies of its skips.
struct FreeUStage {
  double backbone = 1, skip = 1;
  // hidden_states, skip: [B, C, H, W]
  void apply(Tensor& hidden_states, Tensor& skip) const;
};

// What a level that can have it derives from.
struct TakesFreeU {
  std::optional<FreeUStage> free_u;
};

// diffusers' s1, s2, b1, b2: of the lowest level and of the one above it. 0 switches it off, as there.
struct FreeU {
  double s1, s2, b1, b2;
};
// "0.9,0.2,1.5,1.6": s1, s2, b1, b2; none for no text. ValueError for another one.
std::optional<FreeU> free_u_of(std::string_view text);

// x[B, C, H, W] with its frequencies -1 and 0 of both axes times `scale`: diffusers' fourier_filter with threshold 1,
// as a product with those four, in float32.
Tensor scale_lowest_frequencies(const Tensor& x, double scale);

// In the up levels of a UNet with text. False where the model has none; ValueError for factors that are not finite.
bool set_free_u(nn::Module& model, const std::optional<FreeU>& factors);  // none: without it again

}  // namespace sf::models
