#include "scaffolding/train/evaluation/clip_judge.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/picture_features.h"

namespace sf::train {

namespace {

double mean_distance(const TrackedClip& tracked, const std::vector<data::IconPlace>& way) {
  double sum = 0;
  for (size_t i = 0; i < way.size(); ++i)
    sum += std::hypot(tracked.frames[i].x - double(way[i].x), tracked.frames[i].y - double(way[i].y));
  return sum / double(std::max<size_t>(1, way.size()));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// The mean of what differs, a share of the range.
double difference(const Tensor& a, const Tensor& b) { return mean(abs(a.to(kFloat32) - b.to(kFloat32))).item() / 255; }

// The frame whose window is most like the mean of all; of those in which something was found, where there are any.
int64_t typical_frame(const TrackedClip& tracked, const Tensors& windows) {
  const bool any = std::any_of(tracked.frames.begin(), tracked.frames.end(), [](auto& f) { return f.found; });
  Tensors found;
  std::vector<int64_t> frames;
  for (size_t i = 0; i < windows.size(); ++i)
    if (!any || tracked.frames[i].found) found.push_back(windows[i].to(kFloat32)), frames.push_back(int64_t(i));
  const Tensor middle = mean(stack(found), {0});
  int64_t best = frames[0];
  double least = 1e30;
  for (size_t i = 0; i < found.size(); ++i)
    if (const double d = difference(found[i], middle); d < least) least = d, best = frames[i];
  return best;
}

}  // namespace

std::vector<ClipPrompt> clip_prompts(const data::MovingIcons& clips, int64_t count,
                                     const std::vector<std::string>& splits, uint64_t seed) {
  SF_CHECK(count > 0, "clip_prompts: count must be above 0, got ", count);
  std::vector<ClipPrompt> prompts;
  for (auto& split : splits) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < clips.size(); ++i)
      if (clips.icons().icon(i).split == split) places.push_back(i);
    SF_CHECK(!places.empty(), "clip_prompts: the data have no icons of the split '", split, "'");
    data::SampleRandom order(seed);
    for (size_t i = 0; i < places.size() && i < size_t(count); ++i) {
      std::swap(places[i], places[i + size_t(order.below(int64_t(places.size() - i)))]);
      data::SampleRandom random(seed, uint64_t(places[i]), 0);
      const data::Sample sample = clips.get(places[i], random);
      ClipPrompt prompt{split, places[i], sample.caption, {}, sample.image};
      const auto* point = sample.target.data<float>();
      for (int64_t f = 0; f < sample.target.size(1); ++f)
        prompt.way.push_back({int64_t(point[2 * f]), int64_t(point[2 * f + 1])});
      prompts.push_back(std::move(prompt));
    }
  }
  return prompts;
}

ClipFigures figures_of(const std::vector<ClipJudgement>& all) {
  ClipFigures f{.clips = int64_t(all.size())};
  if (all.empty()) return f;
  std::vector<double> distances, others;
  const auto n = double(all.size());
  for (auto& j : all) {
    f.top1 += double(j.rank == 1) / n, f.top5 += double(j.rank <= 5) / n;
    f.found += j.found / n, f.change += j.change / n;
    distances.push_back(j.distance), others.push_back(j.by_chance);
  }
  f.distance = median(std::move(distances)), f.by_chance = median(std::move(others));
  return f;
}

ClipJudge::ClipJudge(std::shared_ptr<const data::MovingIcons> clips)
    : clips_(std::move(clips)), layout_(size_t(clips_->size())) {
  const auto& o = clips_->options();
  const int64_t side = (o.smallest_icon + o.largest_icon) / 2, n = clips_->size();
  const data::transforms::Colour white{255, 255, 255};
  for (int64_t i = 0; i < n; ++i) of_style_[clips_->icons().icon(i).style].push_back(i);
  parallel_for(n, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Tensor still = clips_->clip(i, side, {{o.size / 2, o.size / 2}}, white, white);
      layout_[size_t(i)] = layout_features(cut_out(still, track(still), 0));
    }
  });
  mean_.assign(size_t(kLayoutFeatures), 0.f);
  for (auto& features : layout_)
    for (size_t j = 0; j < mean_.size(); ++j) mean_[j] += features[j] / float(n);
  for (auto& features : layout_)
    for (size_t j = 0; j < mean_.size(); ++j) features[j] -= mean_[j];
}

std::vector<float> ClipJudge::centred(const Tensor& picture) const {
  std::vector<float> x = layout_features(picture);
  for (size_t j = 0; j < x.size(); ++j) x[j] -= mean_[j];
  return x;
}

int64_t ClipJudge::rank(const Tensor& picture, int64_t icon) const {
  const std::vector<float> x = centred(picture);
  auto cosine = [&](int64_t other) {  // up to x's own length
    auto& y = layout_[size_t(other)];
    float inner = 0, squares = 1e-12f;
    for (size_t j = 0; j < x.size(); ++j) inner += x[j] * y[j], squares += y[j] * y[j];
    return inner / std::sqrt(squares);
  };
  const float own = cosine(icon);
  int64_t rank = 1;
  for (int64_t other : of_style_.at(clips_->icons().icon(icon).style)) rank += other != icon && cosine(other) >= own;
  return rank;
}

double ClipJudge::chance_of_top5() const {
  double sum = 0;
  for (auto& [style, icons] : of_style_) sum += std::min(5.0, double(icons.size()));
  return sum / double(clips_->size());
}

std::vector<ClipJudgement> ClipJudge::judge(const std::vector<ClipPrompt>& prompts, const Tensors& clips) const {
  SF_CHECK(prompts.size() == clips.size(), "ClipJudge: needs a prompt for each clip, got ", prompts.size(), " and ",
           clips.size());
  std::vector<ClipJudgement> all(prompts.size());
  parallel_for(int64_t(prompts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i) {
      const TrackedClip tracked = track(clips[i]);
      SF_CHECK(tracked.frames.size() == prompts[i].way.size(),
               "ClipJudge: a clip must have a frame for each point, got ", tracked.frames.size(), " and ",
               prompts[i].way.size());
      Tensors windows;
      double found = 0, change = 0;
      for (size_t f = 0; f < tracked.frames.size(); ++f) {
        windows.push_back(window(clips[i], tracked, int64_t(f), clips_->options().largest_icon));
        found += double(tracked.frames[f].found);
        if (f > 0) change += difference(windows[f], windows[f - 1]);
      }
      const auto frames = double(windows.size());
      all[i] = {.rank = rank(cut_out(clips[i], tracked, typical_frame(tracked, windows)), prompts[i].icon),
                .distance = mean_distance(tracked, prompts[i].way),
                .by_chance = mean_distance(tracked, prompts[(i + 1) % prompts.size()].way),
                .found = found / frames,
                .change = change / std::max(1.0, frames - 1)};
    }
  });
  return all;
}

}  // namespace sf::train
