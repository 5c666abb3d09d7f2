// Separable linear maps over 1 to 3 spatial dimensions: every output is a weighted sum of a short run of inputs, with
// weights that are a product of one per dimension. Interpolation (linear, cubic, antialiased, area) and average pooling
// are such maps, and so are their gradients: the transposed weights.
#pragma once
#include "scaffolding/ops/spatial/spatial.h"

namespace sf::spatial {

// Weights of one dimension. Output o is the sum over k < count[o] of weight[o * width + k] * input[start[o] + k].
struct Taps {
  int64_t inputs = 0;
  std::vector<int32_t> start, count;
  int64_t width = 0;                     // the largest count
  std::vector<double> weight;            // [outputs, width]
  std::vector<float> weight32;           // the same
  std::vector<float> by_tap;             // [width, outputs]: for vectors of outputs
  int64_t full_begin = 0, full_end = 0;  // the longest run of outputs with count == width
  bool identity = false;
  int64_t outputs() const { return int64_t(start.size()); }
};
// From one list of (input, weight) per output; inputs of a list lie close together, repeated ones add up.
Taps make_taps(int64_t inputs, const std::vector<std::vector<std::pair<int64_t, double>>>& lists);
Taps transposed(const Taps& t);

// [floor(o * in / out), ceil((o + 1) * in / out)): the window of adaptive pooling.
struct Window {
  int64_t begin, end;
};
Window adaptive_window(int64_t o, int64_t inputs, int64_t outputs);
Taps adaptive_average(int64_t inputs, int64_t outputs);

// Applies taps to the last taps.size() dimensions of a floating x. Keeps the memory format, records the gradient.
Tensor resample(const char* op, const Tensor& x, const std::vector<Taps>& taps);

}  // namespace sf::spatial
