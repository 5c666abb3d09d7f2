#include "scaffolding/data/colour_names.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/data/distinct_colours.h"
#include "scaffolding/data/icon_dataset.h"

namespace sf::data {

namespace {

constexpr float kDegrees = 180 / std::numbers::pi_v<float>;

const std::array<float, 256>& linear() {  // sRGB's curve, IEC 61966-2-1
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (int i = 0; i < 256; ++i) {
      const double v = i / 255.0;
      t[size_t(i)] = float(v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
    }
    return t;
  }();
  return table;
}

// Linear red, green and blue, outside of [0, 1] where the colour cannot be shown.
std::array<float, 3> linear_of(float lightness, float a, float b) {
  const float l = lightness + 0.3963377774f * a + 0.2158037573f * b,
              m = lightness - 0.1055613458f * a - 0.0638541728f * b,
              s = lightness - 0.0894841775f * a - 1.2914855480f * b;
  const float l3 = l * l * l, m3 = m * m * m, s3 = s * s * s;
  return {4.0767416621f * l3 - 3.3077115913f * m3 + 0.2309699292f * s3,
          -1.2684380046f * l3 + 2.6097574011f * m3 - 0.3413193965f * s3,
          -0.0041960863f * l3 - 0.7034186147f * m3 + 1.7076147010f * s3};
}

uint8_t byte_of(float v) {
  constexpr int kSteps = 1 << 14;
  static const std::array<uint8_t, kSteps + 1> table = [] {
    std::array<uint8_t, kSteps + 1> t;
    for (int i = 0; i <= kSteps; ++i) {
      const double x = double(i) / kSteps;
      t[size_t(i)] = uint8_t(std::lround(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055)));
    }
    return t;
  }();
  return table[size_t(std::clamp(v, 0.f, 1.f) * kSteps + 0.5f)];
}

// To a millionth, and many times faster than the library's: pictures are recoloured while a model trains.
float cube_root(float x) {
  float y = std::bit_cast<float>(std::bit_cast<uint32_t>(x) / 3 + 0x2a5119f2u);
  for (int i = 0; i < 3; ++i) y = (2 * y + x / (y * y)) * (1 / 3.f);
  return y;
}

// Of (x, y), to a thousandth of a degree.
float degrees_of(float y, float x) {
  const float ax = std::abs(x), ay = std::abs(y), most = std::max(ax, ay);
  if (most == 0) return 0;
  const float t = std::min(ax, ay) / most, t2 = t * t;
  float angle = 0;
  for (float factor : {-0.0117212f, 0.05265332f, -0.11643287f, 0.19354346f, -0.33262347f, 0.99997726f})
    angle = angle * t2 + factor;
  angle *= t;
  if (ay > ax) angle = std::numbers::pi_v<float> / 2 - angle;
  if (x < 0) angle = std::numbers::pi_v<float> - angle;
  if (y < 0) angle = 2 * std::numbers::pi_v<float> - angle;
  return angle * kDegrees;
}

bool can_be_shown(const std::array<float, 3>& rgb) {
  return std::all_of(rgb.begin(), rgb.end(), [](float v) { return v > -1e-4f && v < 1 + 1e-4f; });
}

enum Name { White, Black, Gray, Red, Orange, Yellow, Green, Blue, Purple, Pink, Brown, Cyan };

// The limits are those at which the hearts, circles, squares and books of icon sets are called what they are called.
int name_of(float lightness, float chroma, float hue) {
  const bool warm = hue >= 15 && hue < 100;
  if (lightness < 0.25f || (lightness < 0.42f && chroma < 0.05f)) return Black;
  if (lightness > 0.86f && chroma < 0.05f) return White;
  if (chroma < 0.035f || (hue >= 200 && hue < 325 && chroma < 0.06f)) return Gray;
  if ((warm && chroma < 0.12f && lightness < 0.66f) || (hue >= 42 && hue < 100 && lightness < 0.6f)) return Brown;
  if (hue < 15 && chroma < 0.085f && lightness < 0.6f) return Brown;
  if (warm && chroma < 0.09f) return kNoColour;
  if ((hue >= 325 || hue < 15) && (lightness >= 0.7f || (chroma < 0.15f && lightness >= 0.5f))) return Pink;
  if (hue >= 15 && hue < 42 && lightness >= 0.72f && chroma < 0.15f) return Pink;
  if (hue >= 345 || hue < 37 + 60 * (0.66f - lightness)) return Red;
  if (hue >= 325) return Pink;
  if (hue < 71) return Orange;
  if (hue < 114) return Yellow;
  if (hue < 172) return Green;
  if (hue < 222) return Cyan;
  if (hue < 284) return Blue;
  return Purple;
}

ColourShares shares_of(const std::vector<int64_t>& counts, int64_t all) {
  ColourShares out;
  for (int64_t count : counts) out.share.push_back(all > 0 ? double(count) / double(all) : 0.0);
  return out;
}

}  // namespace

Oklch oklch_of(const std::array<uint8_t, 3>& rgb) {
  const float r = linear()[rgb[0]], g = linear()[rgb[1]], b = linear()[rgb[2]];
  const float l = cube_root(0.4122214708f * r + 0.5363325363f * g + 0.0514459929f * b),
              m = cube_root(0.2119034982f * r + 0.6806995451f * g + 0.1073969566f * b),
              s = cube_root(0.0883024619f * r + 0.2817188376f * g + 0.6299787005f * b);
  const float a = 1.9779984951f * l - 2.4285922050f * m + 0.4505937099f * s,
              c = 0.0259040371f * l + 0.7827717662f * m - 0.8086757660f * s;
  const float hue = degrees_of(c, a);
  return {0.2104542553f * l + 0.7936177850f * m - 0.0040720468f * s, std::sqrt(a * a + c * c), hue < 360 ? hue : 0.f};
}

std::array<uint8_t, 3> rgb_of(const Oklch& colour) {
  const float lightness = std::clamp(colour.lightness, 0.f, 1.f), a = std::cos(colour.hue / kDegrees),
              b = std::sin(colour.hue / kDegrees);
  float chroma = std::max(0.f, colour.chroma);
  std::array<float, 3> rgb = linear_of(lightness, a * chroma, b * chroma);
  if (!can_be_shown(rgb)) {
    float least = 0, most = chroma;
    for (int i = 0; i < 8; ++i) {
      chroma = (least + most) / 2;
      rgb = linear_of(lightness, a * chroma, b * chroma);
      (can_be_shown(rgb) ? least : most) = chroma;
    }
    rgb = linear_of(lightness, a * least, b * least);
  }
  return {byte_of(rgb[0]), byte_of(rgb[1]), byte_of(rgb[2])};
}

const std::vector<std::string>& colour_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (auto& colour : background_colours()) all.push_back(colour.name);
    return all;
  }();
  return names;
}

int named_colour(const Oklch& colour) { return name_of(colour.lightness, colour.chroma, colour.hue); }

int named_colour(const std::string& name) {
  auto& names = colour_names();
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? kNoColour : int(found - names.begin());
}

bool is_colour_word(const std::string& word) { return word == "grey" || named_colour(word) != kNoColour; }

std::string ColourShares::most() const {
  const auto best = std::max_element(share.begin(), share.end());
  return best == share.end() || *best == 0 ? "" : colour_names()[size_t(best - share.begin())];
}

std::string ColourShares::clearly(double least) const {
  const auto best = std::max_element(share.begin(), share.end());
  if (best == share.end() || *best < least) return "";
  for (auto other = share.begin(); other != share.end(); ++other)
    if (other != best && *other * 4 > *best * 3) return "";
  return colour_names()[size_t(best - share.begin())];
}

ColourShares colours_of_drawing(const Tensor& drawing) {
  SF_CHECK(drawing.defined() && drawing.ndim() == 3 && drawing.size(0) == 4 && drawing.dtype() == kUInt8,
           "colours_of_drawing: a drawing must be uint8 [4, H, W], got ",
           drawing.defined() ? drawing.shape() : Shape{});
  const Tensor pixels = drawing.permute({1, 2, 0}).contiguous();
  // Shares of a grid are those of all.
  const int64_t step = std::max<int64_t>(1, std::min(pixels.size(0), pixels.size(1)) / 64);
  const DistinctColours seen(pixels, 128, step);
  std::vector<int> names;
  for (const Oklch& colour : seen.oklch()) names.push_back(named_colour(colour));
  std::vector<int64_t> counts(colour_names().size());
  for (const DistinctColours::Pixel& pixel : seen.pixels())
    if (names[pixel.colour] != kNoColour) ++counts[size_t(names[pixel.colour])];
  return shares_of(counts, int64_t(seen.pixels().size()));
}

ColourShares colours_of_picture(const Tensor& picture, const std::array<uint8_t, 3>& ground) {
  SF_CHECK(picture.defined() && picture.ndim() == 3 && picture.size(0) == 3 && picture.dtype() == kUInt8,
           "colours_of_picture: a picture must be uint8 [3, H, W], got ",
           picture.defined() ? picture.shape() : Shape{});
  constexpr float kOutline = 0.13f;  // of OKLab; light gray is 0.1 from white
  const Tensor planes = picture.contiguous();
  const int64_t area = planes.size(1) * planes.size(2);
  const auto* p = planes.data<uint8_t>();
  const Oklch under = oklch_of(ground);
  const auto chromatic = [](const Oklch& c) {
    return std::array<float, 2>{c.chroma * std::cos(c.hue / kDegrees), c.chroma * std::sin(c.hue / kDegrees)};
  };
  const auto ground_ab = chromatic(under);
  std::vector<int64_t> counts(colour_names().size());
  int64_t all = 0;
  for (int64_t i = 0; i < area; ++i) {
    const Oklch colour = oklch_of({p[i], p[area + i], p[2 * area + i]});
    const auto ab = chromatic(colour);
    const float away = std::hypot(colour.lightness - under.lightness, ab[0] - ground_ab[0], ab[1] - ground_ab[1]);
    if (away < kOutline) continue;
    ++all;
    const int name = named_colour(colour);
    if (name != kNoColour) ++counts[size_t(name)];
  }
  return shares_of(counts, all);
}

}  // namespace sf::data
