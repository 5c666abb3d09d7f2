// Changes of colour, in torchvision's arithmetic: a uint8 image is computed in float32 and cut off, not rounded.
#include <algorithm>
#include <cmath>

#include "scaffolding/data/transforms.h"
#include "scaffolding/ops/ops.h"

namespace sf::data::transforms {
namespace {

constexpr float kRed = 0.2989f, kGreen = 0.587f, kBlue = 0.114f;  // torchvision's weights of grey

// Pixels [H * W, C] side by side in memory as float32: 0..255 of a uint8 image, 0..1 of a float one.
struct Pixels {
  Tensor values;
  int64_t count, channels, colours;  // colours: 3, or 1 of a grey image; what is beyond is alpha
  float limit;
  bool whole;  // of a uint8 image: results are cut off to whole numbers
  Pixels(const char* who, const Tensor& image) {
    SF_CHECK(image && image.ndim() == 3 && image.numel() > 0, who, ": image must be [C, H, W] and not empty, got ",
             image ? image.shape() : Shape{});
    whole = image.dtype() == kUInt8;
    SF_CHECK_AS(TypeError, whole || image.is_floating_point(), who, ": image must be uint8 or floating, got ",
                image.dtype());
    channels = image.size(0);
    SF_CHECK(channels <= 4, who, ": an image has at most 4 channels, got ", channels);
    colours = channels < 3 ? 1 : 3;
    count = image.size(1) * image.size(2);
    limit = whole ? 255 : 1;
    values = empty({image.size(1), image.size(2), channels}, kFloat32);
    values.copy_(image.permute({1, 2, 0}));
  }
  float* begin() { return values.data<float>(); }
  float stored(float v) const {
    v = std::clamp(v, 0.f, limit);
    return whole ? std::floor(v) : v;
  }
  // The grey of a pixel, as a grey image of the same dtype would hold it.
  float grey(const float* p) const {
    if (colours == 1) return p[0];
    float g = kRed * p[0] + kGreen * p[1] + kBlue * p[2];
    return whole ? std::floor(g) : g;
  }
  Tensor image(DType dtype) const {
    Tensor y = empty(values.shape(), dtype);
    y.copy_(values);
    return y.permute({2, 0, 1});
  }
};

// factor * pixel + (1 - factor) * other(pixel), of every colour.
template <class Other> void blend(Pixels& p, float factor, Other other) {
  float *x = p.begin(), rest = 1 - factor;
  for (int64_t i = 0; i < p.count; ++i, x += p.channels) {
    float o = rest * other(x);
    for (int64_t c = 0; c < p.colours; ++c) x[c] = p.stored(factor * x[c] + o);
  }
}

void change_contrast(Pixels& p, float factor) {
  double sum = 0;
  const float* x = p.begin();
  for (int64_t i = 0; i < p.count; ++i, x += p.channels) sum += p.grey(x);
  float mean = float(sum / double(p.count));
  blend(p, factor, [=](const float*) { return mean; });
}

// Hue, saturation and value as torchvision has them: hue in [0, 1), of grey pixels 0.
void turn_hue(Pixels& p, float turn) {
  if (p.colours == 1) return;
  float *x = p.begin(), scale = p.whole ? 1 / 255.f : 1;
  for (int64_t i = 0; i < p.count; ++i, x += p.channels) {
    float r = x[0] * scale, g = x[1] * scale, b = x[2] * scale;
    float most = std::max({r, g, b}), least = std::min({r, g, b}), range = most - least;
    if (range == 0) continue;  // no colour to turn
    float s = range / most, rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
    float h = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
    h = std::fmod(h / 6 + 1, 1.f) + turn;
    h -= std::floor(h);
    float sector = std::floor(h * 6), f = h * 6 - sector;
    float low = std::clamp(most * (1 - s), 0.f, 1.f), falling = std::clamp(most * (1 - s * f), 0.f, 1.f),
          rising = std::clamp(most * (1 - s * (1 - f)), 0.f, 1.f);
    const float table[6][3] = {{most, rising, low},  {falling, most, low}, {low, most, rising},
                               {low, falling, most}, {rising, low, most},  {most, low, falling}};
    const float* rgb = table[int(sector) % 6];
    for (int c = 0; c < 3; ++c) x[c] = p.whole ? std::floor(rgb[c] * (256 - 1e-3f)) : rgb[c];
  }
}

std::string text(const std::array<double, 2>& v) {
  Message m;
  m << "(" << v[0] << ", " << v[1] << ")";
  return m.str();
}

struct ColorJitter final : Transform {
  ColourRanges ranges;
  Tensor operator()(const Tensor& image, SampleRandom& random) const override {
    Pixels pixels("ColorJitter", image);
    int order[] = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    auto drawn = [&](const std::array<double, 2>& r) { return float(r[0] + (r[1] - r[0]) * random.uniform()); };
    float brightness = drawn(ranges.brightness), contrast = drawn(ranges.contrast),
          saturation = drawn(ranges.saturation), hue = drawn(ranges.hue);
    for (int change : order) {
      if (change == 0 && brightness != 1) blend(pixels, brightness, [](const float*) { return 0.f; });
      if (change == 1 && contrast != 1) change_contrast(pixels, contrast);
      if (change == 2 && saturation != 1 && pixels.colours == 3)
        blend(pixels, saturation, [&](const float* p) { return pixels.grey(p); });
      if (change == 3 && hue != 0) turn_hue(pixels, hue);
    }
    return pixels.image(image.dtype());
  }
  std::string str() const override {
    return "ColorJitter(brightness=" + text(ranges.brightness) + ", contrast=" + text(ranges.contrast) +
           ", saturation=" + text(ranges.saturation) + ", hue=" + text(ranges.hue) + ")";
  }
};

struct Grayscale final : Transform {
  int64_t channels;
  double p;
  Tensor operator()(const Tensor& image, SampleRandom& random) const override {
    if (p < 1 && random.uniform() >= p) return image;
    Pixels pixels("Grayscale", image);
    int64_t alpha = pixels.channels - pixels.colours;
    Tensor y = empty({image.size(1), image.size(2), channels + alpha}, kFloat32);
    const float* from = pixels.begin();
    float* to = y.data<float>();
    for (int64_t i = 0; i < pixels.count; ++i, from += pixels.channels, to += channels + alpha) {
      std::fill_n(to, channels, pixels.grey(from));
      std::copy_n(from + pixels.colours, alpha, to + channels);
    }
    Tensor stored = empty(y.shape(), image.dtype());
    stored.copy_(y);
    return stored.permute({2, 0, 1});
  }
  std::string str() const override {
    Message m;
    if (p < 1) m << "RandomGrayscale(p=" << p << ")";
    else m << "Grayscale(" << channels << ")";
    return m.str();
  }
};

void check_range(const char* name, const std::array<double, 2>& r, double least, double most) {
  SF_CHECK(r[0] <= r[1] && r[0] >= least && r[1] <= most, "ColorJitter: ", name, " must be ascending within [", least,
           ", ", most, "], got ", text(r));
}

}  // namespace

TransformPtr color_jitter(const ColourRanges& ranges) {
  constexpr double kMost = 1e6;  // further factors are a mistake, and overflow
  check_range("brightness", ranges.brightness, 0, kMost);
  check_range("contrast", ranges.contrast, 0, kMost);
  check_range("saturation", ranges.saturation, 0, kMost);
  check_range("hue", ranges.hue, -0.5, 0.5);
  auto t = std::make_shared<ColorJitter>();
  t->ranges = ranges;
  return t;
}

TransformPtr grayscale(int64_t channels, double p) {
  SF_CHECK(channels == 1 || channels == 3, "Grayscale: num_output_channels must be 1 or 3, got ", channels);
  SF_CHECK(p >= 0 && p <= 1, "RandomGrayscale: p must be 0 to 1, got ", p);
  auto t = std::make_shared<Grayscale>();
  t->channels = channels;
  t->p = p;
  return t;
}

}  // namespace sf::data::transforms
