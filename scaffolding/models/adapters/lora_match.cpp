#include <algorithm>
#include <cmath>
#include <tuple>

#include "scaffolding/models/adapters/lora_bases.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

using Components = std::vector<const AdapterStems*>;

// ---- shapes

Shape behind(const Shape& s, int64_t dims) {
  return s.size() <= dims ? Shape() : Shape(s.data() + dims, s.size() - dims);
}

Shape joined(int64_t rows, int64_t columns, const Shape& kernel) {
  Shape out{rows, columns};
  for (int64_t n : kernel) out.push_back(n);
  return out;
}

bool are_ones(const Shape& s) {
  return std::all_of(s.begin(), s.end(), [](int64_t n) { return n == 1; });
}

// A matrix of so many columns, or the convolution of one pixel that it is.
bool is_matrix(const Shape& s, int64_t columns) { return s.size() >= 2 && s[1] == columns && are_ones(behind(s, 2)); }

// "[rank, 320, 3, 3]"
std::string of_any_rank(const Shape& columns) {
  std::string out = "[rank";
  for (int64_t n : columns) out += ", " + std::to_string(n);
  return out + "]";
}

// ---- what is said

std::string listed(const LoraReport& report, LoraKey::Use use) {
  std::string out;
  size_t n = 0;
  for (auto& k : report.keys)
    if (k.use == use && ++n <= 3) out += (n > 1 ? ", '" : "'") + k.key + "' " + k.why;
  return n > 3 ? out + ", and " + std::to_string(n - 3) + " more" : out;
}

// The kind of model that most of a LoRA is for, by the same components; null where that is not more than `fitting`.
const SingleFileKind* better_base(const LoraFile& file, const Components& components, size_t fitting, size_t& most) {
  const SingleFileKind* out = nullptr;
  most = fitting;
  for (auto& base : lora_bases(file)) {
    Components same;
    for (auto& stems : *base.stems)
      for (auto* c : components)
        if (c->component() == stems.component()) same.push_back(&stems);
    if (const size_t n = file.fitting(same); n > most) most = n, out = base.kind;
  }
  return out;
}

void check_rows(const std::vector<LoraLayer>& layers, const std::string& path) {
  std::vector<const LoraLayer*> order;
  for (auto& l : layers) order.push_back(&l);
  std::sort(order.begin(), order.end(),
            [](auto* a, auto* b) { return std::tie(a->module, a->row) < std::tie(b->module, b->row); });
  for (size_t i = 1; i < order.size(); ++i) {
    auto &a = *order[i - 1], &b = *order[i];
    SF_CHECK(a.module != b.module || a.row + a.rows <= b.row, path, ": '", a.stem, "' and '", b.stem,
             "' are both for '", a.module, "'; the file holds one LoRA twice, or two");
  }
}

}  // namespace

size_t LoraReport::count(LoraKey::Use use) const {
  return size_t(std::count_if(keys.begin(), keys.end(), [&](auto& k) { return k.use == use; }));
}

LoraFile::Found LoraFile::fit(const Stem& stem, const AdapterStems& component, const AdaptedWeight& weight) const {
  Found out{&component, &weight, -1, {}};
  const Shape &w = weight.shape, kernel = behind(w, 2), &down = shape(stem.down), &up = shape(stem.up);
  auto misfit = [&](int key, const std::string& should) {
    Message m;
    m << "is " << shape(key) << " and should be " << should << " for '" << weight.targets[0].module << "' of " << w;
    out.misfit = m.str();
    out.misfit_key = key;
    return out;
  };
  const Shape columns = behind(down, 1), wanted = behind(w, 1);
  const bool as_written = down.size() > 1 && (columns == wanted || columns == behind(weight.written, 1));
  if (stem.mid >= 0 && !is_matrix(down, w[1])) return misfit(stem.down, of_any_rank({w[1], 1, 1}));
  if (stem.mid < 0 && !as_written && !(are_ones(kernel) && is_matrix(down, w[1])))
    return misfit(stem.down, of_any_rank(wanted));
  const int64_t rank = stem.rank;
  if (rank < 1 || rank > kMostLoraRank)
    return misfit(stem.down, of_any_rank(wanted) + " with a rank from 1 to " + std::to_string(kMostLoraRank));
  const Shape ones = Shape::filled(kernel.size(), 1);
  if (!is_matrix(up, rank) || up[0] != w[0]) return misfit(stem.up, str(joined(w[0], rank, ones)));
  if (stem.mid < 0) return out;
  if (kernel.empty()) return misfit(stem.mid, "left out");
  const Shape mid = joined(rank, rank, kernel);
  return shape(stem.mid) == mid ? out : misfit(stem.mid, str(mid));
}

LoraFile::Found LoraFile::find(const Stem& stem, const Components& components) const {
  Found best;
  bool best_is_meant = false;
  if (stem.kind || stem.down < 0) return best;
  for (auto* component : components) {
    const AdaptedWeight* weight = component->find(stem.name);
    if (!weight) continue;
    Found found = fit(stem, *component, *weight);
    const bool meant = component->class_name() == config_.class_name();
    if (!best.weight || std::pair(found.fits(), meant) > std::pair(best.fits(), best_is_meant)) {
      best = std::move(found);
      best_is_meant = meant;
    }
  }
  return best;
}

size_t LoraFile::fitting(const Components& components) const {
  return size_t(std::count_if(stems_.begin(), stems_.end(), [&](auto& stem) { return find(stem, components).fits(); }));
}

LoraReport LoraFile::report(const std::vector<Found>& found) const {
  LoraReport out;
  out.keys.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) out.keys[i].key = entries_[i].name;
  for (int key : strangers_) out.keys[size_t(key)].why = "is no part of an adapter";
  for (size_t i = 0; i < stems_.size(); ++i) {
    const Stem& stem = stems_[i];
    const Found& f = found[i];
    for (int key : keys_of(stem)) {
      LoraKey& k = out.keys[size_t(key)];
      if (f.weight) {
        k.use = f.fits() ? LoraKey::Applied : LoraKey::WrongShape;
        k.component = f.component->component();
        k.module = f.weight->targets[0].module;
        if (!f.fits()) k.why = key == f.misfit_key ? f.misfit : "goes with '" + name(f.misfit_key) + "'";
      } else if (stem.kind) {
        k.why = std::string("is of ") + stem.kind + ", which is not supported yet";
      } else {
        k.why = stem.down < 0 ? "is an alpha without weights" : "is of a layer that is not there";
      }
    }
  }
  return out;
}

void LoraFile::fail_strictly(const LoraReport& report, const std::vector<Found>& found,
                             const Components& components) const {
  const size_t fits = size_t(std::count_if(found.begin(), found.end(), [](auto& f) { return f.fits(); }));
  const auto other = std::find_if(stems_.begin(), stems_.end(), [](auto& s) { return s.kind; });
  if (other != stems_.end())
    fail<NotSupported>(path_, ": '", name(other->others[0]), "' is of ", other->kind,
                       ", which is not supported yet; plain LoRA is, of linear layers and convolutions");
  size_t most = 0;
  const SingleFileKind* base = better_base(*this, components, fits, most);
  if (base)
    fail(path_, ": is a LoRA for ", base->title, ", which has ", most, " of its ", stems_.size(),
         " layers, and this model has ", fits, " of them; load it into a model of that kind");
  SF_CHECK(fits, path_, ": is a LoRA for another model: none of its ", stems_.size(),
           " layers is one of this model's; ",
           listed(report, report.count(LoraKey::WrongShape) ? LoraKey::WrongShape : LoraKey::Unused));
  const size_t unused = report.count(LoraKey::Unused), wrong = report.count(LoraKey::WrongShape);
  fail(path_, ": ", unused + wrong, " of its ", report.keys.size(),
       " keys do not fit this model: ", listed(report, wrong ? LoraKey::WrongShape : LoraKey::Unused),
       "; strict=False leaves them out");
}

void LoraFile::add_layers(LoraMatch& out, const Stem& stem, const Found& found) const {
  const AdaptedWeight& weight = *found.weight;
  const std::string& component = found.component->component();
  const LoraConfig::Strength strength = config_.of(component, weight.targets[0].module);
  const int64_t rank = stem.rank;
  SF_CHECK(!strength.rank || *strength.rank == rank, config_.where(), ": says rank ", strength.rank.value_or(0),
           " of '", weight.targets[0].module, "', whose tensors have ", rank);
  if (!stem.alpha && strength.alpha) check_alpha(*strength.alpha, "lora_alpha of " + weight.targets[0].module);
  const double alpha = stem.alpha ? *stem.alpha : strength.alpha.value_or(double(rank));
  auto tensor = [&](int key, const Shape& as) {
    const Tensor t = file_->get(name(key));
    SF_CHECK(t.nbytes() <= t.storage()->bytes, path_, ": '", name(key), "' of ", t.shape(),
             " repeats values that are there once; the file is damaged or made to fill the memory");
    return t.shape() == as ? t : reshape(t, as);
  };
  const Shape kernel = behind(weight.shape, 2), ones = Shape::filled(kernel.size(), 1);
  LoraLayer layer;
  layer.stem = stem.name;
  layer.down = tensor(stem.down, joined(rank, weight.shape[1], stem.mid >= 0 ? ones : kernel));
  if (stem.mid >= 0) layer.mid = tensor(stem.mid, joined(rank, rank, kernel));
  const Tensor up = tensor(stem.up, joined(weight.shape[0], rank, ones));
  layer.rank = rank;
  layer.alpha = alpha;
  layer.scale = alpha / (strength.rslora ? std::sqrt(double(rank)) : double(rank));
  for (auto& target : weight.targets) {
    layer.module = target.module;
    layer.row = target.row;
    layer.rows = target.rows;
    layer.up = target.rows == target.adapter_rows ? up : narrow(up, 0, target.adapter_row, target.rows);
    out.layers[component].push_back(layer);
  }
}

LoraMatch LoraFile::match(const Components& components, bool strict) const {
  std::vector<Found> found;
  found.reserve(stems_.size());
  for (auto& stem : stems_) found.push_back(find(stem, components));
  LoraMatch out{{}, report(found)};
  const size_t applied = out.report.count(LoraKey::Applied);
  if (applied == 0 || (strict && applied < entries_.size())) fail_strictly(out.report, found, components);
  for (size_t i = 0; i < stems_.size(); ++i)
    if (found[i].fits()) add_layers(out, stems_[i], found[i]);
  for (auto& [component, layers] : out.layers) check_rows(layers, path_);
  return out;
}

}  // namespace sf::models
