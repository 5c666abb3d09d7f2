#include "scaffolding/ops/interpolate/interpolate.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

static Tensor channels_last(const Tensor& t) { return t.contiguous(MemoryFormat::ChannelsLast); }

SF_OP_TEST(interpolate) {
  sample(randn({2, 3, 4, 5}), Shape{8, 10});
  sample(randn({2, 3, 4, 5}), none, 2.0);
  for (const char* mode : {"nearest", "nearest-exact", "area"}) {
    sample(randn({2, 3, 5}), 7, none, mode);
    sample(randn({2, 3, 6, 5}), Shape{4, 8}, none, mode);
    sample(channels_last(randn({2, 3, 6, 5})), Shape{4, 8}, none, mode);
    sample(randn({1, 2, 3, 4, 3}).transpose(2, 4), Shape{5, 2, 6}, none, mode);
  }
  for (bool align : {false, true}) {
    sample(randn({2, 3, 5}), 8, none, "linear", align);
    sample(randn({1, 2, 3, 4, 3}), Shape{5, 2, 6}, none, "trilinear", align);
    for (const char* mode : {"bilinear", "bicubic"}) {
      sample(randn({2, 3, 6, 5}), Shape{4, 13}, none, mode, align);
      sample(channels_last(randn({2, 19, 6, 5})), Shape{9, 3}, none, mode, align);
      sample(randn({2, 5, 6, 3}).transpose(1, 3), Shape{1, 5}, none, mode, align);
    }
  }
  for (const char* mode : {"bilinear", "bicubic"}) {
    sample(randn({1, 2, 9, 11}), Shape{4, 15}, none, mode, false, none, true);
    sample(channels_last(randn({1, 18, 9, 11})), Shape{4, 5}, none, mode, false, none, true);
    sample(randn({1, 2, 5, 7}), none, Floats{1.7, 0.6}, mode, false);
    sample(randn({1, 2, 5, 7}), none, Floats{1.7, 0.6}, mode, false, true);
  }
  sample(randn({1, 2, 40, 3}), Shape{2, 3}, none, "area");
  sample(randn({0, 2, 4, 4}), Shape{2, 2}, none, "bilinear");
  rejects("either size or scale_factor", randn({1, 1, 4, 4}));
  rejects("either size or scale_factor", randn({1, 1, 4, 4}), Shape{2, 2}, Floats{2.0});
  rejects("1 to 3 spatial dimensions", randn({4, 4}), Shape{2});
  rejects("mode must be", randn({1, 1, 4, 4}), Shape{2, 2}, none, "lanczos");
  rejects("needs a 4-D input", randn({1, 1, 4}), Shape{2}, none, "bilinear");
  rejects("align_corners is an option", randn({1, 1, 4}), Shape{2}, none, "nearest", true);
  rejects("antialias is an option", randn({1, 1, 4, 4}), Shape{2, 2}, none, "nearest", none, none, true);
  rejects("sizes must be positive", randn({1, 1, 4, 4}), Shape{0, 2});
  rejects("sizes must be positive", randn({1, 1, 0, 4}), Shape{2, 2});
  rejects("scale_factor must be positive", randn({1, 1, 4, 4}), none, Floats{-1.0});
  rejects("must have one entry or 2", randn({1, 1, 4, 4}), Shape{1, 2, 3});
  rejects("must be a floating-point tensor", randint(0, 9, {1, 1, 4, 4}), Shape{2, 2}, none, "bilinear");
}

}  // namespace sf::test
