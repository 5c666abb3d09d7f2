// Canny's edges (Canny 1986) of a picture, as OpenCV's cv2.Canny(picture, low, high) finds them: Sobel's 3 x 3 filters
// over a repeated border, the sum of both absolute slopes, of several channels the steepest. What ControlNets named
// "canny" were trained with.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::data {

// uint8 [C, H, W] to uint8 [1, H, W]: 255 on edges, 0 elsewhere. A pixel is on an edge where its slope is above `high`,
// or above `low` beside such a pixel. ValueError for what is no picture, and for thresholds that are no numbers.
Tensor canny(const Tensor& picture, double low_threshold = 100, double high_threshold = 200);

}  // namespace sf::data
