#include "scaffolding/ops/spatial/spatial.h"

#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf {

constinit KernelTable<Remap> remap_kernel{"remap"};
constinit KernelTable<RemapBackward> remap_backward_kernel{"remap_backward"};

namespace spatial {

Layout layout_of(const Tensor& x, int64_t dims) {
  autograd::NoGrad off;
  Layout l;
  l.dims = dims;
  l.channels_last = x.ndim() == dims + 2 && !x.is_contiguous() && x.is_contiguous(MemoryFormat::ChannelsLast);
  l.x = l.channels_last ? x : contiguous(x);
  for (int64_t i = 0; i < x.ndim() - dims; ++i)
    (l.channels_last && i == 1 ? l.extent.inner : l.extent.outer) *= x.shape()[i];
  for (int64_t i = 0; i < dims; ++i) l.extent.size[3 - dims + i] = x.shape()[x.ndim() - dims + i];
  return l;
}

Tensor empty_result(const Layout& l, const Shape& sizes, std::optional<DType> dtype) {
  Shape shape = l.x.shape();
  for (int64_t i = 0; i < l.dims; ++i) shape[shape.size() - l.dims + i] = sizes[i];
  DType t = dtype.value_or(l.x.dtype());
  return l.channels_last ? empty_strided(shape, channels_last_strides(shape), t, l.x.device())
                         : empty(shape, t, l.x.device());
}

Extent with_sizes(const Layout& l, const Shape& sizes) {
  Extent e = l.extent;
  for (int64_t i = 0; i < l.dims; ++i) e.size[3 - l.dims + i] = sizes[i];
  return e;
}

// ---- remap

namespace {

// A map per spatial dimension, absent ones filled in, and its inverse.
struct Maps {
  std::vector<Map> map;  // as given, for the last dimensions
  Map all[3], start[3], list[3];
  Shape in_sizes, out_sizes;
};

std::shared_ptr<const Maps> prepared(const Tensor& x, const std::vector<Map>& maps) {
  auto m = std::make_shared<Maps>();
  m->map = maps;
  int64_t dims = int64_t(maps.size());
  for (int64_t d = 0; d < 3; ++d) {
    bool present = d >= 3 - dims;
    int64_t i = d - (3 - dims), n = present ? x.shape()[x.ndim() - dims + i] : 1;
    m->all[d] = present ? maps[size_t(i)] : Map{0};
    if (present) {
      m->in_sizes.push_back(n);
      m->out_sizes.push_back(int64_t(m->all[d].size()));
    }
    // Outputs by input, counted and then listed in order.
    Map& start = m->start[d];
    start.assign(size_t(n) + 1, 0);
    for (auto from : m->all[d]) ++start[size_t(from) + 1];
    for (size_t k = 1; k < start.size(); ++k) start[k] += start[k - 1];
    Map next = start;
    m->list[d].resize(m->all[d].size());
    for (size_t o = 0; o < m->all[d].size(); ++o) m->list[d][size_t(next[size_t(m->all[d][o])]++)] = int64_t(o);
  }
  return m;
}

Tensor forward(const char* op, const Tensor& x, const std::shared_ptr<const Maps>& m);

Tensor backward(const char* op, const Tensor& dy, const std::shared_ptr<const Maps>& m) {
  Layout l = layout_of(dy, int64_t(m->map.size()));
  Tensor dx = empty_result(l, m->in_sizes);
  if (dx.numel() > 0) {
    RemapBackward k{l.x.data_ptr(), dx.data_ptr(), dx.dtype(), with_sizes(l, m->in_sizes), l.extent, {}, {}};
    for (int d = 0; d < 3; ++d) {
      k.start[d] = m->start[d].data();
      k.list[d] = m->list[d].data();
    }
    auto kernel = remap_backward_kernel.find(dx.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no backward kernel for ", dy.dtype(), " on ", dy.device());
    kernel(k);
  }
  return autograd::record(op, dx, {dy}, [op, m](const Tensor& g) -> Tensors { return {forward(op, g, m)}; });
}

Tensor forward(const char* op, const Tensor& x, const std::shared_ptr<const Maps>& m) {
  Layout l = layout_of(x, int64_t(m->map.size()));
  Tensor y = empty_result(l, m->out_sizes);
  if (y.numel() > 0) {
    Remap k{l.x.data_ptr(),
            y.data_ptr(),
            y.dtype(),
            l.extent,
            with_sizes(l, m->out_sizes),
            {m->all[0].data(), m->all[1].data(), m->all[2].data()}};
    auto kernel = remap_kernel.find(y.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", y.device());
    kernel(k);
  }
  return autograd::record(op, y, {x}, [op, m](const Tensor& dy) -> Tensors { return {backward(op, dy, m)}; });
}

}  // namespace

Tensor remap(const char* op, const Tensor& x, const std::vector<Map>& maps) {
  return forward(op, x, prepared(x, maps));
}

namespace {

constexpr int64_t kGrain = 1 << 14;

template <class U> void remap_as(const Remap& k) {
  const int64_t* out = k.to.size;
  const int64_t* in = k.from.size;
  int64_t inner = k.to.inner, row = out[2] * inner;
  const int64_t* map = k.map[2];
  // The longest run of neighbours is moved at once: the interior of a padded row.
  int64_t run_begin = 0, run_end = 0;
  for (int64_t b = 0, o = 1; o <= out[2]; ++o)
    if (o == out[2] || map[o] != map[o - 1] + 1) {
      if (o - b > run_end - run_begin) {
        run_begin = b;
        run_end = o;
      }
      b = o;
    }
  if (inner == 1 && run_end - run_begin < 8) run_end = run_begin;
  parallel_for(k.to.outer * out[0] * out[1], std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    const U* last = nullptr;
    for (int64_t r = begin; r < end; ++r) {
      int64_t h = r % out[1], d = r / out[1] % out[0], n = r / (out[1] * out[0]);
      U* y = static_cast<U*>(k.out) + r * row;
      const U* x = static_cast<const U*>(k.in) + ((n * in[0] + k.map[0][d]) * in[1] + k.map[1][h]) * in[2] * inner;
      if (x == last) {  // the same source row again: nearest neighbours
        std::memcpy(y, y - row, size_t(row) * sizeof(U));
        continue;
      }
      last = x;
      auto some = [&](int64_t b, int64_t e) {
        if (inner == 1)
          for (int64_t o = b; o < e; ++o) y[o] = x[map[o]];
        else
          for (int64_t o = b; o < e; ++o) std::memcpy(y + o * inner, x + map[o] * inner, size_t(inner) * sizeof(U));
      };
      some(0, run_begin);
      if (run_end > run_begin)
        std::memcpy(y + run_begin * inner, x + map[run_begin] * inner,
                    size_t((run_end - run_begin) * inner) * sizeof(U));
      some(run_end, out[2]);
    }
  });
}
void remap_cpu(const Remap& k) {
  switch (size_of(k.dtype)) {
    case 1: return remap_as<uint8_t>(k);
    case 2: return remap_as<uint16_t>(k);
    case 4: return remap_as<uint32_t>(k);
    default: return remap_as<uint64_t>(k);
  }
}

template <class T> void remap_backward_as(const RemapBackward& k) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto value = [](T v) -> Sum {
    if constexpr (std::is_same_v<T, double>) return v;
    else return to_float(v);
  };
  const int64_t* in = k.dx_extent.size;
  const int64_t* out = k.dy_extent.size;
  int64_t inner = k.dx_extent.inner;
  constexpr int64_t kChunk = 256;  // channels summed together
  parallel_for(
      k.dx_extent.outer * in[0] * in[1], std::max<int64_t>(1, kGrain / (in[2] * inner)),
      [&](int64_t begin, int64_t end) {
        Sum sum[kChunk];
        for (int64_t r = begin; r < end; ++r) {
          int64_t h = r % in[1], d = r / in[1] % in[0], n = r / (in[1] * in[0]);
          for (int64_t w = 0; w < in[2]; ++w) {
            T* x = static_cast<T*>(k.dx) + (r * in[2] + w) * inner;
            for (int64_t c0 = 0; c0 < inner; c0 += kChunk) {
              int64_t m = std::min(kChunk, inner - c0);
              for (int64_t c = 0; c < m; ++c) sum[c] = 0;
              for (int64_t i = k.start[0][d]; i < k.start[0][d + 1]; ++i)
                for (int64_t j = k.start[1][h]; j < k.start[1][h + 1]; ++j)
                  for (int64_t l = k.start[2][w]; l < k.start[2][w + 1]; ++l) {
                    const T* y =
                        static_cast<const T*>(k.dy) +
                        (((n * out[0] + k.list[0][i]) * out[1] + k.list[1][j]) * out[2] + k.list[2][l]) * inner + c0;
                    for (int64_t c = 0; c < m; ++c) sum[c] += value(y[c]);
                  }
              for (int64_t c = 0; c < m; ++c) {
                if constexpr (std::is_same_v<T, double>) x[c0 + c] = sum[c];
                else x[c0 + c] = from_float<T>(sum[c]);
              }
            }
          }
        }
      });
}
void remap_backward_cpu(const RemapBackward& k) {
  if (k.dtype == kFloat64) remap_backward_as<double>(k);
  else if (k.dtype == kBFloat16) remap_backward_as<BFloat16>(k);
  else if (k.dtype == kFloat16) remap_backward_as<Half>(k);
  else remap_backward_as<float>(k);
}
bool is_real(const RemapBackward& k) { return is_floating(k.dtype) && !is_float8(k.dtype); }

SF_KERNEL(remap_kernel, DeviceType::CPU, "native", 0, remap_cpu, nullptr)
SF_KERNEL(remap_backward_kernel, DeviceType::CPU, "native", 0, remap_backward_cpu, is_real)

}  // namespace
}  // namespace spatial
}  // namespace sf
