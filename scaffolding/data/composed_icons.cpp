#include "scaffolding/data/composed_icons.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/data/colour_names.h"
#include "scaffolding/data/icon_canvas.h"
#include "scaffolding/data/icon_phrases.h"
#include "scaffolding/data/recolour.h"

namespace sf::data {

namespace {

// How large the icons of a row of 1 to 4 are, their longer sides as shares of the picture's.
constexpr std::array<std::array<double, 2>, 4> kSides{{{0.7, 0.9}, {0.38, 0.46}, {0.26, 0.3}, {0.19, 0.22}}};
constexpr double kGap = 0.03;     // between icons of a row at least
constexpr double kCentred = 0.6;  // how much of the room around it an icon may be moved through

double between(double least, double most, SampleRandom& random) { return least + random.uniform() * (most - least); }

}  // namespace

void CompositionOptions::check(const std::string& who) const {
  const auto check_share = [&](const char* name, double value) {
    SF_CHECK(value >= 0 && value <= 1, who, ": ", name, " must be 0 to 1, got ", value);
  };
  check_share("pair_probability", pair_probability);
  check_share("count_probability", count_probability);
  check_share("recolour_probability", recolour_probability);
  check_share("name_colour_probability", name_colour_probability);
  check_share("detail_dropout", detail_dropout);
  check_share("variation_probability", variation_probability);
  check_share("mirror_probability", mirror_probability);
  check_share("row_freedom", row_freedom);
  check_share("gradient_probability", gradient_probability);
  SF_CHECK(pair_probability + count_probability <= 1, who,
           ": pair_probability and count_probability must be 1 at most together, got ", pair_probability, " and ",
           count_probability);
  SF_CHECK(rotation >= 0 && rotation <= 180, who, ": rotation must be 0 to 180 degrees, got ", rotation);
  SF_CHECK(hue_jitter >= 0 && hue_jitter <= 180, who, ": hue_jitter must be 0 to 180 degrees, got ", hue_jitter);
  SF_CHECK(smallest >= 0.1 && smallest <= 1, who, ": smallest must be 0.1 to 1, got ", smallest);
  SF_CHECK(background_jitter >= 0 && background_jitter <= 255, who, ": background_jitter must be 0 to 255, got ",
           background_jitter);
}

ComposedIcons::ComposedIcons(std::shared_ptr<const IconDataset> icons, CompositionOptions options)
    : icons_(std::move(icons)), options_(options) {
  SF_CHECK(icons_, "ComposedIcons: needs icons");
  options_.check("ComposedIcons");
  SF_CHECK(options_.gradient_probability + icons_->options().background_probability <= 1,
           "ComposedIcons: gradient_probability and the icons' background_probability must be 1 at most together, got ",
           options_.gradient_probability, " and ", icons_->options().background_probability);
  for (int64_t i = 0; i < icons_->size(); ++i)
    if (can_be_paired(icons_->icon(i))) paired_[icons_->icon(i).style].push_back(i);
}

IconGround ComposedIcons::ground(SampleRandom& random) const {
  IconGround out = random_ground(icons_->options().background_probability, options_.gradient_probability, random);
  if (out.name.empty() || options_.background_jitter == 0) return out;
  const bool plain = out.top == out.bottom;
  const auto jitter = [&](std::array<uint8_t, 3>& colour) {
    if (oklch_of(colour).chroma < 0.02f) return;  // white and black are what people measure by
    for (uint8_t& level : colour)
      level = uint8_t(std::clamp<int64_t>(
          level + random.below(2 * options_.background_jitter + 1) - options_.background_jitter, 0, 255));
  };
  jitter(out.top);
  if (plain) out.bottom = out.top;
  else jitter(out.bottom);
  return out;
}

std::string ComposedIcons::any_colour(const IconGround& ground, SampleRandom& random) const {
  std::vector<std::string> seen;
  for (auto& name : colour_names()) {
    const bool under = ground.name.empty() ? name == "white"
                                           : ground.name == name || ground.name.starts_with(name + " ") ||
                                                 ground.name.ends_with(" " + name);
    if (!under) seen.push_back(name);
  }
  return seen[size_t(random.below(int64_t(seen.size())))];
}

static std::optional<Tensor> drawing_of(const IconDataset& icons, const IconPart& part) {
  Tensor drawing = icons.drawing(part.icon);
  if (!part.colour.empty()) return recoloured(drawing, part.colour);
  return part.hue_turn == 0 ? drawing : hue_turned(drawing, part.hue_turn);
}

std::optional<Tensor> ComposedIcons::single(const IconPart& part, const IconGround& ground, bool varied,
                                            SampleRandom& random) const {
  const auto drawing = drawing_of(*icons_, part);
  if (!drawing) return std::nullopt;
  const auto size = double(icons_->options().size);
  const double natural = size / double(std::max(drawing->size(1), drawing->size(2)));
  IconCanvas canvas(icons_->options().size, ground);
  const CutIcon icon = cut_icon(*drawing, !varied);
  IconPose pose{.x = size / 2, .y = size / 2, .scale = natural};
  if (varied && icon.width > 0) {
    pose.angle = between(-options_.rotation, options_.rotation, random) * std::numbers::pi / 180;
    const double c = std::abs(std::cos(pose.angle)), s = std::abs(std::sin(pose.angle));
    const double width = double(icon.width) * c + double(icon.height) * s,
                 height = double(icon.width) * s + double(icon.height) * c;
    pose.scale = std::min({natural, size / width, size / height}) * between(options_.smallest, 1, random);
    // About where it was, as far as it stays inside.
    const auto moved = [&](double middle, double extent) {
      const double free = size - extent * pose.scale;
      return std::clamp(middle * natural + (random.uniform() - 0.5) * kCentred * free, (size - free) / 2,
                        (size + free) / 2);
    };
    pose.x = moved(double(icon.left) + double(icon.width) / 2, width);
    pose.y = moved(double(icon.top) + double(icon.height) / 2, height);
    pose.mirrored = random.uniform() < options_.mirror_probability && can_be_flipped(icons_->icon(part.icon));
  }
  canvas.put(icon, pose);
  return canvas.picture();
}

std::optional<Tensor> ComposedIcons::row(const std::vector<IconPart>& parts, const IconGround& ground,
                                         SampleRandom& random) const {
  SF_CHECK(!parts.empty() && parts.size() <= kSides.size(), "ComposedIcons: a row has 1 to ", kSides.size(),
           " icons, got ", parts.size());
  const auto size = double(icons_->options().size);
  const auto [least, most] = kSides[parts.size() - 1];
  std::vector<CutIcon> icons;
  std::vector<IconPose> poses;
  double free = size - kGap * size * double(parts.size() - 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i] == parts[i - 1]) {
      icons.push_back(icons.back());
    } else {
      const auto drawing = drawing_of(*icons_, parts[i]);
      if (!drawing) return std::nullopt;
      icons.push_back(cut_icon(*drawing, false));
      if (icons.back().width == 0) return std::nullopt;
    }
    const CutIcon& icon = icons.back();
    IconPose pose{.x = 0, .y = size / 2};
    const double side = most + options_.row_freedom * (between(least, most, random) - most);
    pose.scale = size * side / double(std::max(icon.width, icon.height));
    pose.y += options_.row_freedom * (random.uniform() - 0.5) * kCentred * (size - double(icon.height) * pose.scale);
    pose.mirrored = random.uniform() < options_.mirror_probability && can_be_flipped(icons_->icon(parts[i].icon));
    free -= double(icon.width) * pose.scale;
    poses.push_back(pose);
  }
  // What is left over goes between them, before and after them, as chance has it.
  std::vector<double> rooms;
  double all = 0;
  for (size_t i = 0; i <= parts.size(); ++i) rooms.push_back(0.2 + random.uniform()), all += rooms.back();
  IconCanvas canvas(icons_->options().size, ground);
  double x = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double width = double(icons[i].width) * poses[i].scale;
    x += free * rooms[i] / all + (i > 0 ? kGap * size : 0);
    const double middle = size * (double(i) + 0.5) / double(parts.size());
    poses[i].x = middle + options_.row_freedom * (x + width / 2 - middle);  // none overlap in between either
    x += width;
    canvas.put(icons[i], poses[i]);
  }
  return canvas.picture();
}

std::optional<ComposedIcons::Made> ComposedIcons::made_pair(int64_t index, const IconGround& ground,
                                                            SampleRandom& random) const {
  const Icon& icon = icons_->icon(index);
  if (!can_be_paired(icon)) return std::nullopt;
  const auto& others = paired_.at(icon.style);
  const int64_t other = others[size_t(random.below(int64_t(others.size())))];
  if (icons_->icon(other).caption == icon.caption) return std::nullopt;
  std::vector<IconPart> parts{{index}, {other}};
  if (random.below(2) == 1) std::swap(parts[0], parts[1]);
  std::string subject;
  for (IconPart& part : parts) {
    const Icon& it = icons_->icon(part.icon);
    std::string phrase = it.caption;
    if (random.uniform() < options_.recolour_probability && can_be_coloured(it)) {
      part.colour = any_colour(ground, random);
      phrase = *coloured(part.colour, it.caption);
    }
    subject += (subject.empty() ? "" : " and ") + phrase;
  }
  auto image = row(parts, ground, random);
  if (!image) return std::nullopt;
  return Made{std::move(*image), std::move(subject)};
}

std::optional<ComposedIcons::Made> ComposedIcons::made_count(int64_t index, const IconGround& ground,
                                                             SampleRandom& random) const {
  const Icon& icon = icons_->icon(index);
  if (!can_be_paired(icon)) return std::nullopt;
  const int64_t count = random.uniform() < 0.6 ? 2 : 3;
  IconPart part{index};
  std::string phrase = icon.caption;
  if (random.uniform() < options_.recolour_probability && can_be_coloured(icon)) {
    part.colour = any_colour(ground, random);
    phrase = *coloured(part.colour, icon.caption);
  }
  const auto subject = counted(count, phrase);
  if (!subject) return std::nullopt;
  auto image = row(std::vector<IconPart>(size_t(count), part), ground, random);
  if (!image) return std::nullopt;
  return Made{std::move(*image), *subject};
}

ComposedIcons::Made ComposedIcons::made_single(int64_t index, const IconGround& ground, SampleRandom& random) const {
  const Icon& icon = icons_->icon(index);
  if (can_be_coloured(icon)) {
    const bool varied = random.uniform() < options_.variation_probability;
    const double how = random.uniform();
    if (how < options_.recolour_probability) {
      const std::string colour = any_colour(ground, random);
      if (auto image = single({index, colour}, ground, varied, random))
        return {*image, *coloured(colour, icon.caption)};
    } else if (how <
               options_.recolour_probability + (1 - options_.recolour_probability) * options_.name_colour_probability) {
      const std::string colour = colours_of_drawing(icons_->drawing(index)).clearly();
      if (!colour.empty()) return {*single({index}, ground, varied, random), *coloured(colour, icon.caption)};
    }
  }
  std::string subject =
      random.uniform() < options_.detail_dropout ? without_details(icon) : icons_->subject(index, random);
  return {as_drawn(index, ground, random), std::move(subject)};
}

Tensor ComposedIcons::as_drawn(int64_t index, const IconGround& ground, SampleRandom& random) const {
  const bool varied = random.uniform() < options_.variation_probability;
  IconPart part{index};
  if (varied && random.below(2) == 1 && !has_colour(icons_->icon(index).caption))
    part.hue_turn = between(-options_.hue_jitter, options_.hue_jitter, random);
  return *single(part, ground, varied, random);
}

Sample ComposedIcons::get(int64_t index, SampleRandom& random) const {
  const Icon& icon = icons_->icon(index);
  const IconGround under = ground(random);
  const double kind = random.uniform();
  std::optional<Made> made;
  if (kind < options_.pair_probability) made = made_pair(index, under, random);
  else if (kind < options_.pair_probability + options_.count_probability) made = made_count(index, under, random);
  if (!made) made = made_single(index, under, random);
  static const TransformPtr floats = transforms::compose({transforms::to_float(), transforms::normalize({0.5}, {0.5})});
  Sample sample;
  sample.image = (*floats)(made->image, random);
  sample.caption =
      icon_prompt(made->subject, random.uniform() < icons_->options().style_dropout ? "" : icon.style, under.name);
  sample.name = sample_name(index);
  sample.index = index;
  return sample;
}

std::vector<std::string> ComposedIcons::texts() const {
  const auto of_icons = icons_->texts();
  std::set<std::string> all(of_icons.begin(), of_icons.end());
  for (int64_t i = 0; i < icons_->size(); ++i)
    for (int64_t count : {2, 3})
      if (auto phrase = counted(count, icons_->icon(i).caption)) all.insert(*phrase + " and");
  all.insert(two_colours("white", "black"));
  return {all.begin(), all.end()};
}

}  // namespace sf::data
