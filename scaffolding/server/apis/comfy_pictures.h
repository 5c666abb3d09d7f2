// What ComfyUI's nodes do to pictures and masks. uint8 [C, H, W] and [1, H, W]; functions that any thread may call.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::server {

// ValueError where the part does not lie in the picture.
Tensor cropped(const Tensor& picture, int64_t x, int64_t y, int64_t width, int64_t height);
Tensor grown_mask(const Tensor& mask, int64_t by, int64_t blur);  // below 0: shrunk
// Above `least` white, else black.
Tensor threshold_mask(const Tensor& mask, double least);
Tensor stabilized_mask(const Tensor& mask, double epsilon);  // what is nearly white is, and what is nearly black
Tensor mixed(const Tensor& picture, const Tensor& other, const Tensor& mask);  // the other where the mask is white
Tensor blurred_under(const Tensor& picture, const Tensor& mask, int64_t blur);
Tensor inverted(const Tensor& picture);
Tensor with_alpha(const Tensor& picture, const Tensor& mask);
// The picture with mean and spread of the other's colours, both outside the mask.
Tensor colour_matched(const Tensor& picture, const Tensor& other, const Tensor& mask, double strength);

}  // namespace sf::server
