#include "scaffolding/diffusion/pipelines/pixart/picture_size.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/view/view.h"

namespace sf::diffusion {

namespace {

// diffusers' ASPECT_RATIO_..._BIN: sides in units of a quarter of sample_size.
struct Bin {
  double ratio;  // height / width, with two digits
  int height, width;
  bool only_largest = false;  // for sample_size 256 alone
};
constexpr Bin kBins[] = {
    {0.25, 16, 64},       {0.26, 16, 62, true}, {0.27, 16, 60, true}, {0.28, 16, 58},       {0.32, 18, 56},
    {0.33, 18, 54},       {0.35, 18, 52},       {0.4, 20, 50},        {0.42, 20, 48},       {0.48, 22, 46},
    {0.5, 22, 44},        {0.52, 22, 42},       {0.57, 24, 42},       {0.6, 24, 40},        {0.68, 26, 38},
    {0.72, 26, 36},       {0.78, 28, 36},       {0.82, 28, 34},       {0.88, 30, 34},       {0.94, 30, 32},
    {1.0, 32, 32},        {1.07, 32, 30},       {1.13, 34, 30},       {1.21, 34, 28},       {1.29, 36, 28},
    {1.38, 36, 26},       {1.46, 38, 26},       {1.67, 40, 24},       {1.75, 42, 24},       {2.0, 44, 22},
    {2.09, 46, 22},       {2.4, 48, 20},        {2.5, 50, 20},        {2.89, 52, 18, true}, {3.0, 54, 18},
    {3.11, 56, 18, true}, {3.62, 58, 16, true}, {3.75, 60, 16, true}, {3.88, 62, 16, true}, {4.0, 64, 16}};

}  // namespace

std::pair<int64_t, int64_t> trained_size(int64_t height, int64_t width, int64_t sample_size) {
  SF_CHECK(height > 0 && width > 0, "trained_size: height and width must be positive, got ", height, " and ", width);
  SF_CHECK(sample_size == 32 || sample_size == 64 || sample_size == 128 || sample_size == 256,
           "trained_size: bins of sizes are known for a sample_size of 32, 64, 128 or 256, got ", sample_size,
           "; pass use_resolution_binning=False");
  const double ratio = double(height) / double(width);
  const Bin* nearest = nullptr;
  for (auto& bin : kBins)
    if ((sample_size == 256 || !bin.only_largest) &&
        (!nearest || std::abs(bin.ratio - ratio) < std::abs(nearest->ratio - ratio)))
      nearest = &bin;
  return {nearest->height * sample_size / 4, nearest->width * sample_size / 4};
}

Tensor resized_and_cropped(const Tensor& pictures, int64_t height, int64_t width) {
  const int64_t h = pictures.size(2), w = pictures.size(3);
  if (h == height && w == width) return pictures;
  const double ratio = std::max(double(height) / double(h), double(width) / double(w));
  const int64_t resized_h = int64_t(double(h) * ratio), resized_w = int64_t(double(w) * ratio);
  Tensor resized = interpolate(pictures, Shape{resized_h, resized_w}, {}, "bilinear", false);
  return resized.narrow(2, (resized_h - height) / 2, height).narrow(3, (resized_w - width) / 2, width);
}

}  // namespace sf::diffusion
