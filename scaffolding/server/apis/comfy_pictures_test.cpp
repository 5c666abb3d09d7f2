#include "scaffolding/server/apis/comfy_pictures.h"

#include <algorithm>

#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::server {
namespace {

Tensor picture(const Shape& shape, int64_t step) {
  Tensor t = empty(shape, kUInt8);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<uint8_t>()[i] = uint8_t(i * step % 251);
  return t;
}

TEST(ComfyPictures, MasksGrowAndShrinkByTheLargestAndLeastAround) {
  const Tensor mask = picture({1, 9, 13}, 37);
  for (const int64_t by : {-20, -3, -1, 0, 1, 2, 20}) {
    const Tensor out = grown_mask(mask, by, 0);
    for (int64_t y = 0; y < 9; ++y)
      for (int64_t x = 0; x < 13; ++x) {
        uint8_t want = mask.data<uint8_t>()[y * 13 + x];
        const int64_t r = std::abs(by);
        for (int64_t v = std::max<int64_t>(0, y - r); v <= std::min<int64_t>(8, y + r); ++v)
          for (int64_t u = std::max<int64_t>(0, x - r); u <= std::min<int64_t>(12, x + r); ++u) {
            const uint8_t m = mask.data<uint8_t>()[v * 13 + u];
            want = by > 0 ? std::max(want, m) : std::min(want, m);
          }
        EXPECT_EQ(out.data<uint8_t>()[y * 13 + x], want) << by << " " << x << " " << y;
      }
  }
}

TEST(ComfyPictures, PartsLieInThePicture) {
  const Tensor p = picture({3, 8, 10}, 3), part = cropped(p, 2, 1, 4, 5);
  EXPECT_EQ(part.shape(), (Shape{3, 5, 4}));
  EXPECT_EQ(part.data<uint8_t>()[0], p.data<uint8_t>()[12]);
  for (auto [x, y, w, h] : {std::array<int64_t, 4>{7, 0, 4, 1}, {-1, 0, 2, 2}, {0, 0, 0, 1}, {0, 0, 1, 9}})
    SF_EXPECT_ERROR(ValueError, "does not lie in a picture of 10x8", cropped(p, x, y, w, h));
}

TEST(ComfyPictures, ColoursAreMatchedOutsideTheMask) {
  const Tensor p = picture({3, 16, 16}, 5), none = zeros({1, 4, 4}, kUInt8);
  Tensor lighter = empty({3, 16, 16}, kUInt8);
  for (int64_t i = 0; i < p.numel(); ++i) lighter.data<uint8_t>()[i] = uint8_t(p.data<uint8_t>()[i] / 2 + 100);
  const Tensor same = colour_matched(p, p, none, 1), changed = colour_matched(p, lighter, none, 1);
  for (int64_t i = 0; i < p.numel(); ++i) {
    EXPECT_EQ(same.data<uint8_t>()[i], p.data<uint8_t>()[i]);
    EXPECT_NEAR(changed.data<uint8_t>()[i], lighter.data<uint8_t>()[i], 2);
  }
  const Tensor hidden = colour_matched(p, lighter, full({1, 16, 16}, 255, kUInt8), 1);
  EXPECT_EQ(hidden.data<uint8_t>()[7], p.data<uint8_t>()[7]) << "nothing is known";
  EXPECT_EQ(with_alpha(p, none).size(0), 4);
}

}  // namespace
}  // namespace sf::server
