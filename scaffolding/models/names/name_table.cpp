#include "scaffolding/models/names/name_table.h"

#include <algorithm>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/names/rule_tree.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

int64_t rows_of(const Shape& s) { return s.empty() ? 1 : s[0]; }

Shape with_rows(Shape s, int64_t rows) {
  if (!s.empty()) s[0] = rows;
  return s;
}

NameChange change_of(const Shape& s, NameChange wanted) {
  bool applies = wanted == NameChange::Flat      ? s.size() > 2
                 : wanted == NameChange::OneMore ? s.size() == 1
                                                 : s.size() == 2;
  return applies ? wanted : NameChange::Same;
}

Shape in_file(const Shape& ours, NameChange change) {
  switch (change) {
    case NameChange::Pointwise: return {ours[0], ours[1], 1, 1};
    case NameChange::Flat: return {ours[0], numel(ours) / std::max<int64_t>(1, ours[0])};
    case NameChange::Transposed: return {ours[1], ours[0]};
    case NameChange::OneMore:
    case NameChange::Same: break;
  }
  return ours;
}

// Theirs laid out as ours, and ours as theirs.
enum class Direction { Read, Write };
Tensor changed(const Tensor& t, NameChange change, const Shape& to, Direction direction) {
  if (change == NameChange::Transposed) return transpose(t, 0, 1);
  if (change == NameChange::OneMore) return direction == Direction::Read ? t - 1 : t + 1;
  return t.shape() == to ? t : reshape(t, to);
}

Tensor some_rows(const Tensor& t, int64_t row, int64_t rows) {
  return t.ndim() == 0 || rows == t.size(0) ? t : narrow(t, 0, row, rows);
}

// Rows of one of our tensors that are rows of a source, and why.
struct Claim {
  NamePiece piece;
  const NameRule* rule;
  size_t part;  // of a join
};

struct Resolver {
  const std::string& who;
  std::vector<NamedTensor> tensors;
  std::vector<NameSource> sources;
  std::vector<NamePiece> of_tensors, of_sources;

  Resolver(TensorList model, const NameRules& rules, const std::string& name) : who(name) {
    const std::vector<NameRule> list = rules.of(model);
    const RuleTree tree(list, who);
    size_t cuts = 1;  // of one tensor, at most
    for (auto& rule : list) cuts = std::max(cuts, rule.theirs.size());
    tensors.reserve(model.size());
    sources.reserve(model.size());
    claims_.reserve(model.size());
    places_ = NameIndex(model.size() * cuts);
    for (auto& [tensor, shape] : std::move(model).release()) {
      tensors.push_back({std::move(tensor), shape, {claims_.size(), 0}});
      NamedTensor& t = tensors.back();
      auto match = tree.find(t.name);
      SF_CHECK_AS(NotSupported, match.rule, who, ": no rule names '", t.name, "'");
      claim(match);
      t.pieces.count = claims_.size() - t.pieces.first;
    }
    std::vector<Claim*> ordered;
    ordered.reserve(claims_.size());
    for (auto& c : claims_) ordered.push_back(&c);
    std::stable_sort(ordered.begin(), ordered.end(), [](auto* a, auto* b) {
      return std::pair(a->piece.source, a->part) < std::pair(b->piece.source, b->part);
    });
    of_sources.reserve(claims_.size());
    for (auto first = ordered.begin(); first != ordered.end();) {
      auto last =
          std::find_if(first, ordered.end(), [&](auto* c) { return c->piece.source != (*first)->piece.source; });
      lay(sources[(*first)->piece.source], {first, last});
      first = last;
    }
    of_tensors.reserve(claims_.size());
    for (auto& c : claims_) of_tensors.push_back(c.piece);
  }

 private:
  void claim(const RuleTree::Match& match) {
    const NameRule& rule = *match.rule;
    const NamedTensor& t = tensors.back();
    const int64_t rows = rows_of(t.shape);
    auto put = [&](size_t theirs, int64_t row, int64_t source_row, int64_t n) {
      claims_.push_back({{tensors.size() - 1, place(match.theirs(theirs)), row, source_row, n}, &rule, match.part});
    };
    SF_CHECK(rule.kind == NameRule::Whole || rule.kind == NameRule::Reshape || !t.shape.empty(), who, ": '", t.name,
             "' is one number and has no rows to ", rule.kind == NameRule::Join ? "join" : "cut");
    switch (rule.kind) {
      case NameRule::Reshape:
        SF_CHECK(match.rest.empty(), who, ": the rule that reshapes '", rule.ours[0], "' must name one tensor, and '",
                 t.name, "' is another");
        [[fallthrough]];
      case NameRule::Whole:
      case NameRule::Join: return put(0, 0, 0, rows);
      case NameRule::Slice: {
        const auto n = int64_t(rule.rows.size());
        SF_CHECK(rows % n == 0, who, ": '", t.name, "' of ", rows, " rows cannot be ", n, " equal parts");
        for (int64_t i = 0; i < n; ++i) put(0, i * (rows / n), rule.rows[size_t(i)], rows / n);
        return;
      }
      case NameRule::SwapHalves:
        SF_CHECK(rows % 2 == 0, who, ": '", t.name, "' has no halves, it is ", t.shape);
        put(0, 0, rows / 2, rows / 2);
        return put(0, rows / 2, 0, rows / 2);
      case NameRule::Split: {
        const int64_t n = int64_t(rule.theirs.size()), equal = rows / n;
        int64_t row = 0;
        for (size_t i = 0; i < rule.theirs.size(); ++i) {
          int64_t size = rule.rows.empty() ? equal : rule.rows[i];
          put(i, row, 0, size);
          row += size;
        }
        SF_CHECK(row == rows, who, ": '", t.name, "' of ", rows, " rows cannot be ", n, " tensors of ",
                 rule.rows.empty() ? equal : row, " rows", rule.rows.empty() ? " each" : " together");
      }
    }
  }

  size_t place(std::string name) {
    sources.emplace_back().name = std::move(name);
    const size_t place = places_.add(sources, sources.size() - 1);
    if (place + 1 < sources.size()) sources.pop_back();
    return place;
  }

  // claims: all that there are on the source, by part.
  void lay(NameSource& source, std::span<Claim*> claims) {
    place_joins(source.name, claims);
    if (claims.size() > 1)
      std::stable_sort(claims.begin(), claims.end(),
                       [](auto* a, auto* b) { return a->piece.source_row < b->piece.source_row; });
    const NameRule& rule = *claims[0]->rule;
    const NamedTensor& first = tensors[claims[0]->piece.tensor];
    source.change = change_of(first.shape, rule.change);
    source.pieces = {of_sources.size(), claims.size()};
    int64_t end = 0;
    const NamedTensor* before = nullptr;
    for (auto* claim : claims) {
      const NamePiece& c = claim->piece;
      const NamedTensor& t = tensors[c.tensor];
      SF_CHECK(with_rows(t.shape, 0) == with_rows(first.shape, 0), who, ": parts of '", source.name,
               "' differ beside their rows: '", first.name, "' is ", first.shape, " and '", t.name, "' is ", t.shape);
      SF_CHECK(change_of(t.shape, claim->rule->change) == source.change, who, ": '", source.name,
               "' lies in two ways, one for '", first.name, "' and one for '", t.name, "'");
      SF_CHECK(!before || c.source_row >= end, who, ": '", before ? before->name : "", "' and '", t.name,
               "' are both rows ", c.source_row, " to ", std::min(end, c.source_row + c.rows), " of '", source.name,
               "'");
      SF_CHECK(c.source_row == end, who, ": rows ", end, " to ", c.source_row, " of '", source.name,
               "', before those of '", t.name, "', belong to no tensor");
      end += c.rows;
      before = &t;
      of_sources.push_back(c);
    }
    source.ours = with_rows(first.shape, end);
    source.shape = rule.kind == NameRule::Reshape ? reshaped(first, rule.shape) : in_file(source.ours, source.change);
  }

  // The parts of a join begin where those before them end.
  void place_joins(const std::string& name, std::span<Claim*> claims) {
    struct End {
      size_t parts = 0;
      int64_t rows = 0;
    };
    std::map<const NameRule*, End> ends;
    for (auto* c : claims) {
      if (c->rule->kind != NameRule::Join) continue;
      End& end = ends[c->rule];
      SF_CHECK(c->part >= end.parts, who, ": two tensors are the part '", c->rule->ours[c->part], "' of '", name, "'");
      SF_CHECK(c->part == end.parts, who, ": '", name, "' lacks its part '", c->rule->ours[end.parts],
               "', which the model does not have");
      c->piece.source_row = end.rows;
      ++end.parts;
      end.rows += c->piece.rows;
    }
    for (auto& [rule, end] : ends)
      SF_CHECK(end.parts == rule->ours.size(), who, ": '", name, "' lacks its part '",
               rule->ours[std::min(end.parts, rule->ours.size() - 1)], "', which the model does not have");
  }

  Shape reshaped(const NamedTensor& t, Shape to) const {
    int64_t known = 1, *open = nullptr;
    for (auto& n : to)
      if (n < 0 && !open) open = &n;
      else known *= n;
    if (open) *open = known > 0 ? numel(t.shape) / known : 0;
    SF_CHECK(std::all_of(to.begin(), to.end(), [](int64_t n) { return n >= 0; }) && numel(to) == numel(t.shape), who,
             ": '", t.name, "' is ", t.shape, " and cannot be ", to);
    return to;
  }

  std::vector<Claim> claims_;  // in the order of the tensors and their rows
  NameIndex places_;           // of the sources
};

}  // namespace

bool NameSource::fits(const Shape& s) const {
  // Some programs write a convolution of one pixel as the linear layer that it is.
  if (change == NameChange::Pointwise && s.size() >= 2 && s.size() <= 4)
    return s[0] == ours[0] && s[1] == ours[1] && std::all_of(s.begin() + 2, s.end(), [](int64_t n) { return n == 1; });
  return s == shape;
}

NameTable::NameTable(TensorList model, const NameRules& rules, std::string who) : who_(std::move(who)) {
  Resolver resolved(std::move(model), rules, who_);
  tensors_ = std::move(resolved.tensors);
  sources_ = std::move(resolved.sources);
  of_tensors_ = std::move(resolved.of_tensors);
  of_sources_ = std::move(resolved.of_sources);
  by_name_ = NameIndex(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.add(tensors_, i);
}

const NamedTensor* NameTable::find(std::string_view name) const {
  const size_t place = by_name_.find(tensors_, name);
  return place == NameIndex::kNone ? nullptr : &tensors_[place];
}

void NameTable::rename_sources(const std::function<std::string(const std::string&)>& name) {
  for (auto& s : sources_) s.name = name(s.name);
}

NameTable::Differences NameTable::differences(const io::Checkpoint& file) const {
  Differences out;
  for (auto& source : sources_) {
    if (!file.contains(source.name)) {
      out.missing.push_back(source.name);
    } else if (Shape s = file.entry(source.name).shape; !source.fits(s)) {
      Message m;
      m << "'" << source.name << "' is " << s << " and should be " << source.shape;
      out.wrong.push_back(m.str());
    }
  }
  return out;
}

Tensor NameTable::read(const NamedTensor& t, const std::function<Tensor(const std::string&)>& get) const {
  Tensors parts;
  for (auto& piece : pieces(t)) {
    const NameSource& source = sources_[piece.source];
    Tensor theirs = get(source.name);
    SF_CHECK(source.fits(theirs.shape()), who_, ": '", source.name, "' is ", theirs.shape(), " and should be ",
             source.shape);
    Tensor rows = some_rows(changed(theirs, source.change, source.ours, Direction::Read), piece.source_row, piece.rows);
    parts.push_back(source.change == NameChange::Transposed ? contiguous(rows) : rows);
  }
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}

std::map<std::string, Tensor> NameTable::write(const std::map<std::string, Tensor>& ours,
                                               const std::string& what) const {
  for (auto& t : tensors_) {
    auto found = ours.find(t.name);
    SF_CHECK(found != ours.end(), what, " lacks '", t.name, "'");
    SF_CHECK(found->second.shape() == t.shape, what, " has '", t.name, "' of ", found->second.shape(),
             ", which should be ", t.shape);
  }
  std::map<std::string, Tensor> out;
  for (auto& source : sources_) {
    Tensors parts;
    for (auto& piece : pieces(source))
      parts.push_back(some_rows(ours.at(tensors_[piece.tensor].name), piece.row, piece.rows));
    Tensor joined =
        changed(parts.size() == 1 ? parts[0] : cat(parts, 0), source.change, source.shape, Direction::Write);
    out[source.name] = source.change == NameChange::Transposed ? contiguous(joined) : joined;
  }
  return out;
}

NameTable name_table(nn::Module& model, const std::string& class_name, const std::string& layout) {
  const NameRules* rules = find_layout(class_name, layout);
  std::string have = "own";
  for (auto& name : layouts_of(class_name)) have += ", " + name;
  SF_CHECK(rules, class_name, ": has no names in the layout '", layout, "'; there are ", have);
  return NameTable(TensorList(model), *rules, class_name + " as '" + layout + "'");
}

}  // namespace sf::models
