#include "scaffolding/ops/fused/framed_norm/norm_silu_framed.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

namespace {

Tensor composed(const Tensor& x, const Tensor& scale, const Tensor& shift, int64_t before, int64_t behind,
                int64_t border) {
  Tensor rows = x.permute({0, 2, 3, 4, 1});
  rows = scale ? rms_norm_modulate(rows, scale, shift, {}, 1e-3) : rms_norm(rows, {x.size(1)}, {}, 1e-3);
  Tensors frames(size_t(before), rows.narrow(1, 0, 1));
  frames.push_back(rows);
  frames.insert(frames.end(), size_t(behind), rows.narrow(1, rows.size(1) - 1, 1));
  const Tensor video = silu(cat(frames, 1)).permute({0, 4, 1, 2, 3});
  return border ? pad(video, {1, 1, 1, 1, 0, 0}, "reflect") : video;
}

}  // namespace

TEST(FramedNorm, is_the_composition) {
  autograd::NoGrad off;
  manual_seed(5);
  struct Case {
    Shape sizes;
    bool modulated;
    int64_t before, behind, border;
  };
  for (auto& c : {Case{{2, 16, 3, 4, 5}, false, 1, 1, 1}, Case{{1, 19, 1, 2, 2}, true, 2, 0, 1},
                  Case{{2, 37, 2, 3, 2}, true, 1, 1, 0}, Case{{1, 8, 4, 1, 6}, false, 2, 0, 0},
                  Case{{1, 3, 1, 3, 3}, false, 0, 0, 1}}) {
    const Tensor x = to_channels_last(randn(c.sizes));
    const Tensor scale = c.modulated ? randn({c.sizes[0], c.sizes[1]}) : Tensor(),
                 shift = c.modulated ? randn({c.sizes[0], c.sizes[1]}) : Tensor();
    for (DType t : {kFloat32, kBFloat16, kFloat16}) {
      const Tensor got = rms_norm_silu_framed(x.to(t), scale, shift, 1e-3, c.before, c.behind, c.border);
      ASSERT_TRUE(bool(got));
      EXPECT_TRUE(got.is_contiguous(MemoryFormat::ChannelsLast));
      const Tensor want = composed(x.to(t).to(kFloat32), scale, shift, c.before, c.behind, c.border);
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_LT(amax(abs(got.to(kFloat32) - want)).item(), t == kFloat32 ? 1e-5 : 0.05) << name(t);
    }
  }
}

TEST(FramedNorm, leaves_to_its_callers_what_it_cannot_do) {
  const Tensor x = to_channels_last(randn({1, 8, 2, 3, 1}));
  EXPECT_TRUE(bool(rms_norm_silu_framed(x, {}, {}, 1e-3, 1, 1, 0)));
  EXPECT_FALSE(bool(rms_norm_silu_framed(x, {}, {}, 1e-3, 1, 1, 1)));  // nothing to reflect
  EXPECT_FALSE(bool(rms_norm_silu_framed(x.to(kFloat64), {}, {}, 1e-3, 1, 1, 0)));
  EXPECT_FALSE(bool(rms_norm_silu_framed(randn({1, 8, 2, 3, 2}), {}, {}, 1e-3, 1, 1, 0)));  // not channels-last
  EXPECT_FALSE(bool(rms_norm_silu_framed(x.clone().requires_grad_(), {}, {}, 1e-3, 1, 1, 0)));
}

}  // namespace sf::test
