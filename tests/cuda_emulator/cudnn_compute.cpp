// The mathematics of the stand-in for cuDNN: shapes that fit together, and graphs computed one operation after another,
// sums in double. A tensor between two operations is rounded to its type, as one in memory is.
#include <cmath>
#include <set>

#include "cudnn_values.h"
#include "scaffolding/core/half.h"

namespace cudnn_emulator {

namespace {

using A = Attribute;

struct Names {  // of a convolution's tensors
  A x, w, y, convolution, alpha, beta;
};
Names names_of(Kind k) {
  if (k == Kind::ConvolutionForward)
    return {A::ForwardX, A::ForwardW, A::ForwardY, A::ForwardConvolution, A::ForwardAlpha, A::ForwardBeta};
  if (k == Kind::ConvolutionBackwardData)
    return {A::DataDx, A::DataW, A::DataDy, A::DataConvolution, A::DataAlpha, A::DataBeta};
  return {A::FilterX, A::FilterDw, A::FilterDy, A::FilterConvolution, A::FilterAlpha, A::FilterBeta};
}
bool is_convolution(Kind k) {
  return k == Kind::ConvolutionForward || k == Kind::ConvolutionBackwardData || k == Kind::ConvolutionBackwardFilter;
}
A result_of(Kind k) {
  switch (k) {
    case Kind::ConvolutionForward: return A::ForwardY;
    case Kind::ConvolutionBackwardData: return A::DataDx;
    case Kind::ConvolutionBackwardFilter: return A::FilterDw;
    case Kind::OperationPointwise: return A::OperationPointwiseY;
    case Kind::OperationMatmul: return A::OperationMatmulC;
    case Kind::OperationReduction: return A::OperationReductionY;
    default: return A::ReshapeY;
  }
}

Dims sizes(const Object& t) { return t.integers(A::TensorSizes); }
DataType type(const Object& t) { return DataType(t.enumerator(A::TensorDataType)); }
int64_t bytes_of(DataType t) {
  switch (t) {
    case DataType::Double: return 8;
    case DataType::Half:
    case DataType::BFloat16: return 2;
    case DataType::Boolean: return 1;
    default: return 4;
  }
}
int64_t count(const Dims& d) {
  int64_t n = 1;
  for (int64_t x : d) n *= x;
  return n;
}
bool broadcasts(const Dims& from, const Dims& to) {
  if (from.size() != to.size()) return false;
  for (size_t i = 0; i < to.size(); ++i)
    if (from[i] != to[i] && from[i] != 1) return false;
  return true;
}

Status check_tensor(const Object& t) {
  Dims n = sizes(t), s = t.integers(A::TensorStrides);
  if (n.size() != s.size() || n.size() < 3)
    return refuse(kBadParameter, "a tensor needs as many strides as sizes, and three at least");
  for (size_t i = 0; i < n.size(); ++i)
    if (n[i] <= 0 || s[i] <= 0) return refuse(kBadParameter, "sizes and strides must be positive");
  int64_t a = t.integer(A::TensorAlignment);
  if (a <= 0 || a % bytes_of(type(t)) != 0)
    return refuse(kBadParameter, "the alignment must be a multiple of an element");
  return kSuccess;
}

Status check_convolution(const Object& o) {
  Names n = names_of(o.kind);
  auto c = o.one(n.convolution);
  Dims x = sizes(*o.one(n.x)), w = sizes(*o.one(n.w)), y = sizes(*o.one(n.y));
  size_t dims = size_t(c->integer(A::ConvolutionSpatialDims));
  if (x.size() != dims + 2 || w.size() != x.size() || y.size() != x.size())
    return refuse(kShapeMismatch, "dimensions of a convolution");
  Dims pre = c->integers(A::ConvolutionPrePaddings), post = c->integers(A::ConvolutionPostPaddings),
       stride = c->integers(A::ConvolutionStrides), dilation = c->integers(A::ConvolutionDilations);
  if (pre.size() != dims || post.size() != dims || stride.size() != dims || dilation.size() != dims)
    return refuse(kBadParameter, "numbers of a convolution");
  if (x[0] != y[0] || x[1] % w[1] != 0 || y[1] != w[0] || w[0] % (x[1] / w[1]) != 0)
    return refuse(kShapeMismatch, "channels of a convolution");
  for (size_t i = 0; i < dims; ++i) {
    int64_t room = x[i + 2] + pre[i] + post[i] - dilation[i] * (w[i + 2] - 1) - 1;
    if (room < 0 || room / stride[i] + 1 != y[i + 2]) return refuse(kShapeMismatch, "sizes of a convolution");
  }
  if (c->enumerator(A::ConvolutionMode) != sf::cuda::cudnn::kCrossCorrelation)
    return refuse(kNotSupportedPattern, "only cross-correlations are known here");
  return kSuccess;
}

Status check_matmul(const Object& o) {
  Dims a = sizes(*o.one(A::OperationMatmulA)), b = sizes(*o.one(A::OperationMatmulB)),
       c = sizes(*o.one(A::OperationMatmulC));
  size_t n = c.size();
  if (n < 3 || a.size() != n || b.size() != n) return refuse(kShapeMismatch, "dimensions of a product");
  if (a[n - 2] != c[n - 2] || b[n - 1] != c[n - 1] || a[n - 1] != b[n - 2])
    return refuse(kShapeMismatch, "sizes of a product");
  for (size_t i = 0; i + 2 < n; ++i)  // heads of b may serve several of a
    if (a[i] != c[i] || c[i] % b[i] != 0) return refuse(kShapeMismatch, "batches of a product");
  return kSuccess;
}

Status check_pointwise(const Object& o) {
  auto p = o.one(A::OperationPointwise);
  Dims y = sizes(*o.one(A::OperationPointwiseY));
  for (A a : {A::OperationPointwiseX, A::OperationPointwiseB, A::OperationPointwiseT})
    if (auto t = o.one(a); t && !broadcasts(sizes(*t), y))
      return refuse(kShapeMismatch, "operands of a pointwise function");
  Pointwise f = Pointwise(p->enumerator(A::PointwiseMode));
  bool two = f == Pointwise::Add || f == Pointwise::Mul || f == Pointwise::Div || f == Pointwise::Sub ||
             f == Pointwise::CompareGreaterEqual;
  bool three = f == Pointwise::Select;
  if (bool(o.one(A::OperationPointwiseB)) != (two || three) || bool(o.one(A::OperationPointwiseT)) != three)
    return refuse(kBadParameter, "number of operands of a pointwise function");
  if (f == Pointwise::Index && (!p->has(A::PointwiseAxis) || p->integer(A::PointwiseAxis) >= int64_t(y.size())))
    return refuse(kBadParameter, "an index needs an axis");
  if (three && type(*o.one(A::OperationPointwiseT)) != DataType::Boolean)
    return refuse(kBadParameter, "what selects must be boolean");
  return kSuccess;
}

}  // namespace

Status check_shapes(const Object& o) {
  if (o.kind == Kind::Tensor) return check_tensor(o);
  if (is_convolution(o.kind)) return check_convolution(o);
  if (o.kind == Kind::OperationMatmul) return check_matmul(o);
  if (o.kind == Kind::OperationPointwise) return check_pointwise(o);
  if (o.kind == Kind::OperationReduction) {
    Dims x = sizes(*o.one(A::OperationReductionX)), y = sizes(*o.one(A::OperationReductionY));
    for (size_t i = 0; i < x.size(); ++i)
      if (x.size() != y.size() || x[i] % y[i] != 0) return refuse(kShapeMismatch, "sizes of a reduction");
  }
  if (o.kind == Kind::OperationReshape && count(sizes(*o.one(A::ReshapeX))) != count(sizes(*o.one(A::ReshapeY))))
    return refuse(kShapeMismatch, "elements of a reshape");
  return kSuccess;
}

// Every tensor is written once, before it is read; what is virtual is written in the graph and read in it. Supported
// are a convolution with what follows it, and attention, which has matrix products; neither in float64.
Status check_graph(const Object& graph) {
  std::set<int64_t> written, read, inputs;
  bool products = false;
  auto ops = graph.all(A::GraphOperations);
  for (auto& o : ops) products = products || o->kind == Kind::OperationMatmul;
  for (auto& o : ops) {
    int64_t result = o->one(result_of(o->kind))->integer(A::TensorId);
    for (auto& t : o->tensors()) {
      int64_t id = t->integer(A::TensorId);
      if (type(*t) == DataType::Double) return refuse(kNotSupportedType, "float64");
      if (id == result) continue;
      if (t->flag(A::TensorIsVirtual) && !written.count(id))
        return refuse(kBadParameter, "a virtual tensor is read that no operation wrote");
      if (!written.count(id)) inputs.insert(id);
      read.insert(id);
    }
    if (!written.insert(result).second || inputs.count(result))
      return refuse(kBadParameter, "a tensor is written twice, or after it was read");
    if (o->kind != Kind::OperationPointwise && !products && &o != &ops.front())
      return refuse(kNotSupportedPattern, "no engine for this graph");
  }
  if (!products && !is_convolution(ops.front()->kind)) return refuse(kNotSupportedPattern, "no engine for this graph");
  for (auto& o : ops)
    if (auto t = o->one(result_of(o->kind));
        t->flag(A::TensorIsVirtual) && !read.count(t->integer(A::TensorId)) && !products)
      return refuse(kBadParameter, "a virtual tensor that nobody reads");
  return kSuccess;
}

namespace {

double rounded(double x, DataType t) {
  switch (t) {
    case DataType::Half: return double(sf::to_float(sf::to_half(float(x))));
    case DataType::BFloat16: return double(sf::to_float(sf::to_bfloat16(float(x))));
    case DataType::Double: return x;
    case DataType::Boolean: return x != 0;
    case DataType::Int32: return double(int32_t(x));
    default: return double(float(x));
  }
}
double read_at(const void* p, DataType t, int64_t i) {
  switch (t) {
    case DataType::Half: return double(sf::to_float(static_cast<const sf::Half*>(p)[i]));
    case DataType::BFloat16: return double(sf::to_float(static_cast<const sf::BFloat16*>(p)[i]));
    case DataType::Boolean: return double(static_cast<const bool*>(p)[i]);
    default: return double(static_cast<const float*>(p)[i]);
  }
}
void write_at(void* p, DataType t, int64_t i, double x) {
  switch (t) {
    case DataType::Half: static_cast<sf::Half*>(p)[i] = sf::to_half(float(x)); return;
    case DataType::BFloat16: static_cast<sf::BFloat16*>(p)[i] = sf::to_bfloat16(float(x)); return;
    default: static_cast<float*>(p)[i] = float(x); return;
  }
}
double round_tf32(double x) {
  float f = float(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits = (bits + 0x1000) & ~0x1fffu;
  std::memcpy(&f, &bits, 4);
  return double(f);
}

// f(index) for all positions of a shape, the last dimension fastest.
template <class F> void each(const Dims& n, const F& f) {
  Dims at(n.size(), 0);
  for (int64_t k = count(n); k > 0; --k) {
    f(at);
    for (size_t d = n.size(); d-- > 0;) {
      if (++at[d] < n[d]) break;
      at[d] = 0;
    }
  }
}
int64_t offset(const Dims& at, const Dims& strides) {
  int64_t o = 0;
  for (size_t i = 0; i < at.size(); ++i) o += at[i] * strides[i];
  return o;
}
Dims dense(const Dims& n) {
  Dims s(n.size(), 1);
  for (size_t i = n.size() - 1; i-- > 0;) s[i] = s[i + 1] * n[i + 1];
  return s;
}

// A tensor's elements in the order of its indices.
struct Values {
  Dims n, s;
  std::vector<double> v;
  double at(const Dims& index) const {  // broadcast
    int64_t o = 0;
    for (size_t i = 0; i < n.size(); ++i) o += (n[i] == 1 ? 0 : index[i]) * s[i];
    return v[size_t(o)];
  }
};

struct Machine {
  const std::map<int64_t, void*>& memory;
  const std::map<int64_t, float>& numbers;
  bool tf32;
  std::map<int64_t, Values> values;

  const Values& value(const Object& t) {
    int64_t id = t.integer(A::TensorId);
    auto at = values.find(id);
    if (at != values.end()) return at->second;
    Values& v = values[id];
    v.n = sizes(t), v.s = dense(v.n);
    if (auto number = numbers.find(id); number != numbers.end()) {
      v.v = {double(number->second)};
      return v;
    }
    Dims strides = t.integers(A::TensorStrides);
    each(v.n, [&](const Dims& i) { v.v.push_back(read_at(memory.at(id), type(t), offset(i, strides))); });
    return v;
  }
  void store(const Object& t, std::vector<double> result) {
    int64_t id = t.integer(A::TensorId);
    DataType to = type(t);
    Dims strides = t.integers(A::TensorStrides);
    Values v{sizes(t), dense(sizes(t)), std::move(result)};
    for (double& x : v.v) x = rounded(x, to);
    if (!t.flag(A::TensorIsVirtual)) {
      size_t k = 0;
      each(v.n, [&](const Dims& i) { write_at(memory.at(id), to, offset(i, strides), v.v[k++]); });
    }
    values[id] = std::move(v);
  }

  void convolve(const Object& o) {
    Names names = names_of(o.kind);
    auto c = o.one(names.convolution);
    Dims pre = c->integers(A::ConvolutionPrePaddings), stride = c->integers(A::ConvolutionStrides),
         dilation = c->integers(A::ConvolutionDilations);
    const Object &tx = *o.one(names.x), &tw = *o.one(names.w), &ty = *o.one(names.y);
    Dims x = sizes(tx), w = sizes(tw), y = sizes(ty);
    A written = result_of(o.kind);
    auto operand = [&](A a, const Object& t) {
      std::vector<double> v = a == written ? std::vector<double>(size_t(count(sizes(t))), 0.0) : value(t).v;
      if (tf32 && a != written && type(t) == DataType::Float)
        for (double& e : v) e = round_tf32(e);
      return v;
    };
    std::vector<double> X = operand(names.x, tx), W = operand(names.w, tw), Y = operand(names.y, ty);
    int64_t groups = x[1] / w[1], per = w[0] / groups, pixels = count(x) / x[0] / x[1], outs = count(y) / y[0] / y[1],
            taps = count(w) / w[0] / w[1];
    Dims image(x.begin() + 2, x.end()), out(y.begin() + 2, y.end()), kernel(w.begin() + 2, w.end()),
        image_strides = dense(image);
    std::vector<int64_t> seen(size_t(outs * taps), -1);  // which pixel an output sees through a tap
    size_t k = 0;
    each(out, [&](const Dims& at) {
      each(kernel, [&](const Dims& tap) {
        int64_t pixel = 0;
        bool inside = true;
        for (size_t d = 0; d < image.size(); ++d) {
          int64_t p = at[d] * stride[d] - pre[d] + tap[d] * dilation[d];
          inside = inside && p >= 0 && p < image[d];
          pixel += p * image_strides[d];
        }
        seen[k++] = inside ? pixel : -1;
      });
    });
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t oc = 0; oc < w[0]; ++oc)
        for (int64_t ic = 0; ic < w[1]; ++ic)
          for (int64_t q = 0; q < outs; ++q)
            for (int64_t t = 0; t < taps; ++t) {
              int64_t p = seen[size_t(q * taps + t)];
              if (p < 0) continue;
              double& ex = X[size_t((n * x[1] + oc / per * w[1] + ic) * pixels + p)];
              double& ew = W[size_t((oc * w[1] + ic) * taps + t)];
              double& ey = Y[size_t((n * y[1] + oc) * outs + q)];
              if (o.kind == Kind::ConvolutionForward) ey += ex * ew;
              else if (o.kind == Kind::ConvolutionBackwardData) ex += ey * ew;
              else ew += ex * ey;
            }
    store(*o.one(written), o.kind == Kind::ConvolutionForward ? Y : o.kind == Kind::ConvolutionBackwardData ? X : W);
  }

  void pointwise(const Object& o) {
    auto p = o.one(A::OperationPointwise);
    Pointwise f = Pointwise(p->enumerator(A::PointwiseMode));
    const Object& ty = *o.one(A::OperationPointwiseY);
    bool index = f == Pointwise::Index;
    const Values none{{1}, {0}, {0}};
    const Values& x = index ? none : value(*o.one(A::OperationPointwiseX));
    const Values& b = o.one(A::OperationPointwiseB) ? value(*o.one(A::OperationPointwiseB)) : none;
    const Values& t = o.one(A::OperationPointwiseT) ? value(*o.one(A::OperationPointwiseT)) : none;
    size_t axis = index ? size_t(p->integer(A::PointwiseAxis)) : 0;
    std::vector<double> result;
    each(sizes(ty), [&](const Dims& i) {
      double u = index ? 0 : x.at(i), v = b.at(i);
      auto value_of = [&]() -> double {
        switch (f) {
          case Pointwise::Add: return u + v;
          case Pointwise::Mul: return u * v;
          case Pointwise::Div: return u / v;
          case Pointwise::Sub: return u - v;
          case Pointwise::Exp: return std::exp(u);
          case Pointwise::Log: return std::log(u);
          case Pointwise::Identity: return u;
          case Pointwise::Relu: return u < 0 ? 0 : u;
          case Pointwise::Gelu: return 0.5 * u * (1 + std::erf(u / std::sqrt(2.0)));
          case Pointwise::GeluTanh: return 0.5 * u * (1 + std::tanh(0.79788456080286536 * (u + 0.044715 * u * u * u)));
          case Pointwise::Swish: return u / (1 + std::exp(-u));
          case Pointwise::CompareGreaterEqual: return u >= v;
          case Pointwise::Index: return double(i[axis]);
          case Pointwise::Select: return t.at(i) != 0 ? u : v;
        }
        return NAN;
      };
      result.push_back(value_of());
    });
    store(ty, std::move(result));
  }

  void multiply(const Object& o) {
    const Object& tc = *o.one(A::OperationMatmulC);
    Values a = value(*o.one(A::OperationMatmulA)), b = value(*o.one(A::OperationMatmulB));
    Dims c = sizes(tc);
    size_t n = c.size();
    int64_t inner = a.n[n - 1];
    std::vector<double> result;
    each(c, [&](const Dims& i) {
      int64_t pa = i[n - 2] * a.s[n - 2], pb = i[n - 1];
      for (size_t d = 0; d + 2 < n; ++d) pa += i[d] * a.s[d], pb += i[d] / (c[d] / b.n[d]) * b.s[d];
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += a.v[size_t(pa + k)] * b.v[size_t(pb + k * b.s[n - 2])];
      result.push_back(sum);
    });
    store(tc, std::move(result));
  }

  void reduce(const Object& o) {
    bool max = ReduceOp(o.one(A::OperationReduction)->enumerator(A::ReductionOperator)) == ReduceOp::Max;
    const Object& ty = *o.one(A::OperationReductionY);
    const Values& x = value(*o.one(A::OperationReductionX));
    Dims y = sizes(ty), strides = dense(y);
    std::vector<double> result(size_t(count(y)), max ? -INFINITY : 0.0);
    size_t k = 0;
    each(x.n, [&](const Dims& i) {
      int64_t to = 0;
      for (size_t d = 0; d < i.size(); ++d) to += i[d] / (x.n[d] / y[d]) * strides[d];
      double e = x.v[k++];
      result[size_t(to)] = max ? std::fmax(result[size_t(to)], e) : result[size_t(to)] + e;
    });
    store(ty, std::move(result));
  }

  // The same place in memory under other strides.
  void reshape(const Object& o) {
    const Object &tx = *o.one(A::ReshapeX), &ty = *o.one(A::ReshapeY);
    const Values& x = value(tx);
    std::map<int64_t, double> placed;
    Dims from = tx.integers(A::TensorStrides), to = ty.integers(A::TensorStrides);
    size_t k = 0;
    each(x.n, [&](const Dims& i) { placed[offset(i, from)] = x.v[k++]; });
    std::vector<double> result;
    each(sizes(ty), [&](const Dims& i) { result.push_back(placed.at(offset(i, to))); });
    store(ty, std::move(result));
  }
};

}  // namespace

void compute(const Object& graph, const std::map<int64_t, void*>& memory, const std::map<int64_t, float>& numbers,
             bool tf32) {
  Machine m{memory, numbers, tf32, {}};
  for (auto& o : graph.all(A::GraphOperations)) {
    if (is_convolution(o->kind)) m.convolve(*o);
    else if (o->kind == Kind::OperationPointwise) m.pointwise(*o);
    else if (o->kind == Kind::OperationMatmul) m.multiply(*o);
    else if (o->kind == Kind::OperationReduction) m.reduce(*o);
    else m.reshape(*o);
  }
}

}  // namespace cudnn_emulator
