#include "scaffolding/train/evaluation/composition_judge.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/data/colour_names.h"
#include "scaffolding/data/icon_canvas.h"
#include "scaffolding/data/icon_phrases.h"
#include "scaffolding/data/recolour.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {

constexpr int64_t kNearest = 5, kColours = 16 * 16 * 3;  // colours come first in layout_features
constexpr int64_t kFrame = 64, kSide = 56;               // of a part, in pixels
constexpr int64_t kCuts = 6;
constexpr int64_t kBorder = 2;
constexpr float kStandsOut = 24;  // levels of 255

std::vector<int64_t> shuffled_train(const data::IconDataset& icons, uint64_t seed) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < icons.size(); ++i)
    if (icons.icon(i).split == "train") places.push_back(i);
  data::SampleRandom random(seed);
  for (size_t i = 0; i + 1 < places.size(); ++i)
    std::swap(places[i], places[i + size_t(random.below(int64_t(places.size() - i)))]);
  return places;
}

// Where something stands, and the columns in which nothing does.
struct Figure {
  int64_t height = 0, width = 0;
  Tensor picture;  // contiguous
  std::vector<uint8_t> seen;
};

// Without the outer two pixels, where autoencoders smear, and without specks: five of the nine about a pixel stand out.
Figure figure_of(const Tensor& picture) {
  Figure out{picture.size(1), picture.size(2), picture.contiguous(), {}};
  const auto ground = border_colour(picture);
  const auto* p = out.picture.data<uint8_t>();
  const int64_t area = out.height * out.width;
  std::vector<uint8_t> away(size_t(area), 0);
  for (int64_t i = 0; i < area; ++i) {
    float most = 0;
    for (int64_t c = 0; c < 3; ++c) most = std::max(most, std::abs(float(p[c * area + i]) - float(ground[size_t(c)])));
    away[size_t(i)] = most > kStandsOut ? 1 : 0;
  }
  out.seen.assign(size_t(area), 0);
  for (int64_t y = kBorder; y + kBorder < out.height; ++y)
    for (int64_t x = kBorder; x + kBorder < out.width; ++x) {
      int about = 0;
      for (int64_t dy = -1; dy <= 1; ++dy)
        for (int64_t dx = -1; dx <= 1; ++dx) about += away[size_t((y + dy) * out.width + x + dx)];
      out.seen[size_t(y * out.width + x)] = about >= 5 ? 1 : 0;
    }
  return out;
}

// What stands in these columns, on white, in the middle of a frame of one size; absent where nothing does.
std::optional<Tensor> part_of(const Figure& figure, int64_t begin, int64_t end) {
  Tensor drawing = empty({4, figure.height, figure.width}, kUInt8, Device::CPU);
  const int64_t area = figure.height * figure.width;
  auto* to = drawing.data<uint8_t>();
  std::copy_n(figure.picture.data<uint8_t>(), 3 * area, to);
  for (int64_t i = 0; i < area; ++i) {
    const int64_t x = i % figure.width;
    to[3 * area + i] = figure.seen[size_t(i)] && x >= begin && x < end ? 255 : 0;
  }
  const data::CutIcon cut = data::cut_icon(drawing, false);
  if (cut.width < 3 || cut.height < 3) return std::nullopt;
  data::IconCanvas canvas(kFrame, {});
  canvas.put(cut,
             {.x = kFrame / 2.0, .y = kFrame / 2.0, .scale = double(kSide) / double(std::max(cut.width, cut.height))});
  return canvas.picture();
}

// Columns at which the picture may be cut: the middles of the widest gaps, and where least stands near the middle.
std::vector<int64_t> cuts_of(const Figure& figure) {
  std::vector<int64_t> columns(size_t(figure.width), 0);
  for (size_t i = 0; i < figure.seen.size(); ++i) columns[i % size_t(figure.width)] += figure.seen[i];
  const auto stands = [](int64_t count) { return count > 0; };
  const auto first = std::find_if(columns.begin(), columns.end(), stands) - columns.begin(),
             last = figure.width - (std::find_if(columns.rbegin(), columns.rend(), stands) - columns.rbegin());
  std::vector<std::pair<int64_t, int64_t>> gaps;  // width, middle
  for (int64_t x = first; x < last;) {
    int64_t end = x;
    while (end < last && columns[size_t(end)] == 0) ++end;
    if (end > x) gaps.emplace_back(end - x, (x + end) / 2);
    x = std::max(end, x + 1);
  }
  std::sort(gaps.rbegin(), gaps.rend());
  if (int64_t(gaps.size()) > kCuts) gaps.resize(size_t(kCuts));
  std::vector<int64_t> cuts;
  for (auto& gap : gaps) cuts.push_back(gap.second);
  if (last - first > 3)
    for (auto [from, to] : {std::pair{0.3, 0.5}, std::pair{0.5, 0.7}}) {
      const auto b = columns.begin() + first + int64_t(from * double(last - first)),
                 e = columns.begin() + first + int64_t(to * double(last - first));
      if (b < e) cuts.push_back(std::min_element(b, e) - columns.begin());
    }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void centre(std::vector<std::vector<float>>& all, std::vector<float>& mean) {
  mean.assign(all.at(0).size(), 0.f);
  for (auto& x : all)
    for (size_t j = 0; j < mean.size(); ++j) mean[j] += x[j] / float(all.size());
}

void normalise(std::vector<float>& x, const std::vector<float>& mean) {
  float squares = 1e-12f;
  for (size_t j = 0; j < x.size(); ++j) x[j] -= mean[j], squares += x[j] * x[j];
  for (float& v : x) v /= std::sqrt(squares);
}

float inner(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

std::vector<float> outlines_of(const Tensor& picture) {
  const auto layout = layout_features(picture);
  return {layout.begin() + kColours, layout.end()};
}

Tensor on_white(const data::IconDataset& icons, int64_t icon) {
  data::IconCanvas canvas(icons.options().size, {});
  const data::CutIcon cut = data::cut_icon(icons.drawing(icon), true);
  const double middle = double(icons.options().size) / 2;
  canvas.put(cut, {.x = middle, .y = middle, .scale = 2 * middle / double(std::max(cut.width, cut.height))});
  return canvas.picture();
}

double share(int64_t some, int64_t all) { return all > 0 ? double(some) / double(all) : 0; }

}  // namespace

std::vector<CompositionPrompt> composition_prompts(const data::IconDataset& icons, int64_t count, uint64_t seed) {
  SF_CHECK(count >= 0, "composition_prompts: count must not be negative, got ", count);
  const std::vector<int64_t> places = shuffled_train(icons, seed);
  data::SampleRandom random(seed + 1);
  std::vector<CompositionPrompt> prompts;
  auto& names = data::colour_names();
  int64_t made = 0;
  for (size_t i = 0; i < places.size() && made < count; ++i) {
    const data::Icon& icon = icons.icon(places[i]);
    if (!data::can_be_coloured(icon) || !data::can_be_paired(icon)) continue;
    const std::string& colour = names[1 + size_t(made) % (names.size() - 1)];  // white is the first
    const Tensor drawing = icons.drawing(places[i]);
    if (data::colours_of_drawing(drawing).share[size_t(data::named_colour(colour))] > 0.15) continue;
    if (!data::recoloured(drawing, colour)) continue;
    prompts.push_back(
        {"colours", data::icon_prompt(*data::coloured(colour, icon.caption), icon.style), {{places[i], colour}}});
    ++made;
  }
  std::map<std::string, std::vector<int64_t>> of_style;
  for (int64_t i : places)
    if (data::can_be_paired(icons.icon(i))) of_style[icons.icon(i).style].push_back(i);
  made = 0;
  for (size_t i = 0; i < places.size() && made < count; ++i) {
    const data::Icon& icon = icons.icon(places[i]);
    if (!data::can_be_paired(icon)) continue;
    const auto& others = of_style.at(icon.style);
    const int64_t other = others[size_t(random.below(int64_t(others.size())))];
    if (icons.icon(other).caption == icon.caption) continue;
    prompts.push_back({"pairs",
                       data::icon_prompt(icon.caption + " and " + icons.icon(other).caption, icon.style),
                       {{places[i]}, {other}}});
    ++made;
  }
  made = 0;
  for (size_t i = 0; i < places.size() && made < count; ++i) {
    const data::Icon& icon = icons.icon(places[i]);
    if (!data::can_be_paired(icon)) continue;
    const int64_t things = 2 + made % 2;
    const auto phrase = data::counted(things, icon.caption);
    if (!phrase) continue;
    prompts.push_back({"counts", data::icon_prompt(*phrase, icon.style),
                       std::vector<data::IconPart>(size_t(things), data::IconPart{places[i]})});
    ++made;
  }
  for (size_t i = 0; i < places.size() && int64_t(i) < count / kSeedsOfEach; ++i) {
    const data::Icon& icon = icons.icon(places[i]);
    for (int64_t k = 0; k < kSeedsOfEach; ++k)
      prompts.push_back({"seeds", data::icon_prompt(icon.caption, icon.style), {{places[i]}}});
  }
  return prompts;
}

CompositionJudge::CompositionJudge(std::shared_ptr<const data::ComposedIcons> composed)
    : composed_(std::move(composed)) {
  SF_CHECK(composed_, "CompositionJudge: needs icons");
  const data::IconDataset& icons = composed_->icons();
  outline_.resize(size_t(icons.size()));
  part_.resize(size_t(icons.size()));
  std::vector<Features> layout(size_t(icons.size()));
  for (int64_t i = 0; i < icons.size(); ++i) of_style_[icons.icon(i).style].push_back(i);
  parallel_for(icons.size(), 8, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const Tensor picture = on_white(icons, i);
      layout[size_t(i)] = layout_features(picture);
      outline_[size_t(i)] = {layout[size_t(i)].begin() + kColours, layout[size_t(i)].end()};
      const auto part = part_of(figure_of(picture), 0, picture.size(2));
      part_[size_t(i)] = part ? layout_features(*part) : Features(size_t(kLayoutFeatures), 0.f);
    }
  });
  centre(layout, mean_layout_);
  centre(outline_, mean_outline_);
  centre(part_, mean_part_);
  for (auto& x : outline_) normalise(x, mean_outline_);
  for (auto& x : part_) normalise(x, mean_part_);
}

std::string CompositionJudge::colour(const Tensor& picture) {
  return data::colours_of_picture(picture, border_colour(picture)).most();
}

bool CompositionJudge::is_near(const std::vector<Features>& known, const Features& x, int64_t icon) const {
  // Icons of one caption and style are one thing.
  const data::IconDataset& icons = composed_->icons();
  const data::Icon& asked = icons.icon(icon);
  const float own = inner(x, known[size_t(icon)]);
  int64_t nearer = 0;
  for (int64_t other : of_style_.at(asked.style))
    nearer += icons.icon(other).caption != asked.caption && inner(x, known[size_t(other)]) > own;
  return nearer < kNearest;
}

// A mirrored thing is the thing.
bool CompositionJudge::is_thing(const Tensor& picture, int64_t icon) const {
  for (const Tensor& seen : {picture, flip(picture, {2})}) {
    Features x = outlines_of(seen);
    normalise(x, mean_outline_);
    if (is_near(outline_, x, icon)) return true;
  }
  return false;
}

int64_t CompositionJudge::found(const Tensor& picture, const std::vector<int64_t>& icons) const {
  const Figure figure = figure_of(picture);
  const std::vector<int64_t> cuts = cuts_of(figure);
  const size_t parts = icons.size();
  SF_CHECK(parts >= 1 && parts <= 3, "CompositionJudge: looks for 1 to 3 things, got ", parts);
  // near(begin, end): which of the icons a part may be.
  std::map<std::pair<int64_t, int64_t>, std::vector<bool>> known;
  const auto near = [&](int64_t begin, int64_t end) -> const std::vector<bool>& {
    auto [it, is_new] = known.try_emplace({begin, end});
    if (!is_new) return it->second;
    it->second.assign(parts, false);
    if (const auto part = part_of(figure, begin, end)) {
      for (const Tensor& seen : {*part, flip(*part, {2})}) {
        Features x = layout_features(seen);
        normalise(x, mean_part_);
        for (size_t k = 0; k < parts; ++k) it->second[k] = it->second[k] || is_near(part_, x, icons[k]);
      }
    }
    return it->second;
  };
  int64_t best = 0;
  const auto count = [&](const std::vector<int64_t>& bounds) {
    std::vector<size_t> order(parts);
    for (size_t k = 0; k < parts; ++k) order[k] = k;
    do {
      int64_t hits = 0;
      for (size_t k = 0; k < parts; ++k) hits += near(bounds[k], bounds[k + 1])[order[k]];
      best = std::max(best, hits);
    } while (std::next_permutation(order.begin(), order.end()));
  };
  if (parts == 1) count({0, figure.width});
  for (size_t a = 0; a < cuts.size() && parts > 1 && best < int64_t(parts); ++a) {
    if (parts == 2) count({0, cuts[a], figure.width});
    for (size_t b = a + 1; b < cuts.size() && parts == 3 && best < 3; ++b) count({0, cuts[a], cuts[b], figure.width});
  }
  return best;
}

double CompositionJudge::distance(const Tensor& a, const Tensor& b) const {
  Features x = layout_features(a), y = layout_features(b);
  normalise(x, mean_layout_);
  normalise(y, mean_layout_);
  return 1 - double(inner(x, y));
}

std::vector<CompositionJudgement> CompositionJudge::judge(const std::vector<CompositionPrompt>& prompts,
                                                          const Tensors& pictures) const {
  SF_CHECK(prompts.size() == pictures.size(), "CompositionJudge: needs a prompt for each picture, got ", prompts.size(),
           " and ", pictures.size());
  std::vector<CompositionJudgement> all(prompts.size());
  parallel_for(int64_t(prompts.size()), 1, [&](int64_t b, int64_t e) {
    for (auto i = size_t(b); i < size_t(e); ++i) {
      const CompositionPrompt& asked = prompts[i];
      CompositionJudgement& out = all[i];
      if (asked.set == "colours") {
        out.colour = colour(pictures[i]);
        out.right_colour = out.colour == asked.parts[0].colour;
        out.thing = is_thing(pictures[i], asked.parts[0].icon);
      } else if (asked.set != "seeds") {
        std::vector<int64_t> icons;
        for (auto& part : asked.parts) icons.push_back(part.icon);
        out.things = int64_t(icons.size());
        out.found = found(pictures[i], icons);
      }
    }
  });
  return all;
}

CompositionFigures CompositionJudge::figures(const std::vector<CompositionPrompt>& prompts,
                                             const Tensors& pictures) const {
  const auto all = judge(prompts, pictures);
  CompositionFigures f;
  int64_t right = 0, thing = 0, coloured = 0, both = 0, one = 0, counted = 0, compared = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& set = prompts[i].set;
    if (set == "colours") {
      ++f.colours, right += all[i].right_colour, thing += all[i].thing;
      coloured += all[i].right_colour && all[i].thing;
    } else if (set == "pairs") {
      ++f.pairs, both += all[i].found == 2, one += all[i].found >= 1;
    } else if (set == "counts") {
      ++f.counts, counted += all[i].found == all[i].things;
    } else {
      const bool first = i == 0 || prompts[i - 1].set != set || prompts[i - 1].prompt != prompts[i].prompt;
      f.seeds += first;
      for (size_t j = i; j > 0 && prompts[j - 1].set == set && prompts[j - 1].prompt == prompts[i].prompt; --j)
        f.seed_distance += distance(pictures[i], pictures[j - 1]), ++compared;
    }
  }
  f.right_colour = share(right, f.colours);
  f.thing = share(thing, f.colours);
  f.coloured_thing = share(coloured, f.colours);
  f.both_found = share(both, f.pairs);
  f.one_found = share(one, f.pairs);
  f.all_found = share(counted, f.counts);
  f.seed_distance = compared > 0 ? f.seed_distance / double(compared) : 0;
  return f;
}

std::vector<CompositionCheckRow> composition_check(const CompositionJudge& judge,
                                                   const std::vector<CompositionPrompt>& prompts, uint64_t seed,
                                                   const std::function<Tensor(const Tensor&)>& round_trip) {
  Tensors pictures, again;
  for (size_t i = 0; i < prompts.size(); ++i) {
    data::SampleRandom random(seed, uint64_t(i), 0);
    const auto& parts = prompts[i].parts;
    if (prompts[i].set == "seeds") {
      pictures.push_back(judge.composed().as_drawn(parts[0].icon, {}, random));
    } else {
      auto made = parts.size() == 1 ? judge.composed().single(parts[0], {}, false, random)
                                    : judge.composed().row(parts, {}, random);
      SF_CHECK(made, "composition_check: '", prompts[i].prompt, "' cannot be composed");
      pictures.push_back(std::move(*made));
    }
    if (round_trip) again.push_back(round_trip(pictures.back()));
  }
  std::vector<CompositionCheckRow> rows{{"composed of real icons", judge.figures(prompts, pictures)}};
  if (round_trip) rows.push_back({"through the autoencoder", judge.figures(prompts, again)});
  // Each prompt with the picture of another of its set: Sattolo's shuffle leaves none in its place.
  std::map<std::string, std::vector<size_t>> of_set;
  Tensors others(prompts.size());
  data::SampleRandom random(seed);
  for (size_t i = 0; i < prompts.size(); ++i) of_set[prompts[i].set].push_back(i);
  for (auto& [set, places] : of_set) {
    std::vector<size_t> from = places;
    for (size_t k = 1; k < from.size(); ++k) std::swap(from[k], from[size_t(random.below(int64_t(k)))]);
    for (size_t k = 0; k < from.size(); ++k) others[places[k]] = pictures[from[k]];
  }
  rows.push_back({"by chance", judge.figures(prompts, others)});
  return rows;
}

NamedColours named_colours_check(const data::IconDataset& icons) {
  NamedColours out;
  int64_t right = 0;
  for (int64_t i = 0; i < icons.size(); ++i) {
    const std::string& caption = icons.icon(i).caption;
    std::string word = caption.substr(0, caption.find(' '));
    if (word == "grey") word = "gray";
    if (!data::is_colour_word(word) || word == "white" || word.size() == caption.size()) continue;
    ++out.pictures;
    right += CompositionJudge::colour(on_white(icons, i)) == word;
  }
  out.right = share(right, out.pictures);
  return out;
}

double distance_of_others(const CompositionJudge& judge, int64_t count, uint64_t seed) {
  const data::IconDataset& icons = judge.composed().icons();
  const std::vector<int64_t> places = shuffled_train(icons, seed);
  std::map<std::string, Tensor> last;
  double sum = 0;
  int64_t compared = 0;
  for (size_t i = 0; i < places.size() && int64_t(i) < count; ++i) {
    const Tensor picture = on_white(icons, places[i]);
    Tensor& before = last[icons.icon(places[i]).style];
    if (before) sum += judge.distance(picture, before), ++compared;
    before = picture;
  }
  return compared > 0 ? sum / double(compared) : 0;
}

}  // namespace sf::train
