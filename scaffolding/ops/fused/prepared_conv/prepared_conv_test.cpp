#include "scaffolding/ops/fused/prepared_conv/prepared_conv.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/fused/prepared_conv/in_place.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

SF_OP_TEST(group_norm_silu_conv2d) {
  sample(randn({2, 6, 5, 4}), 3, randn({6}), randn({6}), randn({4, 6, 3, 3}), randn({4}));
  sample(to_channels_last(randn({2, 16, 9, 10})), 4, randn({16}), randn({16}), randn({16, 16, 3, 3}), randn({16}),
         to_channels_last(randn({2, 16, 9, 10})));
  sample(to_channels_last(randn({1, 32, 8, 13})), 8, randn({32}), randn({32}), randn({16, 32, 3, 3}), none, none, 1e-3,
         0);
  sample(to_channels_last(randn({1, 16, 8, 8})), 1, randn({16}), randn({16}), randn({16, 16, 3, 3}), none, none, 1e-5,
         2);
  sample(to_channels_last(randn({1, 6, 4, 4})), 2, randn({6}), randn({6}), randn({3, 6, 1, 1}), none,
         randn({1, 3, 4, 4}), 1e-5, 0);
  sample(to_channels_last(randn({2, 16, 8, 9})), 4, randn({16}), randn({16}), randn({32, 16, 3, 3}), randn({32}),
         randn({2, 32, 1, 1}));
  rejects("num_groups must divide", randn({1, 6, 4, 4}), 4, randn({6}), randn({6}), randn({3, 6, 3, 3}));
  rejects("norm_weight must have shape", randn({1, 6, 4, 4}), 3, randn({5}), randn({6}), randn({3, 6, 3, 3}));
  rejects("input channels", randn({1, 6, 4, 4}), 3, randn({6}), randn({6}), randn({3, 5, 3, 3}));
  rejects("residual must have shape", randn({1, 6, 4, 4}), 3, randn({6}), randn({6}), randn({3, 6, 3, 3}), none,
          randn({1, 3, 4, 5}));
  rejects("residual must have shape", randn({2, 6, 4, 4}), 3, randn({6}), randn({6}), randn({3, 6, 3, 3}), none,
          randn({1, 3, 1, 1}));
  rejects("must be [N, C, H, W]", randn({6, 4, 4}), 3, randn({6}), randn({6}), randn({3, 6, 3, 3}));
  rejects("does not fit", randn({1, 6, 2, 2}), 3, randn({6}), randn({6}), randn({3, 6, 5, 5}));
  rejects("padding must be at least 0", randn({1, 6, 2, 2}), 3, randn({6}), randn({6}), randn({3, 6, 1, 1}), none, none,
          1e-5, -1);
}
SF_OP_TEST(upsample_conv2d) {
  sample(randn({2, 3, 4, 5}), randn({4, 3, 3, 3}), randn({4}));
  sample(to_channels_last(randn({2, 16, 5, 7})), randn({32, 16, 3, 3}), randn({32}));
  sample(to_channels_last(randn({1, 16, 6, 5})), randn({16, 16, 3, 3}), none, 0);
  rejects("bias must have shape", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), randn({3}));
  rejects("does not fit", randn({1, 3, 1, 1}), randn({4, 3, 3, 3}), none, 0);
}

struct Picture {
  int64_t batch, in, out, height, width, padding;
};

// The harness records gradients, which are a composition's: this is what kernels do in one, over rounds of several rows
// of tiles and ragged edges.
TEST(PreparedConv, kernels_equal_the_compositions) {
  autograd::NoGrad off;
  manual_seed(3);
  for (const Picture& p : {Picture{2, 16, 16, 9, 10, 1},
                           {1, 32, 16, 8, 13, 0},
                           {1, 16, 32, 8, 8, 2},
                           {1, 128, 64, 70, 37, 1},
                           {3, 64, 32, 17, 50, 1},
                           {2, 160, 48, 8, 8, 1},
                           {1, 48, 144, 8, 7, 1},
                           {3, 272, 32, 16, 16, 1},
                           {5, 32, 16, 20, 24, 1}}) {
    Tensor x = to_channels_last(randn({p.batch, p.in, p.height, p.width}) * 2 + 1), nw = randn({p.in}),
           nb = randn({p.in});
    Tensor w = randn({p.out, p.in, 3, 3}), b = randn({p.out}),
           residual =
               to_channels_last(randn({p.batch, p.out, p.height + 2 * p.padding - 2, p.width + 2 * p.padding - 2}));
    auto difference = [](const Tensor& a, const Tensor& e) { return amax(abs(a - e)).item() / amax(abs(e)).item(); };
    Tensor normed = group_norm_silu(x, 8, nw, nb, 1e-6);
    EXPECT_LT(difference(group_norm_silu_conv2d(x, 8, nw, nb, w, b, residual, 1e-6, p.padding),
                         conv2d(normed, w, b, {1}, p.padding) + residual),
              1e-5);
    EXPECT_LT(
        difference(upsample_conv2d(x, w, b, p.padding), conv2d(interpolate(x, {}, Floats{2, 2}), w, b, {1}, p.padding)),
        1e-5);
    Tensor shift = randn({p.batch, p.out, 1, 1});
    EXPECT_LT(difference(group_norm_silu_conv2d(x, 8, nw, nb, w, b, shift, 1e-6, p.padding),
                         conv2d(normed, w, b, {1}, p.padding) + shift),
              1e-5);
    EXPECT_TRUE(group_norm_silu_conv2d(x, 8, nw, nb, w, b, residual, 1e-6, p.padding)
                    .is_contiguous(MemoryFormat::ChannelsLast));
    // A weight that stays in 16 bits: where there is a kernel, what the widened one gives.
    if (p.padding != 1) continue;
    for (DType dtype : {kFloat16, kBFloat16}) {
      const Tensor narrow = w.to(dtype), wide = narrow.to(kFloat32);
      for (const Tensor& added : {residual, shift, Tensor()})
        if (const Tensor y = group_norm_silu_narrow_conv2d(x, 8, nw, nb, narrow, b, added, 1e-6))
          EXPECT_EQ(difference(y, group_norm_silu_conv2d(x, 8, nw, nb, wide, b, added, 1e-6)), 0);
      if (const Tensor y = upsample_narrow_conv2d(x, narrow, b))
        EXPECT_EQ(difference(y, upsample_conv2d(x, wide, b)), 0);
      Tensor sum = residual.clone();
      if (group_norm_silu_conv2d_into(sum, x, 8, nw, nb, narrow, b, 1e-6))
        EXPECT_LT(difference(sum, group_norm_silu_conv2d(x, 8, nw, nb, wide, b, residual, 1e-6)), 1e-5);
    }
  }
}

}  // namespace sf::test
