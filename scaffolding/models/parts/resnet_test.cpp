#include "scaffolding/models/parts/resnet.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

// A large picture that only the block has is overwritten: the result is the same, and no other tensor changes.
TEST(ResnetBlock2D, LargePicturesAreChangedInPlace) {
  autograd::NoGrad off;
  manual_seed(1);
  const int64_t out = 16;
  for (int64_t in : {16, 32}) {
    ResnetBlock2D block(in, out, {.temb_channels = 8, .groups = 4});
    block.eval();
    const Tensor x = to_channels_last(randn({1, in, 520, 520})), temb = randn({1, 8}), kept = x.clone();
    const Tensor expected = block(x, temb);
    EXPECT_EQ(amax(abs(x - kept)).item(), 0);
    Tensor moved = x.clone();
    const void* bytes = moved.data_ptr();
    const Tensor y = block(std::move(moved), temb);
    if (cpu::has(cpu::Isa::avx2)) EXPECT_EQ(y.data_ptr(), bytes);  // the baseline has no kernel for it
    EXPECT_EQ(y.shape(), (Shape{1, out, 520, 520}));
    EXPECT_LT(amax(abs(y - expected)).item(), 1e-4 * amax(abs(expected)).item());
  }
}

TEST(ResnetBlock2D, IsThePlainCompositionAndHooksOnAnyPartSeeTheirCalls) {
  autograd::NoGrad off;
  manual_seed(2);
  auto difference = [](const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item(); };
  for (bool scale_shift : {false, true}) {
    ResnetBlock2D b(8, 16, {.temb_channels = 12, .groups = 4, .scale_shift = scale_shift});
    b.eval();
    const Tensor x = to_channels_last(randn({2, 8, 6, 6})), temb = randn({2, 12});
    const Tensor t = (*b.time_emb_proj)(silu(temb)).unsqueeze(-1).unsqueeze(-1), first = b.conv1(silu(b.norm1(x)));
    const Tensor middle =
        scale_shift ? b.norm2(first) * (1 + t.narrow(1, 0, 16)) + t.narrow(1, 16, 16) : b.norm2(first + t);
    const Tensor want = (*b.conv_shortcut)(x) + b.conv2(silu(middle));
    EXPECT_LT(difference(b(x, temb), want), 2e-5);
    for (nn::Module* part : std::initializer_list<nn::Module*>{&b.norm1, &b.conv1, &*b.time_emb_proj, &b.norm2,
                                                               &b.conv2, &*b.conv_shortcut}) {
      int calls = 0;
      const uint64_t hook =
          part->register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
      EXPECT_LT(difference(b(x, temb), want), 2e-5) << part->type();
      EXPECT_EQ(calls, 1) << part->type();
      part->remove_hook(hook);
    }
  }
}

}  // namespace sf::models
