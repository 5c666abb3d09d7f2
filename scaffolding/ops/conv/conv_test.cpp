#include <set>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

SF_OP_TEST(conv1d) {
  sample(randn({2, 4, 9}), randn({6, 4, 3}), randn({6}));
  sample(randn({2, 4, 9}), randn({6, 2, 3}), none, 2, 2, 2, 2);
  sample(randn({4, 9}), randn({6, 4, 4}), none, 1, "same");
  rejects("must have 3 dimensions", randn({2, 4, 9, 9}), randn({6, 4, 3}));
}
SF_OP_TEST(conv2d) {
  sample(randn({2, 3, 7, 6}), randn({5, 3, 3, 3}), randn({5}), 1, 1);
  sample(to_channels_last(randn({2, 16, 8, 8})), randn({16, 16, 3, 3}), randn({16}), 1, 1);
  sample(randn({3, 16, 7, 9}), randn({32, 16, 3, 3}), none, 1, 1);  // Winograd by way of a copy, with odd edges
  sample(randn({1, 4, 9, 8}), randn({6, 2, 3, 2}), none, Shape{2, 1}, Shape{1, 0}, Shape{1, 2}, 2);
  sample(randn({1, 4, 5, 5}), randn({4, 1, 3, 3}), randn({4}), 1, "same", 1, 4);
  sample(randn({2, 3, 5, 5}), randn({4, 3, 2, 2}), none, 1, "same");
  sample(randn({2, 8, 5, 4}), randn({3, 8, 1, 1}), randn({3}));
  // Pictures so small that every output pixel sees every input pixel.
  sample(randn({33, 3, 2, 2}), randn({2, 3, 3, 3}), randn({2}), 1, 1);
  sample(to_channels_last(randn({8, 6, 2, 2})), randn({7, 6, 3, 3}), none, 2, 1);
  sample(randn({8, 3, 1, 1}), randn({5, 3, 3, 3}), randn({5}), 1, 1);
  sample(randn({12, 3, 3, 2}), randn({5, 3, 3, 2}));
  sample(randn({0, 3, 5, 5}), randn({4, 3, 3, 3})).no_golden();
  rejects("does not fit", randn({1, 3, 2, 2}), randn({4, 3, 3, 3}));
  rejects("input channels", randn({1, 5, 4, 4}), randn({4, 3, 3, 3}));
  rejects("groups must divide", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 1, 0, 1, 2);
  rejects("stride must be at least 1", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 0);
  rejects("'same' or 'valid'", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), none, 1, "full");
  rejects("bias must have shape", randn({1, 3, 4, 4}), randn({4, 3, 3, 3}), randn({3}));
  rejects("one dtype", randn({1, 3, 4, 4}), randint(0, 2, {4, 3, 3, 3}));
}
SF_OP_TEST(conv3d) {
  sample(randn({2, 3, 4, 5, 4}), randn({4, 3, 3, 3, 3}), randn({4}), 1, 1);
  sample(randn({1, 4, 4, 5, 6}), randn({4, 2, 2, 3, 1}), none, Shape{1, 2, 1}, Shape{0, 1, 0}, 1, 2);
  // Winograd: frames around, one frame, kernels of two by way of a copy and of one
  sample(to_channels_last(randn({1, 16, 2, 6, 6})), randn({16, 16, 3, 3, 3}), randn({16}), 1, 1);
  sample(to_channels_last(randn({3, 32, 1, 6, 7})), randn({16, 32, 3, 3, 3}), randn({16}), 1, Shape{1, 0, 2});
  sample(randn({1, 16, 2, 8, 7}), randn({16, 16, 2, 3, 3}), randn({16}), 1, Shape{0, 1, 1});
  sample(to_channels_last(randn({2, 16, 2, 8, 7})), randn({16, 16, 1, 3, 3}), randn({16}), 1, Shape{0, 1, 1});
  // kernels over time alone, and with strides
  sample(to_channels_last(randn({2, 32, 4, 3, 5})), randn({64, 32, 3, 1, 1}), randn({64}), 1, Shape{1, 0, 0});
  sample(to_channels_last(randn({1, 64, 3, 2, 7})), randn({32, 64, 2, 1, 1}));
  // Winograd over time: tiles of 4 and 1, of 4 and 2 by way of a copy; with strides in the picture. One fixture is
  // enough: all are compared with sums in float64 below.
  sample(to_channels_last(randn({1, 16, 5, 6, 5})), randn({16, 16, 3, 1, 1}), randn({16}), 1, Shape{1, 0, 0});
  sample(randn({2, 16, 6, 5, 7}), randn({32, 16, 3, 1, 1}), none, 1, Shape{2, 0, 0}).no_golden();
  sample(to_channels_last(randn({1, 16, 5, 11, 9})), randn({16, 16, 3, 3, 3}), randn({16}), Shape{1, 2, 2}, 1)
      .no_golden();
  sample(to_channels_last(randn({1, 32, 3, 5, 6})), randn({32, 32, 3, 3, 3}), randn({32}), Shape{1, 2, 2}, 1)
      .no_golden();
}
SF_OP_TEST(conv_transpose1d) { sample(randn({2, 4, 5}), randn({4, 3, 3}), randn({3}), 2, 1, 1); }
SF_OP_TEST(conv_transpose2d) {
  sample(randn({2, 4, 5, 4}), randn({4, 3, 3, 3}), randn({3}), 2, 1, 1);
  sample(randn({1, 4, 5, 4}), randn({4, 2, 2, 3}), none, Shape{1, 2}, Shape{0, 1}, 0, 2, 2);
  rejects("output_padding must be smaller", randn({1, 4, 5, 4}), randn({4, 3, 3, 3}), none, 1, 0, 1);
  rejects("leave no output", randn({1, 4, 1, 1}), randn({4, 3, 1, 1}), none, 1, 1);
}
SF_OP_TEST(conv_transpose3d) { sample(randn({1, 3, 2, 3, 2}), randn({3, 2, 2, 2, 2}), randn({2}), 2); }

struct Clip {
  int64_t batch, in, out, frames, height, width, taps;
  Shape padding;
};

// Over rounds of several tiles, blocks of channels and parts of threads, with ragged edges.
TEST(Winograd, kernels_over_time_equal_the_direct_sum) {
  autograd::NoGrad off;
  manual_seed(3);
  for (const Clip& c : {Clip{1, 160, 48, 5, 37, 30, 3, {1, 1, 1}},
                        {2, 64, 112, 6, 17, 20, 3, {0, 1, 1}},
                        {1, 272, 32, 2, 16, 16, 2, {1, 0, 2}},
                        {3, 32, 16, 19, 12, 9, 3, {2, 2, 0}}}) {
    const Shape w_sizes{c.out, c.in, c.taps, 3, 3};
    ConvShape shape;
    for (int i = 0; i < 3; ++i) shape.padding[i] = c.padding[i];
    for (bool weight_last : {false, true}) {
      const Tensor x = to_channels_last(randn({c.batch, c.in, c.frames, c.height, c.width})), b = randn({c.out});
      Tensor w = randn(w_sizes);
      if (weight_last) w = to_channels_last(w);
      auto results = [&] {
        const Tensor y = conv_output(x, w, b, shape);
        return Tensors{y, conv_input_gradient(y, w, x.shape(), shape), conv_weight_gradient(x, y, w_sizes, shape)};
      };
      pin_provider("*", "native");
      const Tensors direct = results();
      pin_provider("*", "winograd");
      const Tensors got = results();
      unpin_providers();
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(amax(abs(got[i] - direct[i])).item() / amax(abs(direct[i])).item(), 1e-5) << "result " << i;
    }
  }
}

// Beside what rounding the result adds there is next to nothing: tiles of 4x4 and 8x8, ragged ones, several rounds of
// them, half strips, frames.
TEST(Winograd, bfloat16_is_the_exact_result_rounded) {
  autograd::NoGrad off;
  manual_seed(6);
  struct Layer {
    Shape x, w, padding;
  };
  for (const Layer& l : {Layer{{2, 64, 32, 32}, {80, 64, 3, 3}, {1, 1}},
                         {{1, 336, 61, 50}, {32, 336, 3, 3}, {0, 2}},
                         {{1, 32, 97, 130}, {48, 32, 3, 3}, {1, 0}},
                         {{3, 96, 9, 12}, {32, 96, 3, 3}, {1, 1}},
                         {{1, 64, 5, 40, 33}, {32, 64, 3, 3, 3}, {2, 1, 1}}}) {
    ConvShape shape;
    for (size_t i = 0; i < size_t(l.padding.size()); ++i) shape.padding[i] = l.padding[i];
    const Tensor x = to_channels_last(randn(l.x)).to(kBFloat16), w = randn(l.w).to(kBFloat16);
    const Tensor dy = to_channels_last(randn(conv_output(x, w, {}, shape).shape())).to(kBFloat16);
    auto results = [&](DType t) {
      return Tensors{conv_output(x.to(t), w.to(t), {}, shape), conv_input_gradient(dy.to(t), w.to(t), l.x, shape)};
    };
    const Tensors direct = results(kFloat64), got = results(kBFloat16);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LT(amax(abs(got[i].to(kFloat64) - direct[i]) - abs(direct[i]) / 256).item() / amax(abs(direct[i])).item(),
                1e-4)
          << "result " << i << " of " << str(l.x) << " " << str(l.w);
  }
}

// Blocks of pixels with ragged edges; frames that no frame of the other side meets; strides.
TEST(ConvRows, gradients_equal_the_direct_sum) {
  autograd::NoGrad off;
  manual_seed(4);
  struct Layer {
    Shape x, w, stride, padding;
  };
  for (const Layer& l : {Layer{{2, 64, 5, 23, 31}, {96, 64, 3, 1, 1}, {1, 1, 1}, {1, 0, 0}},
                         {{1, 32, 1, 40, 11}, {32, 32, 3, 1, 1}, {1, 1, 1}, {2, 0, 0}},
                         {{3, 128, 4, 16, 16}, {32, 128, 4, 1, 1}, {1, 1, 1}, {0, 0, 0}},
                         {{1, 32, 2, 7, 9}, {160, 32, 5, 1, 1}, {1, 1, 1}, {4, 0, 0}},
                         {{2, 32, 5, 11, 14}, {64, 32, 3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
                         {{1, 64, 6, 8, 300}, {32, 64, 2, 3, 5}, {2, 1, 3}, {1, 0, 4}},
                         {{1, 32, 2, 3, 1}, {32, 32, 2, 3, 3}, {1, 2, 2}, {1, 2, 2}}}) {
    ConvShape shape;
    for (int i = 0; i < 3; ++i) shape.stride[i] = l.stride[i], shape.padding[i] = l.padding[i];
    for (bool weight_last : {false, true}) {
      const Tensor x = to_channels_last(randn(l.x));
      Tensor w = randn(l.w);
      if (weight_last) w = to_channels_last(w);
      const Tensor dy = to_channels_last(randn(conv_output(x, w, {}, shape).shape()));
      pin_provider("*", "native");
      auto results = [&](DType t) {
        return Tensors{conv_input_gradient(dy.to(t), w.to(t), l.x, shape),
                       conv_weight_gradient(x.to(t), dy.to(t), l.w, shape)};
      };
      const Tensors got = results(kFloat32), direct = results(kFloat64);
      unpin_providers();
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(amax(abs(got[i] - direct[i])).item() / amax(abs(direct[i])).item(), 1e-5) << "result " << i;
    }
  }
}

// Tiles of 4, 2 and 1 frames and of 4 that end early; blocks of channels and of tiles, half strips, every padding,
// odd sides, memory of either order.
TEST(WinogradOverTime, equals_the_direct_sum) {
  autograd::NoGrad off;
  manual_seed(5);
  struct Layer {
    Shape x, w, padding;
  };
  std::set<std::string> offered;
  for (const KernelTableBase* table :
       {static_cast<const KernelTableBase*>(&conv_forward), static_cast<const KernelTableBase*>(&conv_backward_data),
        static_cast<const KernelTableBase*>(&conv_backward_weights)})
    for (int i = 0; i < table->count(DeviceType::CPU); ++i)
      if (std::string(table->entry(DeviceType::CPU, i).provider) == "winograd") offered.insert(table->name());
  for (const Layer& l : {Layer{{1, 64, 10, 9, 23}, {96, 64, 3, 1, 1}, {0, 0, 0}},
                         {{2, 32, 5, 7, 33}, {48, 32, 3, 1, 1}, {1, 0, 0}},
                         {{1, 272, 7, 5, 8}, {32, 272, 3, 1, 1}, {2, 0, 0}},
                         {{1, 32, 9, 21, 30}, {64, 32, 3, 3, 3}, {1, 1, 1}},
                         {{2, 16, 10, 16, 19}, {48, 16, 3, 3, 3}, {0, 0, 2}},
                         {{1, 144, 6, 18, 37}, {32, 144, 3, 3, 3}, {2, 2, 0}}}) {
    ConvShape shape;
    for (int i = 0; i < 3; ++i) shape.stride[i] = i > 0 && l.w[3] == 3 ? 2 : 1, shape.padding[i] = l.padding[i];
    for (bool last : {false, true}) {
      auto laid = [&](const Tensor& t) { return last ? to_channels_last(t) : t; };
      const Tensor x = laid(randn(l.x)), w = laid(randn(l.w)), b = randn({l.w[0]}),
                   dy = laid(randn(conv_output(x, w, {}, shape).shape())), residual = laid(randn(dy.shape()));
      auto results = [&](DType t) {
        return Tensors{
            conv_output(x.to(t), w.to(t), b.to(t), shape),
            t == kFloat32 ? conv_plus_residual(x, w, {}, residual, shape)
                          : conv_output(x.to(t), w.to(t), {}, shape) + residual.to(t),
            conv_input_gradient(dy.to(t), w.to(t), l.x, shape),
            conv_weight_gradient(x.to(t), dy.to(t), l.w, shape),
        };
      };
      const Tensors direct = results(kFloat64);
      std::set<std::string> of_layer;
      Tensors got;
      {
        KernelWatcher watcher([&](const KernelCall& call) {
          if (std::string(call.entry.provider) == "winograd") of_layer.insert(call.table.name());
        });
        got = results(kFloat32);
      }
      EXPECT_EQ(of_layer, offered) << str(l.x) << " " << str(l.w);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(amax(abs(got[i] - direct[i])).item() / amax(abs(direct[i])).item(), 3e-6)
            << "result " << i << " of " << str(l.x) << " " << str(l.w);
    }
  }
}

// Where Winograd's algorithm would multiply more than a direct sum, it is not taken: frames that meet few others.
TEST(WinogradOverTime, leaves_few_frames_to_others) {
  autograd::NoGrad off;
  bool taken = false;
  {
    KernelWatcher watcher([&](const KernelCall& call) { taken |= std::string(call.entry.provider) == "winograd"; });
    const Tensor x = to_channels_last(randn({1, 32, 1, 16, 16})), w = randn({32, 32, 3, 1, 1});
    ConvShape shape;
    shape.padding[0] = 1;
    conv_output(x, w, {}, shape);
  }
  EXPECT_FALSE(taken);
}

// Of a weight that has to be laid out first, the packed copy is not that of the one before, which lay in the same
// memory.
TEST(Conv, weights_in_any_layout_are_not_taken_for_each_other) {
  autograd::NoGrad off;
  manual_seed(7);
  const Tensor x = randn({1, 32, 40});
  for (int i = 0; i < 4; ++i) {
    const Tensor w = randn({3, 32, 24}).permute({2, 1, 0});
    EXPECT_LT(amax(abs(conv1d(x, w) - conv1d(x.to(kFloat64), w.to(kFloat64)))).item(), 1e-3);
    const Tensor up = randn({3, 24, 32}).permute({2, 1, 0});
    const Tensor wide = conv_input_gradient(x.to(kFloat64), up.to(kFloat64), {1, 24, 42}, {});
    EXPECT_LT(amax(abs(conv_input_gradient(x, up, {1, 24, 42}, {}) - wide)).item(), 1e-3);
  }
}

}  // namespace sf::test
