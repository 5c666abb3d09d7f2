#include "scaffolding/ops/attention/attention_graph.h"

#include <cmath>

namespace sf::cuda::cudnn {

namespace {

Dims dense(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * sizes[i + 1];
  return strides;
}
Dims swapped(Dims d) {
  std::swap(d[2], d[3]);
  return d;
}

// The parts of both graphs.
struct Builder {
  const AttentionGraph& a;
  Graph g;
  DataType type = data_type(a.dtype);
  Dims q{a.batch, a.heads, a.queries, a.width}, k{a.batch, a.key_heads, a.keys, a.width},
      v{a.batch, a.key_heads, a.keys, a.value_width}, y{a.batch, a.heads, a.queries, a.value_width},
      scores{a.batch, a.heads, a.queries, a.keys}, row{a.batch, a.heads, a.queries, 1};

  explicit Builder(const AttentionGraph& shape) : a(shape) {}
  Id in(const Dims& sizes, const Dims& strides) { return g.tensor(type, sizes, strides, 16); }
  Id rows_in_memory() { return g.tensor(DataType::Float, row, dense(row), 16); }
  Id hidden(const Dims& sizes, DataType t = DataType::Float) { return g.hidden(t, sizes, dense(sizes)); }
  // f(x, b) as a new tensor of x's shape.
  Id then(Pointwise f, Id x, Id b = 0, DataType t = DataType::Float) {
    Id to = hidden(scores, t);
    g.pointwise(f, to, x, b);
    return to;
  }
  Id products(Id left, Id right) {
    Id to = hidden(scores);
    g.matmul(to, left, right);
    return to;
  }
  Id masked(Id x) {
    if (!a.causal) return x;
    Id i = hidden(scores, DataType::Int32), j = hidden(scores, DataType::Int32),
       sees = hidden(scores, DataType::Boolean), to = hidden(scores);
    g.index(i, x, 2);
    g.index(j, x, 3);
    g.compare(Pointwise::CompareGreaterEqual, sees, i, j);
    g.pointwise(Pointwise::Select, to, x, g.number(-INFINITY, 4), sees);
    return to;
  }
  // x[b, h, i, j] as [b, h, j, i] in the operands' type.
  Id transposed(Id x) {
    Dims sizes = swapped(scores), strides = swapped(dense(scores));
    Id to = g.hidden(type, sizes, strides);
    g.reshape(to, x);
    return to;
  }
  // c = left x right for each query head, added up over the heads that share a key head.
  void sum_over_heads(Id c, Id left, Id right, int64_t width) {
    if (a.heads == a.key_heads) return g.matmul(c, left, right);
    Id all = hidden({a.batch, a.heads, a.keys, width}, type);
    g.matmul(all, left, right);
    g.reduce(ReduceOp::Add, c, all);
  }
};

}  // namespace

Graph graph_of(const AttentionGraph& a) {
  Builder b(a);
  Graph& g = b.g;
  Id q = b.in(b.q, a.q), k = b.in(swapped(b.k), swapped(a.k)), v = b.in(b.v, a.v), y = b.in(b.y, a.y);
  // Part of the pattern even where nobody reads it.
  Id lse = a.lse ? b.rows_in_memory() : b.hidden(b.row);
  Id s = b.masked(b.then(Pointwise::Mul, b.products(q, k), g.number(a.scale, 4)));
  Id top = b.hidden(b.row), sum = b.hidden(b.row), log = b.hidden(b.row);
  g.reduce(ReduceOp::Max, top, s);
  Id e = b.then(Pointwise::Exp, b.then(Pointwise::Sub, s, top));
  g.reduce(ReduceOp::Add, sum, e);
  g.pointwise(Pointwise::Log, log, sum);
  g.pointwise(Pointwise::Add, lse, top, log);
  g.matmul(y, b.then(Pointwise::Div, e, sum, b.type), v);
  return std::move(b.g);
}

Graph graph_of(const AttentionGradientGraph& gradient) {
  const AttentionGraph& a = gradient.forward;
  Builder b(a);
  Graph& g = b.g;
  Id q = b.in(b.q, a.q), k = b.in(swapped(b.k), swapped(a.k)), v = b.in(swapped(b.v), swapped(a.v)), y = b.in(b.y, a.y);
  Id lse = b.rows_in_memory(), dy = b.in(b.y, gradient.dy);
  Id dq = b.in(b.q, gradient.dq), dk = b.in(b.k, gradient.dk), dv = b.in(b.v, gradient.dv), delta = b.rows_in_memory();
  Id sums = gradient.accumulate ? g.tensor(DataType::Float, b.q, dense(b.q), 16) : 0;

  Id dy_y = b.hidden(b.y), row = b.hidden(b.row);
  g.pointwise(Pointwise::Mul, dy_y, dy, y);
  g.reduce(ReduceOp::Add, row, dy_y);
  g.pointwise(Pointwise::Mul, delta, row, g.number(1, 4));

  Id scale = g.number(a.scale, 4);
  Id s = b.then(Pointwise::Sub, b.then(Pointwise::Mul, b.products(q, k), scale), lse);
  Id p = b.then(Pointwise::Exp, b.masked(s));
  b.sum_over_heads(dv, b.transposed(p), dy, a.value_width);

  Id ds = b.then(Pointwise::Mul, b.then(Pointwise::Mul, b.then(Pointwise::Sub, b.products(dy, v), delta), p), scale);
  b.sum_over_heads(dk, b.transposed(ds), q, a.width);

  Id rows_of_k = g.hidden(b.type, b.k, a.k);
  g.reshape(rows_of_k, k);
  if (gradient.accumulate) {
    g.matmul(sums, ds, rows_of_k);
    g.pointwise(Pointwise::Identity, dq, sums);
  } else {
    g.matmul(dq, ds, rows_of_k);
  }
  return std::move(b.g);
}

}  // namespace sf::cuda::cudnn
