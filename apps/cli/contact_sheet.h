// A sheet of pictures with their prompts underneath. Functions only.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::cli {

struct SheetPicture {
  Tensor picture;  // uint8 [3, H, W], one size for all
  std::string caption;
};

// uint8 [3, height, width]: `columns` pictures in a row on white, with their captions in small letters,
// cut after four lines.
Tensor contact_sheet(const std::vector<SheetPicture>& pictures, int64_t columns);

}  // namespace sf::cli
