#include "scaffolding/data/transforms.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/data/picture_kernel.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_packed.h"

namespace sf::data {
namespace {

Tensor noise(const Shape& shape, uint32_t s = 99) {
  Tensor t = empty(shape, kUInt8);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<uint8_t>()[i] = uint8_t((s = s * 1664525 + 1013904223) >> 24);
  return t;
}
Tensor applied(const TransformPtr& t, const Tensor& x, uint64_t seed = 1) {
  SampleRandom r(seed);
  return (*t)(x, r);
}
template <class E = ValueError> void refused(const std::string& text, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "was accepted; expected '" << text << "'";
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

// FNV-1a of 64 bits, as make_golden_data.py has it.
uint64_t checksum(const Tensor& bytes) {
  uint64_t h = 0xCBF29CE484222325;
  for (int64_t i = 0; i < bytes.numel(); ++i) h = (h ^ bytes.data<uint8_t>()[i]) * 0x100000001B3;
  return h;
}

TEST(Resize, equals_pillow_bit_for_bit) {
  const std::string path = SF_SOURCE_DIR "/tests/golden/data/resize.safetensors.xz";
  io::SafetensorsFile golden(io::Bytes::take(test::unpacked(path), path));
  int seen = 0;
  for (auto& e : golden.entries()) {
    size_t first = e.name.find('.'), second = e.name.find('.', first + 1);
    if (second == std::string::npos) continue;
    const Tensor in = golden.get(e.name.substr(0, first) + ".input").permute({2, 0, 1});
    const std::string size = e.name.substr(second + 1);  // "12x18"
    const int64_t height = std::stoll(size), width = std::stoll(size.substr(size.find('x') + 1));
    const Tensor got = resize(in, height, width, filter(e.name.substr(first + 1, second - first - 1)));
    EXPECT_EQ(checksum(got.permute({1, 2, 0}).contiguous()), uint64_t(golden.get(e.name).item<int64_t>())) << e.name;
    ++seen;
  }
  EXPECT_EQ(seen, 4 * 6 * 6);
}

TEST(Resize, every_instruction_set_gives_the_same_bytes) {
  const int32_t first[] = {0, 3, 5}, count[] = {4, 4, 3},
                weight[] = {1 << 20, 1 << 20,  1 << 20, 1 << 20, -1 << 19, 5 << 19,
                            5 << 19, -1 << 19, 1 << 21, 1 << 20, 1 << 20,  0};
  for (int C = 1; C <= 4; ++C)
    for (bool along_rows : {false, true}) {
      Tensor in = noise({8, 8, C});
      std::vector<std::vector<uint8_t>> results;
      for (int i = 0; i < picture_resize.count(DeviceType::CPU); ++i) {
        std::vector<uint8_t> out(size_t(8 * 3 * C));
        ResizePass p{in.data<uint8_t>(), out.data(), 8, 8, 3, C, along_rows, first, count, weight, 4};
        reinterpret_cast<void (*)(const ResizePass&)>(picture_resize.entry(DeviceType::CPU, i).fn)(p);
        results.push_back(out);
      }
      for (auto& r : results) EXPECT_EQ(r, results[0]);
    }
}

// Weights that are eighths and such have kernels of their own;
// what they give is what the formula of picture_kernel.h says.
TEST(Resize, short_weights_are_exact) {
  for (auto [name, factor] :
       {std::pair{"bilinear", 2}, {"bilinear", 4}, {"box", 2}, {"box", 8}, {"bicubic", 2}, {"bilinear", 1}})
    for (int C = 1; C <= 4; ++C)
      for (bool along_rows : {false, true}) {
        int64_t out_size = 13, in_size = out_size * factor, rows = 70, taps = (3 * factor + 3) / 4 * 4;
        std::vector<int32_t> first(out_size), count(out_size), weight(size_t(out_size * taps));
        for (int64_t o = 0; o < out_size; ++o) {
          double centre = (double(o) + 0.5) * factor, sum = 0;
          int64_t reach = std::string(name) == "box" ? factor / 2 : factor;
          first[size_t(o)] = int32_t(std::max<int64_t>(0, int64_t(centre) - reach));
          count[size_t(o)] = int32_t(std::min<int64_t>(in_size, int64_t(centre) + reach) - first[size_t(o)]);
          auto value = [&](int64_t k) {
            double d = std::abs((double(first[size_t(o)] + k) + 0.5 - centre) / factor);
            return std::string(name) == "box"       ? 1
                   : std::string(name) == "bicubic" ? (1.5 * d - 2.5) * d * d + 1
                                                    : 1 - d;
          };
          for (int32_t k = 0; k < count[size_t(o)]; ++k) sum += value(k);
          for (int32_t k = 0; k < count[size_t(o)]; ++k)
            weight[size_t(o * taps + k)] = int32_t(std::lround(value(k) / sum * (1 << 22)));
        }
        Tensor in = noise({rows, in_size, C}, uint32_t(factor * 10 + C));
        for (int64_t i = 0; i < in.numel(); i += 7) in.data<uint8_t>()[i] = 255;
        for (int i = 0; i < picture_resize.count(DeviceType::CPU); ++i) {
          std::vector<uint8_t> out(size_t(rows * out_size * C));
          ResizePass p{in.data<uint8_t>(), out.data(),   rows,         in_size,       out_size, C,
                       along_rows,         first.data(), count.data(), weight.data(), int(taps)};
          reinterpret_cast<void (*)(const ResizePass&)>(picture_resize.entry(DeviceType::CPU, i).fn)(p);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t o = 0; o < out_size; ++o)
              for (int64_t c = 0; c < C; ++c) {
                int64_t sum = 1 << 21;
                for (int32_t k = 0; k < count[size_t(o)]; ++k) {
                  int64_t at = first[size_t(o)] + k;
                  sum += int64_t(in.data<uint8_t>()[(along_rows ? at * rows + r : r * in_size + at) * C + c]) *
                         weight[size_t(o * taps + k)];
                }
                ASSERT_EQ(out[size_t((along_rows ? o * rows + r : r * out_size + o) * C + c)],
                          std::clamp<int64_t>(sum >> 22, 0, 255))
                    << name << " " << factor << ", " << C << " channels, kernel " << i << ", " << r << " " << o;
              }
        }
      }
}

TEST(Resize, refuses_what_it_cannot_resize) {
  refused("must be [C, H, W]", [] { resize(noise({5, 4, 4}), 2, 2); });
  refused("positive", [] { resize(noise({3, 4, 4}), 0, 2); });
  refused<TypeError>("must be uint8", [] { resize(zeros({3, 4, 4}), 2, 2); });
  refused("interpolation must be", [] { filter("cubic"); });
}

TEST(Transforms, a_single_size_is_the_shorter_side) {
  EXPECT_EQ(applied(transforms::resize({10}), noise({3, 20, 45})).shape(), (Shape{3, 10, 22}));
  EXPECT_EQ(applied(transforms::resize({10}), noise({3, 45, 20})).shape(), (Shape{3, 22, 10}));
  EXPECT_EQ(applied(transforms::resize({7, 5}), noise({3, 45, 20}).to(kFloat32)).shape(), (Shape{3, 7, 5}));
}

TEST(Transforms, crops_and_flips_move_pixels) {
  Tensor x = noise({3, 6, 8});
  EXPECT_EQ(applied(transforms::center_crop({4}), x).to_vector(), x.slice(1, 1, 5).slice(2, 2, 6).to_vector());
  Tensor mirrored = applied(transforms::random_horizontal_flip(1), x),
         upside = applied(transforms::random_vertical_flip(1), x);
  Tensor as_float = applied(transforms::random_horizontal_flip(1), x.to(kFloat32));
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(mirrored.select(2, i).to_vector(), x.select(2, 7 - i).to_vector());
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(upside.select(1, i).to_vector(), x.select(1, 5 - i).to_vector());
  EXPECT_EQ(as_float.to_vector(), mirrored.to_vector());
  EXPECT_TRUE(applied(transforms::random_horizontal_flip(0), x).is_same(x));
  refused("must be at least 9 x 9", [&] { applied(transforms::random_crop({9}), x); });
  EXPECT_EQ(applied(transforms::random_crop({9}, 2), x).shape(), (Shape{3, 9, 9}));
}

TEST(Transforms, random_crops_reach_every_place_and_follow_the_seed) {
  Tensor x = noise({1, 3, 3});
  std::map<std::vector<double>, int> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Tensor y = applied(transforms::random_crop({2}), x, seed);
    EXPECT_EQ(y.to_vector(), applied(transforms::random_crop({2}), x, seed).to_vector());
    ++seen[y.to_vector()];
  }
  EXPECT_EQ(seen.size(), 4u);
  for (auto& [crop, n] : seen) EXPECT_NEAR(n, 100, 40);
}

TEST(Transforms, composite_is_the_formula) {
  Tensor x = noise({4, 5, 7});
  Tensor y = applied(transforms::composite(transforms::Colour{10, 200, 255}), x);
  ASSERT_EQ(y.shape(), (Shape{3, 5, 7}));
  const double colour[] = {10, 200, 255};
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 35; ++i) {
      double v = x[c][i / 7][i % 7].item(), a = x[3][i / 7][i % 7].item();
      EXPECT_EQ(y[c][i / 7][i % 7].item(), std::floor((v * a + colour[c] * (255 - a)) / 255 + 0.5));
    }
  EXPECT_NE(applied(transforms::composite({}), x, 1).to_vector(), applied(transforms::composite({}), x, 2).to_vector());
  EXPECT_EQ(applied(transforms::composite({}), x, 1).to_vector(), applied(transforms::composite({}), x, 1).to_vector());
  refused("with alpha", [] { applied(transforms::composite({}), noise({3, 4, 4})); });
}

TEST(Transforms, to_float_and_normalize_join) {
  Tensor x = noise({3, 5, 4});
  auto both = transforms::compose({transforms::to_float(), transforms::normalize({0.5, 0.4, 0.3}, {0.5, 0.25, 0.125})});
  EXPECT_EQ(both->str(), "Compose([ToFloat(), Normalize([0.5, 0.4, 0.3], [0.5, 0.25, 0.125])])");
  Tensor y = applied(both, x), apart = applied(transforms::normalize({0.5, 0.4, 0.3}, {0.5, 0.25, 0.125}),
                                               applied(transforms::to_float(), x));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.dtype(), kFloat32);
  auto a = y.to_vector(), b = apart.to_vector();
  for (size_t i = 0; i < a.size(); ++i) {
    size_t c = i / 20;
    double m[] = {0.5, 0.4, 0.3}, s[] = {0.5, 0.25, 0.125};
    EXPECT_NEAR(a[i], (x.to_vector()[i] / 255 - m[c]) / s[c], 2e-6);
    EXPECT_NEAR(a[i], b[i], 2e-6);
  }
  EXPECT_EQ(applied(transforms::compose({transforms::to_float(), transforms::normalize({0.5}, {0.5})}), x).shape(),
            x.shape());
  refused("have 2 channels", [&] {
    applied(transforms::normalize({0.5, 0.5}, {1, 1}), applied(transforms::to_float(), x));
  });
  refused<TypeError>("must be a float tensor", [&] { applied(transforms::normalize({0.5}, {1}), x); });
  refused<TypeError>("must be uint8", [&] { applied(transforms::to_float(), x.to(kFloat32)); });
  refused("must not be zero", [] { transforms::normalize({0}, {0}); });
}

TEST(Transforms, pad_puts_a_border_around) {
  Tensor y = applied(transforms::pad({1, 2, 3, 4}, 9), noise({3, 5, 6}));
  ASSERT_EQ(y.shape(), (Shape{3, 11, 10}));
  EXPECT_EQ(y[1][0][0].item(), 9);
  EXPECT_EQ(y.slice(1, 2, 7).slice(2, 1, 7).to_vector(), noise({3, 5, 6}).to_vector());
  EXPECT_EQ(applied(transforms::pad({2}), noise({3, 5, 6})).shape(), (Shape{3, 9, 10}));
}

TEST(Transforms, buckets_hold_the_area) {
  AspectBuckets b(512 * 512, 64, 2);
  for (auto& s : b.sizes()) {
    EXPECT_EQ(s.height % 64 + s.width % 64, 0);
    EXPECT_LE(s.height * s.width, 512 * 512);
    EXPECT_LE(double(std::max(s.height, s.width)) / double(std::min(s.height, s.width)), 2);
  }
  auto near = [&](int64_t h, int64_t w) { return b.sizes()[b.nearest(h, w)]; };
  EXPECT_EQ(near(1000, 1000).height, 512);
  EXPECT_EQ(near(1000, 1000).width, 512);
  EXPECT_LT(near(500, 1000).height, near(500, 1000).width);
  EXPECT_GT(near(3000, 1000).height, near(3000, 1000).width);
  EXPECT_EQ(b.sizes()[0].height, b.sizes().back().width);  // symmetric
  auto t = transforms::to_bucket(AspectBuckets(64 * 64, 16), true);
  Tensor y = applied(t, noise({3, 50, 99}));
  EXPECT_EQ(y.size(1) % 16 + y.size(2) % 16, 0);
  EXPECT_GT(y.size(2), y.size(1));
  refused("must hold a square", [] { AspectBuckets(100, 64); });
}

TEST(Transforms, random_resized_crop_has_its_size) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(applied(transforms::random_resized_crop({8, 6}), noise({3, 40, 9}), seed).shape(), (Shape{3, 8, 6}));
    EXPECT_EQ(applied(transforms::random_resized_crop({8}), noise({3, 1, 1}), seed).shape(), (Shape{3, 8, 8}));
  }
}

}  // namespace
}  // namespace sf::data
