#include "scaffolding/data/recolour.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/data/colour_names.h"
#include "scaffolding/data/distinct_colours.h"

namespace sf::data {

namespace {

// What a named colour may look like: the mean of what is turned to it goes into these ranges, the shortest way.
struct Target {
  const char* name;
  float hue, least_chroma, most_chroma, least_light, most_light;
};
constexpr Target kTargets[]{
    {"white", 90, 0, 0.008f, 0.95f, 0.97f},     {"black", 270, 0, 0.01f, 0.2f, 0.28f},
    {"gray", 260, 0, 0.01f, 0.58f, 0.7f},       {"red", 26, 0.19f, 0.23f, 0.54f, 0.6f},
    {"orange", 57, 0.15f, 0.18f, 0.71f, 0.77f}, {"yellow", 93, 0.16f, 0.18f, 0.84f, 0.9f},
    {"green", 145, 0.14f, 0.2f, 0.55f, 0.74f},  {"blue", 257, 0.14f, 0.2f, 0.5f, 0.66f},
    {"purple", 305, 0.15f, 0.2f, 0.46f, 0.6f},  {"pink", 355, 0.11f, 0.17f, 0.75f, 0.82f},
    {"brown", 52, 0.07f, 0.095f, 0.4f, 0.5f},   {"cyan", 205, 0.1f, 0.13f, 0.74f, 0.84f},
};
constexpr float kColourful = 0.045f;  // chroma from which a pixel has a hue

float wrapped(float hue) { return hue - 360 * std::floor(hue / 360); }

float turn(float from, float to) { return wrapped(to - from + 180) - 180; }  // the shorter way, -180 to 180

// From 0 at `none` to 1 at `all`.
float ramp(float v, float none, float all) { return std::clamp((v - none) / (all - none), 0.f, 1.f); }

Tensor pixels_of(const char* who, const Tensor& drawing) {
  SF_CHECK(drawing.defined() && drawing.ndim() == 3 && drawing.size(0) == 4 && drawing.dtype() == kUInt8, who,
           ": a drawing must be uint8 [4, H, W], got ", drawing.defined() ? drawing.shape() : Shape{});
  return drawing.permute({1, 2, 0}).contiguous();
}

// The drawing with what can be seen of each colour changed by a share to another.
Tensor with_colours(const Tensor& pixels, const DistinctColours& seen, const std::vector<Oklch>& colours,
                    const std::vector<float>& changed) {
  const auto& distinct = seen.colours();
  std::vector<std::array<uint8_t, 3>> to(distinct.begin(), distinct.end());
  for (size_t i = 0; i < to.size(); ++i) {
    if (changed[i] == 0) continue;
    const auto rgb = rgb_of(colours[i]);
    for (size_t c = 0; c < 3; ++c) {
      const auto from = float(to[i][c]);
      to[i][c] = uint8_t(std::lround(from + changed[i] * (float(rgb[c]) - from)));
    }
  }
  Tensor out = pixels.clone();
  auto* p = out.data<uint8_t>();
  for (const DistinctColours::Pixel& pixel : seen.pixels()) std::copy_n(to[pixel.colour].data(), 3, p + 4 * pixel.at);
  return out.permute({2, 0, 1});
}

// How much each colour belongs to the main colour, and the mean of that.
struct Main {
  std::vector<float> part;
  Oklch mean;
  float area = 0;
};

Main main_of(const DistinctColours& seen, const std::vector<Oklch>& colours) {
  // Hues in 24 bins, each with its neighbours, against what has none, in three lightnesses.
  constexpr int kBins = 24;
  std::array<float, kBins> hues{};
  std::array<float, 3> grays{};
  std::vector<float*> counted;
  for (const Oklch& c : colours)
    counted.push_back(c.chroma >= kColourful ? &hues[size_t(c.hue / (360.f / kBins)) % kBins]
                                             : &grays[c.lightness < 0.45f  ? 0
                                                      : c.lightness < 0.8f ? 1
                                                                           : 2]);
  for (const DistinctColours::Pixel& pixel : seen.pixels()) *counted[pixel.colour] += float(pixel.alpha) / 255;
  const auto around = [&](int b) {
    return hues[size_t(b)] + hues[size_t(b + 1) % kBins] + hues[size_t(b + kBins - 1) % kBins];
  };
  int best = 0;
  for (int b = 1; b < kBins; ++b)
    if (around(b) > around(best)) best = b;
  const auto gray = size_t(std::max_element(grays.begin(), grays.end()) - grays.begin());
  const float hue = (float(best) + 0.5f) * (360.f / kBins);
  const bool colourful = around(best) >= 0.7f * grays[gray];
  constexpr std::array<float, 3> kLight{0.3f, 0.65f, 0.95f};

  Main out;
  out.part.resize(colours.size());
  std::vector<float> turns(colours.size());
  for (size_t i = 0; i < colours.size(); ++i) {
    const Oklch& c = colours[i];
    out.part[i] = colourful
                      ? ramp(c.chroma, 0.02f, kColourful) * ramp(-std::abs(turn(c.hue, hue)), -55, -38)
                      : ramp(-c.chroma, -0.06f, -0.04f) * ramp(-std::abs(c.lightness - kLight[gray]), -0.33f, -0.22f);
    turns[i] = turn(hue, c.hue);
  }
  float x = 0, y = 0;
  for (const DistinctColours::Pixel& pixel : seen.pixels()) {
    const Oklch& c = colours[pixel.colour];
    const float weight = out.part[pixel.colour] * float(pixel.alpha) / 255;
    out.area += weight;
    out.mean.lightness += weight * c.lightness;
    out.mean.chroma += weight * c.chroma;
    x += weight * turns[pixel.colour], y += weight;
  }
  if (out.area > 0) {
    out.mean.lightness /= out.area;
    out.mean.chroma /= out.area;
    out.mean.hue = wrapped(hue + (y > 0 ? x / y : 0));
  }
  return out;
}

}  // namespace

std::optional<Tensor> recoloured(const Tensor& drawing, const std::string& colour) {
  const auto* target =
      std::find_if(std::begin(kTargets), std::end(kTargets), [&](auto& t) { return colour == t.name; });
  SF_CHECK(target != std::end(kTargets), "recoloured: there is no colour '", colour, "'");
  const Tensor pixels = pixels_of("recoloured", drawing);
  const DistinctColours seen(pixels, 1);
  std::vector<Oklch> colours = seen.oklch();
  const Main main = main_of(seen, colours);
  if (main.area < 16) return std::nullopt;
  const float light = std::clamp(main.mean.lightness, target->least_light, target->most_light),
              chroma = std::clamp(main.mean.chroma, target->least_chroma, target->most_chroma);
  // Light and shade keep their differences, less where there is no room for them.
  const float shading = std::min(1.f, 2.2f * std::min(light, 1 - light) + 0.25f);
  const bool had_hue = main.mean.chroma >= kColourful;
  for (size_t i = 0; i < colours.size(); ++i) {
    if (main.part[i] == 0) continue;
    Oklch& c = colours[i];
    const float strength = had_hue ? std::clamp(c.chroma / main.mean.chroma, 0.f, 1.35f) : 1.f;
    c.hue = wrapped(target->hue + (had_hue ? 0.35f * turn(main.mean.hue, c.hue) : 0.f));
    c.chroma = chroma * strength;
    c.lightness = light + shading * (c.lightness - main.mean.lightness);
  }
  Tensor out = with_colours(pixels, seen, colours, main.part);
  if (colours_of_drawing(out).clearly() != colour) return std::nullopt;
  return out;
}

Tensor hue_turned(const Tensor& drawing, double degrees) {
  const Tensor pixels = pixels_of("hue_turned", drawing);
  const DistinctColours seen(pixels, 1);
  std::vector<Oklch> colours = seen.oklch();
  std::vector<float> changed;
  for (auto& c : colours) {
    changed.push_back(c.chroma > 0.01f ? 1.f : 0.f);
    c.hue = wrapped(c.hue + float(degrees));
  }
  return with_colours(pixels, seen, colours, changed);
}

}  // namespace sf::data
