// A picture with the marks that H.264 leaves: what video models were told in training, since their pictures were frames
// of such files.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::io {

// picture: uint8 [H, W, 3] on the CPU, encoded as a single frame by libx264's preset "veryfast" and decoded again. crf:
// 0, unchanged, to 51, worst. Sides become even: an odd one loses its last line. ValueError for other pictures,
// NotSupported where libscaffolding_video.so or libx264 is missing.
Tensor compressed_still(const Tensor& picture, int64_t crf);

}  // namespace sf::io
