// The ways in which CUDA kernels move tensors (vectors, tiles, single elements), each with layouts, widths and
// addresses that take it, on a GPU or in the emulator against the CPU. The samples of the ops are smaller than a tile.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/embedding/embedding.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/modulate/modulate.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/rope/kernel.h"
#include "scaffolding/ops/rope/rope.h"
#include "scaffolding/ops/unfold/unfold.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

constexpr DType kTypes[] = {kFloat32, kFloat16, kBFloat16};

// Tensors in the memory of one device; a view of one is made there,
// so that addresses and strides are those of the view.
using On = std::function<Tensor(const Tensor&)>;

class CudaLayouts : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(1);
  }
  // f(on) on the CPU and there: all results equal, up to `tolerance` of their size or of one.
  static void same(double tolerance, const std::function<Tensors(const On&)>& f) {
    Tensors here = f([](const Tensor&t) { return t; }), there = f([](const Tensor&t) { return t.to(Device::CUDA); });
    ASSERT_EQ(here.size(), there.size());
    for (size_t i = 0; i < here.size(); ++i) {
      ASSERT_EQ(here[i].shape(), there[i].shape());
      ASSERT_EQ(name(here[i].dtype()), name(there[i].dtype()));
      auto a = here[i].to_vector(), b = there[i].cpu().to_vector();
      int wrong = 0;
      for (size_t k = 0; k < a.size() && wrong < 3; ++k) {
        bool equal = a[k] == b[k] || (a[k] != a[k] && b[k] != b[k]) ||
                     std::abs(a[k] - b[k]) <= tolerance * std::max(1., std::abs(a[k]));
        if (!equal)
          ++wrong, ADD_FAILURE() << "result " << i << " of " << str(here[i].shape()) << " " << name(here[i].dtype())
                                 << " at " << k << ": " << b[k] << ", not " << a[k];
      }
    }
  }
};

Tensor whole(const Shape& size) { return randint(0, 40, size); }

// ---- copies

TEST_F(CudaLayouts, transposed_copies_of_every_item_size) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kInt64})
    for (Shape s : {Shape{64, 64}, Shape{72, 136}, Shape{16, 144}, Shape{17, 45}, Shape{130, 16}, Shape{33, 1},
                    Shape{5, 200}, Shape{0, 64}}) {
      Tensor x = whole(s).to(t);
      same(0, [&](const On& on) { return Tensors{contiguous(on(x).transpose(0, 1))}; });
    }
}

TEST_F(CudaLayouts, images_change_their_order_of_dimensions) {
  for (DType t : {kBFloat16, kFloat32})
    for (int64_t channels : {3, 16, 20, 72}) {
      Tensor x = randn({2, channels, 9, 8}).to(t);
      same(0, [&](const On& on) {
        Tensor nhwc = on(x).contiguous(MemoryFormat::ChannelsLast);
        return Tensors{nhwc, contiguous(nhwc), nhwc.slice(1, 1, channels).contiguous()};
      });
    }
  Tensor heads = randn({2, 37, 3, 24}), video = randn({2, 20, 3, 5, 16});
  same(0, [&](const On& on) {
    return Tensors{contiguous(on(heads).transpose(1, 2)), contiguous(on(heads).permute({0, 2, 3, 1})),
                   contiguous(on(video).permute({4, 0, 2, 3, 1}))};
  });
}

TEST_F(CudaLayouts, transposed_copies_convert) {
  for (DType from : kTypes)
    for (DType to : {kFloat32, kFloat16, kBFloat16, kFloat64, kInt32})
      for (Shape s : {Shape{72, 64}, Shape{35, 33}}) {
        Tensor x = (randn(s) * 9).to(from);
        same(0, [&](const On& on) {
          return Tensors{contiguous(to_dtype(on(x).transpose(0, 1), to)),
                         contiguous(to_dtype(on(x), to).transpose(0, 1))};
        });
      }
}

TEST_F(CudaLayouts, views_that_begin_anywhere) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kFloat64}) {
    Tensor x = whole({67, 40}).to(t), line = whole({1037}).to(t);
    same(0, [&](const On& on) {
      Tensor y = on(x), l = on(line);
      Tensors all{y.slice(0, 1),     y.slice(1, 1), y.slice(1, 0, 24),   y.slice(1, 8, 24),   y.slice(1, 4, 36),
                  y.slice(1, 3, 35), l.slice(0, 1), l.slice(0, 3, 1030), l.slice(0, 0, {}, 2)};
      for (Tensor& v : all) v = contiguous(v);
      for (const Tensor& half : y.chunk(2, 1)) all.push_back(contiguous(half));
      all.push_back(contiguous(y.slice(1, 1).transpose(0, 1)));
      Tensor target = clone(y);
      target.slice(1, 8, 32).copy_(y.slice(1, 0, 24));
      target.slice(0, 1, 2).copy_(y.slice(0, 5, 6));
      all.push_back(target);
      all.push_back(contiguous(y.slice(0, 0, 1).expand({40, 40})));
      all.push_back(contiguous(y.slice(1, 0, 1).expand({67, 48})));
      return all;
    });
  }
}

// ---- pointwise

TEST_F(CudaLayouts, operands_that_broadcast_or_are_strided) {
  for (DType t : kTypes) {
    double one = t == kFloat32 ? 1e-6 : 0;  // one operation, rounded once
    Tensor x = randn({2, 24, 5, 6}).to(t), bias = randn({24}).to(t), tokens = randn({3, 7, 40}).to(t),
           row = randn({3, 1, 40}).to(t), column = randn({3, 7, 1}).to(t);
    same(one, [&](const On& on) {
      Tensor nhwc = on(x).contiguous(MemoryFormat::ChannelsLast), b = on(bias), k = on(tokens), r = on(row),
             c = on(column);
      Tensors halves = k.chunk(2, 2);
      return Tensors{nhwc + b.reshape({24, 1, 1}),
                     on(x) + b.reshape({24, 1, 1}),
                     nhwc * on(x),
                     k + r,
                     k * c,
                     c + r,
                     halves[0] * halves[1],
                     k.slice(2, 1) + r.slice(2, 1),
                     k.slice(2, 0, 16) + k.slice(2, 16, 32),
                     k.slice(2, 3, 11) * r.slice(2, 8, 16),
                     k.slice(0, 1) + k.slice(0, 0, 2),
                     k + k.slice(2, 5, 6)};
    });
  }
}

TEST_F(CudaLayouts, many_vectors_of_a_thread_and_a_rest) {
  for (DType t : kTypes)
    for (int64_t n : {int64_t(0), int64_t(1), int64_t(7), int64_t(2049), int64_t(4224) * 256 * 4 + 1029}) {
      if (n > 5000 && t != kFloat32) continue;
      Tensor x = randn({n}).to(t);
      same(t == kFloat32 ? 1e-6 : 0, [&](const On& on) { return Tensors{on(x) * 3, on(x) + on(x)}; });
    }
}

// Beyond what the harness's random numbers reach: saturated ends, infinities, NaN, the smallest numbers.
TEST_F(CudaLayouts, activations_of_16_bits_are_within_a_step_of_exact_ones) {
  std::vector<double> v{INFINITY, NAN, 0, -0.0, 1e-7, -1e-5, 3e4, -3e4, 88.5, -88.5, 127, -127};
  for (double x = -20; x < 20; x += 0.0625) v.push_back(x);
  for (double x = 1e-6; x < 4; x *= 1.1) v.push_back(x), v.push_back(-x);
  for (DType t : {kFloat16, kBFloat16}) {
    Tensor x = tensor(v, {int64_t(v.size())}, kFloat64).to(t), exact = x.to(kFloat64);
    // 2e-7: float32 beside 1, as in PyTorch's
    double step = t == kFloat16 ? 1.0 / 1024 : 1.0 / 128, smallest = t == kFloat16 ? 6e-8 : 2e-7;
    std::pair<const char*, std::function<Tensor(const Tensor&)>> all[] = {
        {"silu", [](const Tensor& z) { return silu(z); }},
        {"sigmoid", [](const Tensor& z) { return sigmoid(z); }},
        {"tanh", [](const Tensor& z) { return tanh(z); }},
        {"gelu", [](const Tensor& z) { return gelu(z); }},
        {"gelu_tanh", [](const Tensor& z) { return gelu(z, "tanh"); }},
        {"rsqrt", [](const Tensor& z) { return rsqrt(z); }}};
    for (auto& [what, f] : all) {
      auto got = f(x.to(Device::CUDA)).cpu().to_vector(), want = f(exact).to_vector(), at = exact.to_vector();
      for (size_t i = 0; i < got.size(); ++i) {
        bool equal = got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]) ||
                     std::abs(got[i] - want[i]) <= std::abs(want[i]) * step + smallest * std::max(1., std::abs(at[i]));
        EXPECT_TRUE(equal) << what << "(" << at[i] << ") in " << name(t) << " is " << got[i] << ", not " << want[i];
      }
    }
  }
}

// ---- joined, enlarged, rotated, indexed

TEST_F(CudaLayouts, rows_are_joined) {
  for (DType t : {kUInt8, kBFloat16, kFloat32})
    for (Shape widths : {Shape{8, 24}, Shape{3, 5}, Shape{16, 0, 32}, Shape{1, 2, 3, 4, 5, 6, 7}, Shape{320},
                         Shape{16, 16, 16, 16, 16}}) {
      Tensors pieces;
      for (int64_t w : widths) pieces.push_back(whole({97, w}).to(t));
      same(0, [&](const On& on) {
        Tensors moved, whole;
        for (const Tensor& p : pieces) moved.push_back(on(p)), whole.push_back(on(p).slice(0, 1));
        return Tensors{cat(moved, 1), cat(whole, 1)};
      });
    }
  Tensor a = randn({2, 16, 5, 4}), b = randn({2, 8, 5, 4});
  same(0, [&](const On& on) {
    return Tensors{
        cat({on(a).contiguous(MemoryFormat::ChannelsLast), on(b).contiguous(MemoryFormat::ChannelsLast)}, 1)};
  });
  same(0, [&](const On& on) {
    Tensor x = on(a).detach().requires_grad_(), y = on(b).detach().requires_grad_();
    Tensor z = cat({x, y}, 1);
    sum(z * z).backward();
    Tensor w = on(a).detach().requires_grad_();
    Tensors halves = w.chunk(2, 1);
    sum(halves[0] * halves[1]).backward();
    return Tensors{x.grad(), y.grad(), w.grad()};
  });
  Tensor m = randn({3, 9, 1100});
  same(0, [&](const On& on) { return Tensors{tril(on(m)), triu(on(m), 3), tril(on(m), -2)}; });
}

TEST_F(CudaLayouts, images_are_enlarged_and_pooled) {
  for (DType t : kTypes)
    for (int64_t channels : {16, 5})
      for (bool last : {true, false}) {
        Tensor x = randn({2, channels, 6, 5}).to(t);
        auto layout = [&](const Tensor& z) { return last ? z.contiguous(MemoryFormat::ChannelsLast) : z; };
        double tolerance = t == kFloat32 ? 1e-5 : t == kFloat16 ? 4e-3 : 3e-2;
        same(0, [&](const On& on) {
          return Tensors{interpolate(layout(on(x)), {}, Floats{2.0, 2.0}, "nearest"),
                         max_pool2d(layout(on(x)), {3}, {2}, {1})};
        });
        same(tolerance, [&](const On& on) {
          Tensors all;
          for (const char* how : {"nearest", "bilinear", "area"}) {
            Tensor z = layout(on(x)).detach().requires_grad_();
            Tensor y = interpolate(z, Shape{12, 7}, {}, how);
            sum(y * y).backward();
            all.push_back(y.detach()), all.push_back(z.grad());
          }
          Tensor z = layout(on(x)).detach().requires_grad_();
          sum(max_pool2d(z, {2})).backward();
          all.push_back(z.grad());
          return all;
        });
      }
  Tensor x = randn({2, 3, 9, 8});
  same(1e-5, [&](const On& on) {
    Tensor z = on(x).detach().requires_grad_();
    Tensor columns = unfold(z, {3, 2}, {2, 1}, {1, 0}, {2, 3});
    sum(columns * columns).backward();
    return Tensors{columns.detach(), z.grad()};
  });
}

TEST_F(CudaLayouts, rows_are_scaled_and_shifted) {
  for (DType t : kTypes)
    for (int64_t cols : {64, 19}) {
      Tensor x = randn({2, 5, cols}).to(t), scale = randn({2, cols}).to(t), shift = randn({2, cols}).to(t),
             gate = randn({1, cols}).to(t), all = randn({1, 5, cols}).to(t);
      double tolerance = t == kFloat32 ? 1e-5 : t == kFloat16 ? 2e-3 : 1.6e-2;
      same(tolerance, [&](const On& on) {
        return Tensors{modulate(on(x), on(scale), on(shift)), gated_residual(on(x), on(scale), on(x)),
                       gated_residual(on(all), on(gate), on(all))};
      });
    }
}

TEST_F(CudaLayouts, positions_rotate_in_both_orders_and_tables) {
  for (DType t : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for (int64_t rotated : {32, 20, 16})
      for (bool interleaved : {true, false})
        for (bool paired : {true, false})
          for (int64_t from : {0, 1}) {
            DType table = t == kFloat64 ? kFloat64 : kFloat32;
            Tensor x = randn({2, 7, 3, 40}).to(t), cos = randn({7, 1, paired ? rotated / 2 : rotated}).to(table),
                   sin = randn({7, 1, paired ? rotated / 2 : rotated}).to(table);
            double tolerance = t == kFloat64 ? 1e-14 : t == kFloat32 ? 1e-5 : t == kFloat16 ? 2e-3 : 1.6e-2;
            same(tolerance, [&](const On& on) {
              Tensors all;
              for (bool inverse : {false, true}) {
                Tensor in = on(x).slice(3, from), c = on(cos), s = on(sin),
                       out = zeros({2, 7, 3, 40}, t, in.device()).slice(3, from);
                auto tables = [&](const Tensor& z) { return z.expand({2, 7, 3, z.shape().back()}); };
                RopeApply call{in, tables(c), tables(s), out, interleaved, paired, inverse};
                rope_apply.find(in.device(), call)(call);
                Tensor self = clone(in).transpose(1, 2);
                RopeApply again{self,   tables(c).transpose(1, 2), tables(s).transpose(1, 2), self, interleaved, paired,
                                inverse};
                rope_apply.find(in.device(), again)(again);
                all.push_back(out), all.push_back(self);
              }
              return all;
            });
          }
}

TEST_F(CudaLayouts, heads_that_share_their_angles) {
  for (DType t : {kFloat32, kBFloat16})
    for (bool interleaved : {true, false})
      for (bool heads_first : {true, false}) {
        Tensor x = randn({1, 66, 64, 128}).to(t), cos = randn({66, 96}), sin = randn({66, 96});
        same(t == kFloat32 ? 1e-5 : 1.6e-2, [&](const On& on) {
          auto turn = [&](const Tensor& z) { return heads_first ? z.transpose(1, 2) : z; };
          Tensor in = turn(on(x)), out = zeros(in.shape(), t, in.device()), c = on(cos).reshape({66, 1, 96}),
                 s = on(sin).reshape({66, 1, 96});
          RopeApply call{
              in, turn(c.expand({1, 66, 64, 96})), turn(s.expand({1, 66, 64, 96})), out, interleaved, false, false};
          rope_apply.find(in.device(), call)(call);
          return Tensors{out};
        });
      }
}

TEST_F(CudaLayouts, rows_are_looked_up_and_added) {
  for (DType t : {kUInt8, kBFloat16, kFloat32})
    for (int64_t cols : {32, 7})
      for (int64_t from : {0, 1}) {
        Tensor table = whole({50, cols}).to(t), at = randint(0, 50, {3, 41}), few = randint(0, 4, {900});
        Tensor rows = whole({900, cols}).to(t);
        double tolerance = t == kBFloat16 ? 1e-2 : 1e-5;
        same(0, [&](const On& on) {
          Tensor w = on(table).slice(1, from);
          return Tensors{index_select(w, 0, on(at).reshape({123})), index(w, {on(at)}),
                         index_select(w, 1, on(tensor({2., 0., 5.}, kInt64))), embedding(on(at), w)};
        });
        same(tolerance, [&](const On& on) {
          Tensor w = on(table).slice(1, from), r = on(rows).slice(1, from);
          return Tensors{index_add(w, 0, on(few), r), index_copy(w, 0, on(few), r), index_put(w, {on(few)}, r, true),
                         index_put(w, {on(few)}, r)};
        });
      }
}

}  // namespace
}  // namespace sf
