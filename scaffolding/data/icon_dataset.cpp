#include "scaffolding/data/icon_dataset.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/io/json.h"

namespace sf::data {

namespace {

ImageOptions reading() {
  ImageOptions options;
  options.read.mode = io::ImageMode::RGBA;
  options.caption_column = "caption";
  return options;
}

Icon icon_of(const std::string& row, int64_t index, const std::string& name) {
  auto json = io::parse_json(row);
  SF_CHECK(json.is_object(), "IconDataset: ", name, " has no row of metadata");
  auto text = [&](const char* key) {
    auto it = json.find(key);
    SF_CHECK(it != json.end() && it->is_string(), "IconDataset: the row of ", name, " must have a text '", key, "'");
    return it->get<std::string>();
  };
  Icon icon{text("caption"), text("style"), json.value("group", ""), json.value("split", ""), {}, index};
  if (auto it = json.find("keywords"); it != json.end()) {
    SF_CHECK(it->is_array(), "IconDataset: the keywords of ", name, " must be a list");
    for (auto& word : *it)
      if (word.is_string()) icon.keywords.push_back(word.get<std::string>());
  }
  return icon;
}

bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

const std::vector<NamedColour>& background_colours() {
  static const std::vector<NamedColour> colours{
      {"white", {255, 255, 255}}, {"black", {16, 16, 16}},    {"gray", {128, 128, 128}}, {"red", {214, 40, 40}},
      {"orange", {247, 140, 30}}, {"yellow", {250, 218, 60}}, {"green", {46, 160, 67}},  {"blue", {40, 96, 214}},
      {"purple", {128, 60, 180}}, {"pink", {250, 160, 190}},  {"brown", {120, 78, 44}},  {"cyan", {70, 200, 220}},
  };
  return colours;
}

std::string two_colours(const std::string& top, const std::string& bottom) { return top + " to " + bottom; }

IconGround random_ground(double plain, double gradient, SampleRandom& random) {
  const auto& colours = background_colours();
  const auto any_colour = [&] { return random.below(int64_t(colours.size())); };
  const double background = random.uniform();
  if (background < plain) {
    const NamedColour& colour = colours[size_t(any_colour())];
    return {colour.rgb, colour.rgb, colour.name};
  }
  if (background < plain + gradient) {
    const int64_t first = any_colour(), further = 1 + random.below(int64_t(colours.size()) - 1);
    const NamedColour &top = colours[size_t(first)],
                      &bottom = colours[size_t((first + further) % int64_t(colours.size()))];
    return {top.rgb, bottom.rgb, two_colours(top.name, bottom.name)};
  }
  return {colours[0].rgb, colours[0].rgb, {}};
}

std::string icon_prompt(const std::string& caption, const std::string& style, const std::string& background) {
  return caption + (style.empty() ? "" : ", " + style) +
         (background.empty() ? "" : ", on a " + background + " background");
}

struct IconDataset::Drawings {
  std::mutex lock;
  Tensors pictures;  // undefined where it was not asked for, or had no room
  int64_t bytes = 0;
};

IconDataset::IconDataset(const std::string& tar_path, IconOptions options)
    : pictures_({tar_path}, reading()), options_(std::move(options)) {
  SF_CHECK(options_.size > 0, "IconDataset: size must be above 0, got ", options_.size);
  for (int64_t i = 0; i < pictures_.size(); ++i) {
    Icon icon = icon_of(pictures_.metadata(i), i, pictures_.sample_name(i));
    if (!options_.splits.empty() && !has(options_.splits, icon.split)) continue;
    if (!options_.styles.empty() && !has(options_.styles, icon.style)) continue;
    if (!has(options_.left_out_groups, icon.group)) icons_.push_back(std::move(icon));
  }
  kept_ = std::make_unique<Drawings>();
  kept_->pictures.resize(icons_.size());
  SF_CHECK(!icons_.empty(), "IconDataset: ", tar_path, " has no pictures of these splits, styles and groups");
}

IconDataset::~IconDataset() = default;

const Icon& IconDataset::icon(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size(), "IconDataset: there are ", size(), " icons, got index ", index);
  return icons_[size_t(index)];
}

std::string IconDataset::sample_name(int64_t index) const { return pictures_.sample_name(icon(index).index); }

Tensor IconDataset::drawing(int64_t index) const {
  const int64_t place = icon(index).index;
  {
    std::lock_guard guard(kept_->lock);
    if (const Tensor& kept = kept_->pictures[size_t(index)]; kept.defined()) return kept;
  }
  Tensor drawing = pictures_.picture(place);
  std::lock_guard guard(kept_->lock);
  Tensor& kept = kept_->pictures[size_t(index)];
  if (!kept.defined() && kept_->bytes + int64_t(drawing.nbytes()) <= options_.kept_bytes) {
    kept = drawing;
    kept_->bytes += int64_t(drawing.nbytes());
  }
  return drawing;
}

Tensor IconDataset::picture(int64_t index, const std::array<uint8_t, 3>& background) const {
  SampleRandom unused(0);
  Tensor rgb = (*transforms::composite(background))(drawing(index), unused);
  if (rgb.size(1) != options_.size || rgb.size(2) != options_.size)
    rgb = (*transforms::resize({options_.size, options_.size}, Filter::Lanczos))(rgb, unused);
  static const TransformPtr floats = transforms::compose({transforms::to_float(), transforms::normalize({0.5}, {0.5})});
  return (*floats)(rgb, unused);
}

std::string IconDataset::subject(int64_t index, SampleRandom& random) const {
  const Icon& it = icon(index);
  std::string subject = it.caption;
  if (!it.keywords.empty() && random.uniform() < options_.keyword_probability) {
    std::vector<std::string> words = it.keywords;
    size_t count = size_t(1 + random.below(std::min<int64_t>(3, int64_t(words.size()))));
    for (size_t i = 0; i < count; ++i) std::swap(words[i], words[i + size_t(random.below(int64_t(words.size() - i)))]);
    subject = words[0];
    for (size_t i = 1; i < count; ++i) subject += ", " + words[i];
  }
  return subject;
}

std::string IconDataset::prompt(int64_t index, const std::string& background, SampleRandom& random) const {
  const std::string what = subject(index, random);
  return icon_prompt(what, random.uniform() < options_.style_dropout ? "" : icon(index).style, background);
}

Sample IconDataset::get(int64_t index, SampleRandom& random) const {
  auto& colours = background_colours();
  const NamedColour* colour = random.uniform() < options_.background_probability
                                  ? &colours[size_t(random.below(int64_t(colours.size())))]
                                  : nullptr;
  Sample sample;
  sample.image = picture(index, (colour ? *colour : colours[0]).rgb);
  sample.caption = prompt(index, colour ? colour->name : "", random);
  sample.name = sample_name(index);
  sample.index = index;
  return sample;
}

std::vector<std::string> IconDataset::texts() const {
  std::set<std::string> all;
  for (auto& it : icons_) {
    all.insert(icon_prompt(it.caption, it.style));
    all.insert(it.keywords.begin(), it.keywords.end());
  }
  for (auto& colour : background_colours()) all.insert(icon_prompt("", "", colour.name));
  return {all.begin(), all.end()};
}

}  // namespace sf::data
