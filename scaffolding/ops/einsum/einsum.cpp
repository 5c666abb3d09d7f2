#include "scaffolding/ops/einsum/einsum.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

// A dimension's name: 0..51 for letters (A-Z, a-z), then one for each dimension of "...", counted from the last.
constexpr int kEllipsis = 52;
using Labels = std::vector<int>;

struct Term {
  Tensor t;
  Labels labels;  // one per dimension of t
};

bool has(const Labels& l, int label) { return std::find(l.begin(), l.end(), label) != l.end(); }
int64_t place(const Labels& l, int label) { return std::find(l.begin(), l.end(), label) - l.begin(); }

// One side of the equation: labels, with -1 where "..." stands.
Labels parse(const std::string& equation, std::string_view text) {
  Labels out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == ' ') continue;
    if (text.substr(i, 3) == "...") {
      SF_CHECK(!has(out, -1), "einsum: '...' may stand once in each term, got '", equation, "'");
      out.push_back(-1);
      i += 2;
      continue;
    }
    SF_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "einsum: dimensions are named by letters, got '",
             text.substr(i, 1), "' in '", equation, "'");
    out.push_back(c <= 'Z' ? c - 'A' : c - 'a' + 26);
  }
  return out;
}

// The operand with "..." named dimension by dimension and repeated letters taken as diagonals.
Term term_of(const std::string& equation, const Labels& names, const Tensor& x, int64_t number) {
  bool dots = has(names, -1);
  int64_t named = int64_t(names.size()) - dots, more = x.ndim() - named;
  SF_CHECK(more == 0 || (dots && more > 0), "einsum: operand ", number, " has ", x.ndim(), " dimensions, but '",
           equation, "' names ", named);
  Term term{x, {}};
  for (int l : names) {
    if (l >= 0) term.labels.push_back(l);
    else
      for (int64_t i = more - 1; i >= 0; --i) term.labels.push_back(kEllipsis + int(i));
  }
  for (size_t i = 0; i < term.labels.size(); ++i)
    for (size_t j = term.labels.size(); j-- > i + 1;) {
      if (term.labels[j] != term.labels[i]) continue;
      SF_CHECK(term.t.shape()[int64_t(i)] == term.t.shape()[int64_t(j)], "einsum: a letter repeated in operand ",
               number, " names dimensions of different sizes in '", equation, "', got ", x.shape());
      term.t = movedim(diagonal(term.t, 0, int64_t(i), int64_t(j)), {-1}, {int64_t(i)});
      term.labels.erase(term.labels.begin() + int64_t(j));
    }
  return term;
}

Labels output_of(const std::string& equation, const std::string* text, const std::vector<Labels>& inputs,
                 const std::vector<Term>& terms) {
  int count[kEllipsis] = {};
  int64_t dots = -1;  // dimensions of the longest "...", -1: nowhere in the inputs
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int l : inputs[i])
      if (l >= 0) ++count[l];
    if (has(inputs[i], -1))
      for (dots = std::max<int64_t>(dots, 0); int l : terms[i].labels)
        dots = std::max<int64_t>(dots, l - kEllipsis + 1);
  }
  Labels names;
  if (text) {
    names = parse(equation, *text);
  } else {
    names.push_back(-1);
    for (int l = 0; l < kEllipsis; ++l)
      if (count[l] == 1) names.push_back(l);
  }
  Labels out;
  for (int l : names) {
    if (l < 0) {
      for (int64_t i = dots - 1; i >= 0; --i) out.push_back(kEllipsis + int(i));
      continue;
    }
    SF_CHECK(count[l] > 0, "einsum: the output names a dimension that no operand has, got '", equation, "'");
    SF_CHECK(!has(out, l), "einsum: the output names a dimension twice, got '", equation, "'");
    out.push_back(l);
  }
  return out;
}

void sum_out(Term& a, const Labels& gone) {
  Shape dims;
  for (int l : gone) dims.push_back(place(a.labels, l));
  if (dims.empty()) return;
  a.t = sum(a.t, dims, false, a.t.dtype());
  std::erase_if(a.labels, [&](int l) { return has(gone, l); });
}

// a's dimensions in the order of `labels`, which it has all of,
// and in groups of `groups` dimensions each joined into one.
Tensor grouped(const Term& a, const Labels& labels, std::initializer_list<size_t> groups) {
  Shape order, joined;
  for (int l : labels) order.push_back(place(a.labels, l));
  Tensor t = a.t.permute(order);
  int64_t at = 0;
  for (size_t n : groups) {
    int64_t size = 1;
    for (size_t i = 0; i < n; ++i) size *= t.shape()[at++];
    joined.push_back(size);
  }
  return t.reshape(joined);
}

Labels operator+(const Labels& a, const Labels& b) {
  Labels l = a;
  l.insert(l.end(), b.begin(), b.end());
  return l;
}

// One term from two: labels outside `kept` are summed.
Term contract(Term a, Term b, const Labels& kept) {
  Labels gone_a, gone_b;
  for (int l : a.labels)
    if (!has(b.labels, l) && !has(kept, l)) gone_a.push_back(l);
  for (int l : b.labels)
    if (!has(a.labels, l) && !has(kept, l)) gone_b.push_back(l);
  sum_out(a, gone_a);
  sum_out(b, gone_b);
  Labels batch, inner, only_a, only_b, wide_a, wide_b;  // wide: the other term has one entry there, which broadcasts
  for (int l : a.labels) {
    if (!has(b.labels, l)) {
      only_a.push_back(l);
      continue;
    }
    int64_t na = a.t.shape()[place(a.labels, l)], nb = b.t.shape()[place(b.labels, l)];
    if (has(kept, l)) batch.push_back(l);
    else inner.push_back(l);
    if (na != 1 && nb == 1) wide_a.push_back(l);
    if (nb != 1 && na == 1) wide_b.push_back(l);
  }
  for (int l : b.labels)
    if (!has(a.labels, l)) only_b.push_back(l);
  auto widen = [](Term& t, const Term& like, const Labels& labels) {
    Shape size = t.t.shape();
    for (int l : labels) size[place(t.labels, l)] = like.t.shape()[place(like.labels, l)];
    t.t = t.t.expand(size);
  };
  widen(b, a, wide_a);
  widen(a, b, wide_b);
  Shape size;
  for (int l : batch + only_a) size.push_back(a.t.shape()[place(a.labels, l)]);
  for (int l : only_b) size.push_back(b.t.shape()[place(b.labels, l)]);
  Term y{{}, batch + only_a + only_b};
  if (inner.empty()) {
    Tensor left = grouped(a, batch + only_a, {batch.size(), only_a.size(), 0}),
           right = grouped(b, batch + only_b, {batch.size(), 0, only_b.size()});
    y.t = mul(left, right).reshape(size);
  } else {
    Tensor left = grouped(a, batch + only_a + inner, {batch.size(), only_a.size(), inner.size()});
    Tensor right = grouped(b, batch + inner + only_b, {batch.size(), inner.size(), only_b.size()});
    y.t = bmm(left, right).reshape(size);
  }
  return y;
}

}  // namespace

Tensor einsum(const std::string& equation, const Tensors& operands) {
  SF_AUTOCAST(einsum, equation, operands);
  SF_CHECK(!operands.empty(), "einsum: needs at least one operand");
  size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow), right = arrow == std::string::npos ? "" : equation.substr(arrow + 2);
  std::vector<Labels> inputs;
  for (size_t from = 0;;) {
    size_t comma = left.find(',', from);
    inputs.push_back(
        parse(equation, std::string_view(left).substr(from, comma == std::string::npos ? comma : comma - from)));
    if (comma == std::string::npos) break;
    from = comma + 1;
  }
  SF_CHECK(inputs.size() == operands.size(), "einsum: '", equation, "' has ", inputs.size(), " terms, but ",
           operands.size(), " operands were given");
  std::vector<Term> terms;
  for (size_t i = 0; i < operands.size(); ++i) {
    check_defined("einsum", "an operand", operands[i]);
    check_same_device("einsum", operands[0], operands[i]);
    SF_CHECK_AS(TypeError, operands[i].dtype() == operands[0].dtype(), "einsum: operands must have one dtype, got ",
                operands[0].dtype(), " and ", operands[i].dtype());
    terms.push_back(term_of(equation, inputs[i], operands[i], int64_t(i)));
  }
  Labels out = output_of(equation, arrow == std::string::npos ? nullptr : &right, inputs, terms);
  int64_t known[kEllipsis + kMaxDims];
  std::fill(std::begin(known), std::end(known), 1);
  for (auto& term : terms)
    for (size_t i = 0; i < term.labels.size(); ++i) {
      int64_t n = term.t.shape()[int64_t(i)], &size = known[term.labels[i]];
      SF_CHECK(n == size || n == 1 || size == 1, "einsum: sizes of a dimension differ between operands in '", equation,
               "', got ", size, " and ", n);
      if (size == 1) size = n;
    }
  Term y = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = out;
    for (size_t j = i + 1; j < terms.size(); ++j) kept = kept + terms[j].labels;
    y = contract(y, terms[i], kept);
  }
  Labels gone;
  for (int l : y.labels)
    if (!has(out, l)) gone.push_back(l);
  sum_out(y, gone);
  Shape order;
  for (int l : out) order.push_back(place(y.labels, l));
  return y.t.permute(order);
}

SF_OP(einsum, "equation, operands")
    .doc("Sums of products in Einstein's notation.")
    .like("torch.einsum(equation, *operands)")
    .kernels(gemm);

}  // namespace sf
