#include "scaffolding/train/evaluation/icon_judge.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/picture_features.h"

namespace sf::train {

namespace {

constexpr int64_t kDirections = 64, kColourPrompts = 5;
constexpr size_t kRoundTrips = 1500;  // about ten for each number of texture_features

std::vector<int64_t> shuffled(std::vector<int64_t> items, uint64_t seed) {
  data::SampleRandom random(seed);
  for (size_t i = 0; i + 1 < items.size(); ++i)
    std::swap(items[i], items[i + size_t(random.below(int64_t(items.size() - i)))]);
  return items;
}

std::vector<int64_t> places_of_split(const data::IconDataset& icons, const std::string& split) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < icons.size(); ++i)
    if (split.empty() || icons.icon(i).split == split) places.push_back(i);
  return places;
}

Tensor bytes_of(const Tensor& picture) {  // of [-1, 1]
  return clamp(round((picture + 1) * 127.5), 0, 255).to(kUInt8);
}

// By 1 2 1 in both directions, `times` over: twice is a Gaussian of sigma 1.
Tensor softened(const Tensor& picture, int times) {
  Tensor x = picture.to(kFloat32).unsqueeze(1);
  Tensor kernel = tensor(std::vector<float>{1, 2, 1, 2, 4, 2, 1, 2, 1}, {1, 1, 3, 3}) / 16;
  for (int i = 0; i < times; ++i) x = conv2d(pad(x, {1, 1, 1, 1}, "replicate"), kernel);
  return clamp(round(x.squeeze(1)), 0, 255).to(kUInt8);
}

Tensor noisy(const Tensor& picture, double deviation, uint64_t seed) {
  Generator generator = make_generator();
  generator->manual_seed(seed);
  Tensor x = picture.to(kFloat32);
  return clamp(round(x + randn(x.shape(), generator) * deviation), 0, 255).to(kUInt8);
}

}  // namespace

std::vector<EvaluationPrompt> evaluation_prompts(const data::IconDataset& icons, int64_t count,
                                                 const std::vector<std::string>& splits, uint64_t seed) {
  SF_CHECK(count > 0, "evaluation_prompts: count must be above 0, got ", count);
  std::vector<EvaluationPrompt> prompts;
  auto add = [&](const std::string& set, int64_t icon, const std::string& background) {
    auto& it = icons.icon(icon);
    prompts.push_back({set, icon, data::icon_prompt(it.caption, it.style, background), background});
  };
  std::vector<int64_t> train = shuffled(places_of_split(icons, "train"), seed);
  for (auto& split : splits) {
    auto places = split == "train" ? train : places_of_split(icons, split);
    SF_CHECK(!places.empty(), "evaluation_prompts: the data have no icons of the split '", split, "'");
    for (size_t i = 0; i < places.size() && (split != "train" || i < size_t(count)); ++i) add(split, places[i], "");
  }
  size_t next = std::min(size_t(count), train.size() / 2);
  for (auto& colour : data::background_colours())
    for (int64_t i = 0; i < kColourPrompts && next < train.size(); ++i) add("backgrounds", train[next++], colour.name);
  return prompts;
}

IconJudge::IconJudge(std::shared_ptr<const data::IconDataset> icons, const RoundTrip& round_trip,
                     const std::function<void(int64_t, int64_t)>& progress)
    : icons_(std::move(icons)), layout_(size_t(icons_->size())), directions_(0, 0) {
  const int64_t n = icons_->size();
  for (int64_t i = 0; i < n; ++i) {
    of_style_[icons_->icon(i).style].push_back(i);
    of_caption_[icons_->icon(i).caption].push_back(i);
  }
  SF_CHECK(of_style_.size() > 1, "IconJudge: needs icons of two styles at least, to tell them apart");
  std::vector<std::string> styles;
  for (auto& [name, places] : of_style_) styles.push_back(name);

  // The classifier sees icons of "train": each once as it is, softened once, or softened twice with a little noise; or
  // some of them as the autoencoder gives them back.
  std::vector<int64_t> train = places_of_split(*icons_, "train");
  if (round_trip && train.size() > kRoundTrips) train = shuffled(train, 0), train.resize(kRoundTrips);
  SF_CHECK(!train.empty(), "IconJudge: the data have no icons of the split 'train'");
  std::vector<int64_t> row(size_t(n), -1), label;
  for (size_t i = 0; i < train.size(); ++i) {
    row[size_t(train[i])] = int64_t(i);
    label.push_back(std::find(styles.begin(), styles.end(), icons_->icon(train[i]).style) - styles.begin());
  }
  Matrix texture(int64_t(train.size()), kTextureFeatures);
  constexpr int64_t kBlock = 64;  // between two reports
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    parallel_for(end - begin, 8, [&](int64_t b, int64_t e) {
      for (int64_t i = begin + b; i < begin + e; ++i) {
        Tensor picture = this->picture(i);
        layout_[size_t(i)] = layout_features(picture);
        if (row[size_t(i)] < 0 || round_trip) continue;
        const int64_t way = row[size_t(i)] % 3;
        if (way > 0) picture = softened(picture, int(way));
        if (way == 2) picture = noisy(picture, 3, uint64_t(i));
        auto features = texture_features(picture);
        std::copy(features.begin(), features.end(), texture.values.begin() + row[size_t(i)] * kTextureFeatures);
      }
    });
    if (progress) progress(end, n);
  }
  if (round_trip)
    for (int64_t icon : train) {
      auto features = texture_features(round_trip(this->picture(icon)));
      std::copy(features.begin(), features.end(), texture.values.begin() + row[size_t(icon)] * kTextureFeatures);
    }
  classifier_ = std::make_unique<StyleClassifier>(styles, texture, label);

  mean_.assign(size_t(kLayoutFeatures), 0.f);
  for (auto& features : layout_)
    for (size_t j = 0; j < mean_.size(); ++j) mean_[j] += features[j] / float(n);
  for (auto& features : layout_)
    for (size_t j = 0; j < mean_.size(); ++j) features[j] -= mean_[j];

  Matrix all(n, kCoarseFeatures);
  for (int64_t i = 0; i < n; ++i) {
    auto features = coarse_features(layout_[size_t(i)]);
    std::copy(features.begin(), features.end(), all.values.begin() + i * kCoarseFeatures);
  }
  EigenDecomposition eigen = symmetric_eigen(gaussian_of(all).covariance);
  directions_ = Matrix(kCoarseFeatures, kDirections);
  double variance = 0;
  for (int64_t k = 0; k < kDirections; ++k) variance += eigen.values[size_t(kCoarseFeatures - 1 - k)];
  for (int64_t i = 0; i < kCoarseFeatures; ++i)
    for (int64_t k = 0; k < kDirections; ++k)
      directions_(i, k) = eigen.vectors(i, kCoarseFeatures - 1 - k) / std::sqrt(std::max(variance, 1e-12));
}

Tensor IconJudge::picture(int64_t icon, const std::string& background) const {
  auto& colours = data::background_colours();
  auto colour = std::find_if(colours.begin(), colours.end(), [&](auto& c) { return background == c.name; });
  return bytes_of(icons_->picture(icon, (background.empty() || colour == colours.end() ? colours[0] : *colour).rgb));
}

std::vector<float> IconJudge::centred(const Tensor& picture) const {
  std::vector<float> x = layout_features(picture);
  for (size_t j = 0; j < x.size(); ++j) x[j] -= mean_[j];
  return x;
}

double IconJudge::cosine(const std::vector<float>& x, int64_t other) const {
  auto& y = layout_[size_t(other)];
  float inner = 0, squares = 1e-12f;
  for (size_t j = 0; j < x.size(); ++j) inner += x[j] * y[j], squares += y[j] * y[j];
  return inner / std::sqrt(squares);
}

int64_t IconJudge::rank(const Tensor& picture, int64_t icon) const {
  std::vector<float> x = centred(picture);
  const double own = cosine(x, icon);
  int64_t rank = 1;
  for (int64_t other : of_style_.at(icons_->icon(icon).style)) rank += other != icon && cosine(x, other) >= own;
  return rank;
}

std::optional<std::string> IconJudge::style(const Tensor& picture, int64_t icon) const {
  auto& same = of_caption_.at(icons_->icon(icon).caption);
  auto style_of = [&](int64_t i) -> const std::string& { return icons_->icon(i).style; };
  if (std::all_of(same.begin(), same.end(), [&](int64_t i) { return style_of(i) == style_of(icon); }))
    return std::nullopt;
  std::vector<float> x = centred(picture);
  return style_of(
      *std::max_element(same.begin(), same.end(), [&](int64_t a, int64_t b) { return cosine(x, a) < cosine(x, b); }));
}

std::string IconJudge::texture_style(const Tensor& picture) const {
  return classifier_->styles()[size_t(classifier_->classify(texture_features(picture)))];
}

std::string IconJudge::background(const Tensor& picture) {
  auto found = border_colour(picture);
  auto& colours = data::background_colours();
  return std::min_element(colours.begin(), colours.end(),
                          [&](auto& a, auto& b) { return lab_distance(a.rgb, found) < lab_distance(b.rgb, found); })
      ->name;
}

Matrix IconJudge::coarse(const std::vector<std::vector<float>>& layouts) const {
  Matrix features(int64_t(layouts.size()), kCoarseFeatures);
  for (size_t i = 0; i < layouts.size(); ++i) {
    auto row = coarse_features(layouts[i]);
    std::copy(row.begin(), row.end(), features.values.begin() + int64_t(i) * kCoarseFeatures);
  }
  return product(features, directions_);
}

double IconJudge::frechet(const Tensors& pictures) const {
  SF_CHECK(pictures.size() > 1, "IconJudge: the distance of sets needs two pictures at least, got ", pictures.size());
  std::vector<std::vector<float>> made(pictures.size());
  parallel_for(int64_t(pictures.size()), 8, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) made[size_t(i)] = centred(pictures[size_t(i)]);
  });
  return frechet_distance(gaussian_of(coarse(made)), gaussian_of(coarse(layout_)));
}

double IconJudge::frechet_of_real(int64_t count, uint64_t seed) const {
  SF_CHECK(count > 1 && count + 1 < icons_->size(),
           "IconJudge: the distance of sets needs two pictures and two others at least, got ", count, " of ",
           icons_->size());
  std::vector<int64_t> places = shuffled(places_of_split(*icons_, ""), seed);
  std::vector<std::vector<float>> some, others;
  for (size_t i = 0; i < places.size(); ++i) (int64_t(i) < count ? some : others).push_back(layout_[size_t(places[i])]);
  return frechet_distance(gaussian_of(coarse(some)), gaussian_of(coarse(others)));
}

std::vector<Judgement> IconJudge::judge(const std::vector<EvaluationPrompt>& prompts, const Tensors& pictures) const {
  SF_CHECK(prompts.size() == pictures.size(), "IconJudge: needs a prompt for each picture, got ", prompts.size(),
           " and ", pictures.size());
  std::vector<Judgement> all(prompts.size());
  parallel_for(int64_t(prompts.size()), 4, [&](int64_t b, int64_t e) {
    for (auto i = size_t(b); i < size_t(e); ++i)
      all[i] = {rank(pictures[i], prompts[i].icon), style(pictures[i], prompts[i].icon), texture_style(pictures[i]),
                background(pictures[i])};
  });
  return all;
}

RetrievalFigures IconJudge::retrieval(const std::vector<EvaluationPrompt>& prompts, const Tensors& pictures) const {
  int64_t top1 = 0, top5 = 0, chosen = 0, right = 0, texture = 0;
  std::vector<Judgement> all = judge(prompts, pictures);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& asked = icons_->icon(prompts[i].icon).style;
    top1 += all[i].rank == 1;
    top5 += all[i].rank <= 5;
    if (all[i].style) ++chosen, right += *all[i].style == asked;
    texture += all[i].texture == asked;
  }
  const double n = double(std::max<size_t>(1, prompts.size()));
  return {int64_t(prompts.size()), double(top1) / n, double(top5) / n,
          double(right) / double(std::max<int64_t>(1, chosen)), double(texture) / n};
}

std::vector<SelfCheckRow> self_check(const IconJudge& judge, int64_t count, uint64_t seed,
                                     const std::function<Tensor(const Tensor&)>& round_trip) {
  // Icons that the classifier has not seen, as far as there are any.
  std::vector<int64_t> places;
  for (int64_t i = 0; i < judge.icons().size(); ++i)
    if (judge.icons().icon(i).split != "train") places.push_back(i);
  if (places.empty()) places = places_of_split(judge.icons(), "");
  places = shuffled(std::move(places), seed);
  if (int64_t(places.size()) > count) places.resize(size_t(count));
  std::vector<EvaluationPrompt> prompts;
  Tensors pictures;
  for (int64_t i : places) prompts.push_back({"", i, "", ""}), pictures.push_back(judge.picture(i));

  std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> changes{
      {"as they are", [](const Tensor& x) { return x; }},
      {"moved by 2 pixels",
       [](const Tensor& x) {
         return roll(x, {2, -2}, {1, 2});
       }},
      {"softened (sigma 1)", [](const Tensor& x) { return softened(x, 2); }},
      {"noise (sigma 8 of 255)", [&](const Tensor& x) { return noisy(x, 8, seed); }},
  };
  if (round_trip) changes.emplace_back("through the autoencoder", round_trip);
  std::vector<SelfCheckRow> rows;
  for (auto& [name, change] : changes) {
    Tensors changed;
    for (auto& picture : pictures) changed.push_back(change(picture));
    rows.push_back({name, judge.retrieval(prompts, changed)});
  }
  return rows;
}

double background_check(const IconJudge& judge, int64_t count, uint64_t seed) {
  std::vector<int64_t> places = shuffled(places_of_split(judge.icons(), ""), seed);
  if (int64_t(places.size()) > count) places.resize(size_t(count));
  auto& colours = data::background_colours();
  int64_t right = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string name = colours[i % colours.size()].name;
    right += IconJudge::background(judge.picture(places[i], name)) == name;
  }
  return double(right) / double(places.size());
}

}  // namespace sf::train
