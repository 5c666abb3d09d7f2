// A picture through libx264 and back. Private to libscaffolding_video.so.
#pragma once
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/tensor.h"
#include "scaffolding/io/video/libav.h"

namespace sf::io::libav {

Tensor compressed_still(const Tensor& picture, int crf);  // uint8 [H, W, 3] of even sides, contiguous; crf 1 to 51

}  // namespace sf::io::libav
