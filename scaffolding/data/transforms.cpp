#include "scaffolding/data/transforms.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/data/picture_kernel.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {

AspectBuckets::AspectBuckets(int64_t area, int64_t multiple_of, double max_aspect) {
  SF_CHECK(multiple_of > 0 && area >= multiple_of * multiple_of,
           "AspectBuckets: area must hold a square of multiple_of=", multiple_of, ", got ", area);
  SF_CHECK(max_aspect >= 1 && max_aspect <= 64, "AspectBuckets: max_aspect must be 1 to 64, got ", max_aspect);
  SF_CHECK(area <= int64_t(1) << 30, "AspectBuckets: area must be at most 2^30 pixels, got ", area);
  for (int64_t w = multiple_of; w * multiple_of <= area; w += multiple_of) {
    int64_t h = area / w / multiple_of * multiple_of;
    // Of the widths that share a height the widest comes last and stays: it wastes the least area.
    if (double(std::max(w, h)) > max_aspect * double(std::min(w, h))) continue;
    if (!sizes_.empty() && sizes_.back().height == h) sizes_.back().width = w;
    else sizes_.push_back({h, w});
  }
  SF_CHECK(!sizes_.empty(), "AspectBuckets: no size fits area=", area, ", multiple_of=", multiple_of,
           ", max_aspect=", max_aspect);
}

size_t AspectBuckets::nearest(int64_t height, int64_t width) const {
  SF_CHECK(height > 0 && width > 0, "AspectBuckets: a picture has a positive size, got ", height, " x ", width);
  auto distance = [&](const Size& s) {
    return std::abs(std::log(double(s.width) / double(s.height)) - std::log(double(width) / double(height)));
  };
  return size_t(
      std::min_element(sizes_.begin(), sizes_.end(), [&](auto& a, auto& b) { return distance(a) < distance(b); }) -
      sizes_.begin());
}

namespace transforms {
namespace {

std::string text(double v) {
  Message m;
  m << v;
  return m.str();
}
std::string text(const Floats& v) {
  std::string s;
  for (double x : v) s += (s.empty() ? "" : ", ") + text(x);
  return "[" + s + "]";
}
std::string text(const Shape& v) {
  std::string s;
  for (int64_t x : v) s += (s.empty() ? "" : ", ") + std::to_string(x);
  return "(" + s + ")";
}

void check_image(const char* op, const Tensor& x) {
  SF_CHECK(x && x.ndim() == 3 && x.numel() > 0, op, ": image must be [C, H, W] and not empty, got ",
           x ? x.shape() : Shape{});
}
Shape square(const char* op, const Shape& size) {
  SF_CHECK((size.size() == 1 || size.size() == 2) && size[0] > 0 && size[size.size() - 1] > 0, op,
           ": size must be one or two positive numbers, got ", size);
  return {size[0], size[size.size() - 1]};
}
Tensor cropped(const Tensor& x, int64_t top, int64_t left, const Shape& size) {
  return x.narrow(1, top, size[0]).narrow(2, left, size[1]);
}

Tensor resized(const Tensor& x, int64_t height, int64_t width, Filter f) {
  if (x.dtype() == kUInt8) return data::resize(x, height, width, f);
  SF_CHECK(f == Filter::Bilinear || f == Filter::Bicubic,
           "Resize: a float image is resized by 'bilinear' or 'bicubic'; others need uint8");
  return interpolate(x.unsqueeze(0), Shape{height, width}, {}, f == Filter::Bilinear ? "bilinear" : "bicubic", false,
                     {}, true)
      .squeeze(0);
}

Tensor padded(const Tensor& x, int64_t left, int64_t top, int64_t right, int64_t bottom, double fill) {
  int64_t C = x.size(0), H = x.size(1) + top + bottom, W = x.size(2) + left + right;
  Tensor y = x.dtype() == kUInt8 ? empty({H, W, C}, kUInt8).permute({2, 0, 1}) : empty({C, H, W}, x.dtype());
  y.fill_(x.dtype() == kUInt8 ? Scalar(int64_t(fill)) : Scalar(fill));
  y.narrow(1, top, x.size(1)).narrow(2, left, x.size(2)).copy_(x);
  return y;
}

struct Compose final : Transform {
  std::vector<TransformPtr> parts;
  Tensor operator()(const Tensor& image, SampleRandom& random) const override {
    Tensor x = image;
    for (auto& p : parts) x = (*p)(x, random);
    return x;
  }
  std::string str() const override {
    std::string s;
    for (auto& p : parts) s += (s.empty() ? "" : ", ") + p->str();
    return "Compose([" + s + "])";
  }
};

struct Resize final : Transform {
  Shape size;
  Filter f;
  Tensor operator()(const Tensor& x, SampleRandom&) const override {
    check_image("Resize", x);
    if (size.size() == 2) return resized(x, size[0], size[1], f);
    int64_t H = x.size(1), W = x.size(2), n = size[0];
    int64_t longer = int64_t(double(n) * double(std::max(H, W)) / double(std::min(H, W)));
    return H <= W ? resized(x, n, longer, f) : resized(x, longer, n, f);
  }
  std::string str() const override {
    return "Resize(" + (size.size() == 1 ? std::to_string(size[0]) : text(size)) + ")";
  }
};

struct Crop final : Transform {
  Shape size;
  bool random;
  int64_t padding = 0;
  double fill = 0;
  Tensor operator()(const Tensor& image, SampleRandom& r) const override {
    const char* op = random ? "RandomCrop" : "CenterCrop";
    check_image(op, image);
    Tensor x = padding ? padded(image, padding, padding, padding, padding, fill) : image;
    int64_t H = x.size(1), W = x.size(2);
    SF_CHECK(H >= size[0] && W >= size[1], op, ": the image must be at least ", size[0], " x ", size[1], ", got ", H,
             " x ", W, "; put a Resize before it");
    if (random) {
      int64_t top = r.below(H - size[0] + 1), left = r.below(W - size[1] + 1);
      return cropped(x, top, left, size);
    }
    return cropped(x, int64_t(std::nearbyint(double(H - size[0]) / 2)),
                   int64_t(std::nearbyint(double(W - size[1]) / 2)), size);
  }
  std::string str() const override { return (random ? "RandomCrop(" : "CenterCrop(") + text(size) + ")"; }
};

struct RandomResizedCrop final : Transform {
  Shape size;
  std::array<double, 2> scale, ratio;
  Filter f;
  Tensor operator()(const Tensor& x, SampleRandom& r) const override {
    check_image("RandomResizedCrop", x);
    int64_t H = x.size(1), W = x.size(2);
    double area = double(H) * double(W);
    for (int attempt = 0; attempt < 10; ++attempt) {
      double target = area * (scale[0] + (scale[1] - scale[0]) * r.uniform());
      double aspect = std::exp(std::log(ratio[0]) + (std::log(ratio[1]) - std::log(ratio[0])) * r.uniform());
      int64_t w = std::llround(std::sqrt(target * aspect)), h = std::llround(std::sqrt(target / aspect));
      if (w > 0 && w <= W && h > 0 && h <= H) {
        int64_t top = r.below(H - h + 1), left = r.below(W - w + 1);
        return resized(cropped(x, top, left, {h, w}), size[0], size[1], f);
      }
    }
    // The middle, with the nearest allowed ratio.
    double aspect = double(W) / double(H);
    int64_t w = aspect > ratio[1] ? std::max<int64_t>(1, std::llround(double(H) * ratio[1])) : W;
    int64_t h = aspect < ratio[0] ? std::max<int64_t>(1, std::llround(double(W) / ratio[0])) : H;
    return resized(cropped(x, (H - h) / 2, (W - w) / 2, {h, w}), size[0], size[1], f);
  }
  std::string str() const override { return "RandomResizedCrop(" + text(size) + ")"; }
};

struct Flip final : Transform {
  double p;
  bool horizontal;
  Tensor operator()(const Tensor& x, SampleRandom& r) const override {
    check_image("RandomFlip", x);
    if (r.uniform() >= p) return x;
    if (x.dtype() != kUInt8) return flip(x, {horizontal ? 2 : 1});
    Tensor from = x.permute({1, 2, 0}).contiguous(), to = empty(from.shape(), kUInt8);
    int64_t H = from.size(0), W = from.size(1), C = from.size(2);
    for (int64_t i = 0; i < H; ++i) {
      const uint8_t* in = from.data<uint8_t>() + (horizontal ? i : H - 1 - i) * W * C;
      uint8_t* out = to.data<uint8_t>() + i * W * C;
      if (!horizontal) std::copy_n(in, W * C, out);
      else
        for (int64_t j = 0; j < W; ++j) std::copy_n(in + (W - 1 - j) * C, C, out + j * C);
    }
    return to.permute({2, 0, 1});
  }
  std::string str() const override {
    return std::string(horizontal ? "RandomHorizontalFlip(" : "RandomVerticalFlip(") + text(p) + ")";
  }
};

struct Pad final : Transform {
  Shape padding;  // left, top, right, bottom
  double fill;
  Tensor operator()(const Tensor& x, SampleRandom&) const override {
    check_image("Pad", x);
    return padded(x, padding[0], padding[1], padding[2], padding[3], fill);
  }
  std::string str() const override { return "Pad(" + text(padding) + ", fill=" + text(fill) + ")"; }
};

double pick(const Floats& v, int64_t c) { return v.size() == 1 ? v[0] : v[size_t(c)]; }

// x / 255, then (x - mean) / std where they are given.
struct ToFloat final : Transform {
  Floats mean{0}, std{1};
  bool normalizes = false;
  Tensor operator()(const Tensor& image, SampleRandom&) const override {
    check_image("ToFloat", image);
    SF_CHECK_AS(TypeError, image.dtype() == kUInt8, "ToFloat: image must be uint8, got ", image.dtype());
    Tensor x = image.permute({1, 2, 0}).contiguous();
    int64_t C = x.size(2);
    SF_CHECK(C <= 4, "ToFloat: an image has at most 4 channels, got ", C);
    check_channels(mean, C);
    Tensor y = empty({C, x.size(0), x.size(1)}, kFloat32);
    float scale[4], shift[4];
    for (int64_t c = 0; c < C; ++c) {
      scale[c] = float(1 / (255 * pick(std, c)));
      shift[c] = float(-pick(mean, c) / pick(std, c));
    }
    PixelsToFloat a{x.data<uint8_t>(), y.data<float>(), x.size(0) * x.size(1), int(C), scale, shift};
    picture_to_float.find(Device::CPU, a)(a);
    return y;
  }
  static void check_channels(const Floats& mean, int64_t C) {
    SF_CHECK(mean.size() == 1 || int64_t(mean.size()) == C, "Normalize: mean and std have ", mean.size(),
             " channels, the image ", C);
  }
  std::string str() const override {
    return normalizes ? "ToFloat(), Normalize(" + text(mean) + ", " + text(std) + ")" : "ToFloat()";
  }
};

struct Normalize final : Transform {
  Floats mean, std;
  Tensor operator()(const Tensor& x, SampleRandom&) const override {
    check_image("Normalize", x);
    SF_CHECK_AS(TypeError, x.is_floating_point(),
                "Normalize: image must be a float tensor (put ToFloat before it), got ", x.dtype());
    int64_t C = x.size(0);
    ToFloat::check_channels(mean, C);
    Tensor m = empty({C, 1, 1}, kFloat64), s = empty({C, 1, 1}, kFloat64);
    for (int64_t c = 0; c < C; ++c) {
      m.data<double>()[c] = pick(mean, c);
      s.data<double>()[c] = pick(std, c);
    }
    return div(sub(x, m.to(x.dtype())), s.to(x.dtype()));
  }
  std::string str() const override { return "Normalize(" + text(mean) + ", " + text(std) + ")"; }
};

struct Composite final : Transform {
  std::optional<Colour> colour;
  Tensor operator()(const Tensor& image, SampleRandom& r) const override {
    check_image("Composite", image);
    SF_CHECK(image.dtype() == kUInt8 && (image.size(0) == 2 || image.size(0) == 4),
             "Composite: image must be uint8 with alpha (2 or 4 channels), got ", image.dtype(), " with ",
             image.size(0), "; read it with mode 'RGBA'");
    Tensor x = image.permute({1, 2, 0}).contiguous();
    int64_t C = x.size(2);
    Tensor y = empty({x.size(0), x.size(1), C - 1}, kUInt8);
    CompositePixels a{x.data<uint8_t>(), y.data<uint8_t>(), x.size(0) * x.size(1), int(C), {}};
    for (int c = 0; c < 3; ++c) a.colour[c] = colour ? (*colour)[size_t(c)] : uint8_t(r.below(256));
    picture_composite.find(Device::CPU, a)(a);
    return y.permute({2, 0, 1});
  }
  std::string str() const override {
    if (!colour) return "Composite(\"random\")";
    return "Composite(" + text(Shape{(*colour)[0], (*colour)[1], (*colour)[2]}) + ")";
  }
};

struct ToBucket final : Transform {
  explicit ToBucket(const AspectBuckets& b) : buckets(b) {}
  AspectBuckets buckets;
  bool random = false;
  Filter f = Filter::Bicubic;
  Tensor operator()(const Tensor& x, SampleRandom& r) const override {
    check_image("ToBucket", x);
    int64_t H = x.size(1), W = x.size(2);
    auto size = buckets.sizes()[buckets.nearest(H, W)];
    double scale = std::max(double(size.height) / double(H), double(size.width) / double(W));
    int64_t h = std::max(size.height, int64_t(std::llround(double(H) * scale))),
            w = std::max(size.width, int64_t(std::llround(double(W) * scale)));
    Tensor y = resized(x, h, w, f);
    int64_t top = random ? r.below(h - size.height + 1) : (h - size.height) / 2,
            left = random ? r.below(w - size.width + 1) : (w - size.width) / 2;
    return cropped(y, top, left, {size.height, size.width});
  }
  std::string str() const override { return "ToBucket(" + std::to_string(buckets.sizes().size()) + " sizes)"; }
};

void check_probability(const char* op, double p) { SF_CHECK(p >= 0 && p <= 1, op, ": p must be 0 to 1, got ", p); }

}  // namespace

TransformPtr compose(std::vector<TransformPtr> parts) {
  auto c = std::make_shared<Compose>();
  for (auto& p : parts) {
    SF_CHECK_AS(TypeError, p, "Compose: a part is missing");
    if (auto* nested = dynamic_cast<const Compose*>(p.get()))
      c->parts.insert(c->parts.end(), nested->parts.begin(), nested->parts.end());
    else c->parts.push_back(p);
  }
  for (size_t i = 0; i + 1 < c->parts.size(); ++i) {
    auto* first = dynamic_cast<const ToFloat*>(c->parts[i].get());
    auto* second = dynamic_cast<const Normalize*>(c->parts[i + 1].get());
    if (!first || !second || first->normalizes) continue;
    auto both = std::make_shared<ToFloat>();
    both->mean = second->mean;
    both->std = second->std;
    both->normalizes = true;
    c->parts[i] = both;
    c->parts.erase(c->parts.begin() + int64_t(i) + 1);
  }
  return c;
}

TransformPtr resize(const Shape& size, Filter filter) {
  square("Resize", size);
  auto t = std::make_shared<Resize>();
  t->size = size;
  t->f = filter;
  return t;
}
TransformPtr center_crop(const Shape& size) {
  auto t = std::make_shared<Crop>();
  t->size = square("CenterCrop", size);
  t->random = false;
  return t;
}
TransformPtr random_crop(const Shape& size, int64_t padding, double fill) {
  SF_CHECK(padding >= 0, "RandomCrop: padding must not be negative, got ", padding);
  auto t = std::make_shared<Crop>();
  t->size = square("RandomCrop", size);
  t->random = true;
  t->padding = padding;
  t->fill = fill;
  return t;
}
TransformPtr random_resized_crop(const Shape& size, std::array<double, 2> scale, std::array<double, 2> ratio,
                                 Filter filter) {
  SF_CHECK(scale[0] > 0 && scale[0] <= scale[1] && ratio[0] > 0 && ratio[0] <= ratio[1],
           "RandomResizedCrop: scale and ratio must be positive and ascending");
  auto t = std::make_shared<RandomResizedCrop>();
  t->size = square("RandomResizedCrop", size);
  t->scale = scale;
  t->ratio = ratio;
  t->f = filter;
  return t;
}
static TransformPtr flipped(const char* op, double p, bool horizontal) {
  check_probability(op, p);
  auto t = std::make_shared<Flip>();
  t->p = p;
  t->horizontal = horizontal;
  return t;
}
TransformPtr random_horizontal_flip(double p) { return flipped("RandomHorizontalFlip", p, true); }
TransformPtr random_vertical_flip(double p) { return flipped("RandomVerticalFlip", p, false); }

TransformPtr pad(const Shape& padding, double fill) {
  int64_t n = padding.size();
  SF_CHECK(n == 1 || n == 2 || n == 4, "Pad: padding must be 1, 2 or 4 numbers, got ", padding);
  for (int64_t v : padding) SF_CHECK(v >= 0, "Pad: padding must not be negative, got ", padding);
  auto t = std::make_shared<Pad>();
  t->padding = {padding[0], padding[n > 1 ? 1 : 0], padding[n == 4 ? 2 : 0], padding[n == 4 ? 3 : n > 1 ? 1 : 0]};
  t->fill = fill;
  return t;
}
TransformPtr to_float() { return std::make_shared<ToFloat>(); }
TransformPtr normalize(const Floats& mean, const Floats& std) {
  SF_CHECK(!mean.empty() && mean.size() == std.size(),
           "Normalize: mean and std must have one number each, or one for each channel, got ", mean.size(), " and ",
           std.size());
  for (double s : std) SF_CHECK(s != 0, "Normalize: std must not be zero");
  auto t = std::make_shared<Normalize>();
  t->mean = mean;
  t->std = std;
  return t;
}
TransformPtr composite(std::optional<Colour> colour) {
  auto t = std::make_shared<Composite>();
  t->colour = colour;
  return t;
}
TransformPtr to_bucket(const AspectBuckets& buckets, bool random, Filter filter) {
  auto t = std::make_shared<ToBucket>(buckets);
  t->random = random;
  t->f = filter;
  return t;
}

}  // namespace transforms
}  // namespace sf::data
