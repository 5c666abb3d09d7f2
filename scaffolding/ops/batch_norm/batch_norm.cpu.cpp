// batch_norm on the CPU, with group_norm's inner loops: channels-last is one item of N S rows whose groups are
// channels;
// NCHW gives each thread whole channels (a channel's planes are read again from its cache), or pieces of planes where
// channels are few.
#include "scaffolding/ops/batch_norm/kernel.h"

#include "scaffolding/ops/group_norm/channel_norm.h"

namespace sf {
namespace SF_ISA {

// How [N, C, S] is cut: channels-last into pieces of rows; NCHW into pieces of planes.
struct BatchPieces {
  int64_t N, C, S, step, count;  // rows: count pieces of step rows; planes: count pieces of step elements per plane
};
template <class T> static BatchPieces pieces_of(const ChannelShape& s) {
  if (s.rows) {
    int64_t rows = s.N * s.S, step = kRowsPiece / s.C > 4 ? kRowsPiece / s.C : 4;
    return {s.N, s.C, s.S, step, (rows + step - 1) / step};
  }
  return {s.N, s.C, s.S, kPiece, (s.S + kPiece - 1) / kPiece};
}
SF_INLINE int64_t size_at(int64_t total, int64_t p, int64_t step) {
  return total - p * step < step ? total - p * step : step;
}

template <class A> static void update_running(const TensorView& running, int64_t c, double value, double momentum) {
  if (!running) return;
  A old, *memory = &old;
  TensorView one = running;
  one.data = running.as<char>() + c * running.strides[0] * int64_t(size_of(running.dtype));
  old = converted<A>(one, 1, A(0), memory)[0];
  A updated = A((1 - momentum) * double(old) + momentum * value);
  write_converted<A>(running, c, c + 1, &updated);
}

// Statistics of the batch, or the running ones; then the fold into gain and offset.
template <class A> struct ChannelFinish {
  const BatchNormForward& a;
  const A *weight, *bias;
  A *gain, *offset;
  SF_INLINE void operator()(int64_t c, const Moments& m) const {
    double mean, rstd;
    if (a.training) {
      double variance = m.m2 / m.count;
      mean = m.mean;
      rstd = 1 / __builtin_sqrt(variance + a.eps);
      update_running<A>(a.running_mean, c, mean, a.momentum);
      update_running<A>(a.running_var, c, m.count > 1 ? m.m2 / (m.count - 1) : __builtin_nan(""), a.momentum);
    } else {
      mean = m.mean;
      rstd = 1 / __builtin_sqrt(m.m2 + a.eps);  // here m2 is the running variance
    }
    a.mean.template as<A>()[c] = A(mean);
    a.rstd.template as<A>()[c] = A(rstd);
    gain[c] = A(rstd * double(weight[c]));
    offset[c] = A(double(bias[c]) - mean * rstd * double(weight[c]));
  }
};

template <class T> static void forward_of(const BatchNormForward& a) {
  using A = Acc<T>;
  ChannelShape s = channel_shape(a.x);
  BatchPieces k = pieces_of<T>(s);
  int64_t N = k.N, C = k.C, S = k.S, units = s.rows ? k.count : N * k.count;  // per channel
  const T* x = a.x.as<const T>();
  T* y = a.y.as<T>();
  bool stream = streams<T>(s, x, y);
  A* rows = static_cast<A*>(scratch(size_t(6 * C) * sizeof(A), 0));
  const A *weight = converted<A>(a.weight, C, A(1), rows), *bias = converted<A>(a.bias, C, A(0), rows + C);
  A *gain = rows + 2 * C, *offset = rows + 3 * C;
  ChannelFinish<A> finish{a, weight, bias, gain, offset};
  // [units][C][mean, m2]
  double* partial = a.training ? static_cast<double*>(scratch(size_t(units * C * 2) * 8, 1)) : nullptr;
  auto plane_statistics = [=](int64_t c, int64_t u) {
    plane_moments<T>(x + (u / k.count * C + c) * S + u % k.count * k.step, size_at(S, u % k.count, k.step),
                     partial + (u * C + c) * 2);
  };
  auto combine = [=](int64_t c) {
    Moments m;
    for (int64_t u = 0; u < units; ++u)
      m.add(partial[(u * C + c) * 2], partial[(u * C + c) * 2 + 1],
            double(s.rows ? size_at(N * S, u, k.step) : size_at(S, u % k.count, k.step)));
    finish(c, m);
  };
  if (!a.training) {
    const A *mean = converted<A>(a.running_mean, C, A(0), rows + 4 * C),
            *variance = converted<A>(a.running_var, C, A(1), rows + 5 * C);
    for (int64_t c = 0; c < C; ++c) finish(c, Moments{double(mean[c]), double(variance[c]), 1});
  }
  if (s.rows) {
    if (a.training) {
      parallel_for(k.count, 1, [=](int64_t begin, int64_t end) {
        A* work = static_cast<A*>(scratch(size_t(3 * C) * sizeof(A), 2));
        for (int64_t p = begin; p < end; ++p)
          rows_moments<T>(x + p * k.step * C, size_at(N * S, p, k.step), C, C, work, partial + p * C * 2);
      });
      parallel_for(C, row_grain(units * 8), [=](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) combine(c);
      });
    }
    pair_row_coefficients<T>(gain, C);  // over mean and variance, which finish() has read
    parallel_for(k.count, 1, [=](int64_t begin, int64_t end) {
      for (int64_t p = end - 1; p >= begin; --p)
        rows_apply<T, false>(x + p * k.step * C, y + p * k.step * C, size_at(N * S, p, k.step), C, gain, stream,
                             static_cast<const T*>(nullptr));
      if (stream) stream_fence();
    });
    return;
  }
  if (a.training && C >= 2 * num_threads()) {
    parallel_for(C, row_grain(N * S), [=](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t u = 0; u < units; ++u) plane_statistics(c, u);
        combine(c);
        for (int64_t n = N - 1; n >= 0; --n)
          plane_apply<T, false>(x + (n * C + c) * S, y + (n * C + c) * S, S, gain[c], offset[c],
                                x + (n * C + c + 1) * S, stream);
      }
      if (stream) stream_fence();
    });
    return;
  }
  if (a.training) {
    parallel_for(C * units, row_grain(S), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) plane_statistics(i / units, i % units);
    });
    for (int64_t c = 0; c < C; ++c) combine(c);
  }
  parallel_for(C * units, row_grain(S), [=](int64_t begin, int64_t end) {
    for (int64_t i = end - 1; i >= begin; --i) {
      int64_t c = i / units, u = i % units, at = (u / k.count * C + c) * S + u % k.count * k.step;
      plane_apply<T, false>(x + at, y + at, size_at(S, u % k.count, k.step), gain[c], offset[c], x + at + k.step,
                            stream);
    }
    if (stream) stream_fence();
  });
}

template <class T> static void backward_of(const BatchNormBackward& a) {
  using A = Acc<T>;
  ChannelShape s = channel_shape(a.x);
  BatchPieces k = pieces_of<T>(s);
  int64_t N = k.N, C = k.C, S = k.S, units = s.rows ? k.count : N * k.count;
  const T *x = a.x.as<const T>(), *dy = a.dy.as<const T>();
  T* dx = a.dx.as<T>();
  const A *mean = a.mean.as<const A>(), *rstd = a.rstd.as<const A>();
  A* rows = static_cast<A*>(scratch(size_t(8 * C + units * C * 2) * sizeof(A), 0));
  const A* weight = converted<A>(a.weight, C, A(1), rows);
  // [gain, offset, rstd, center][C], [p, q, t][C]; gain and offset serve SiLU only
  A *coefficients = rows + C, *pqt = rows + 5 * C;
  A* partial = rows + 8 * C;  // rows [units][2][C], planes [units][C][2]: sum(dy hat), sum(dy)
  for (int64_t c = 0; c < C; ++c) {
    coefficients[2 * C + c] = rstd[c];
    coefficients[3 * C + c] = A(-double(mean[c]) * double(rstd[c]));
  }
  auto plane_at = [=](int64_t c, int64_t u) { return (u / k.count * C + c) * S + u % k.count * k.step; };
  auto plane_sum = [=](int64_t c, int64_t u) {
    int64_t at = plane_at(c, u);
    plane_sums<T, false>(x + at, dy + at, size_at(S, u % k.count, k.step), {0, 0, rstd[c], coefficients[3 * C + c]},
                         partial + (u * C + c) * 2);
  };
  auto combine = [=, &a](int64_t c) {
    double s1 = 0, s2 = 0, m = double(N * S), r = rstd[c], p = r * double(weight[c]);
    for (int64_t u = 0; u < units; ++u) {
      const A* q = s.rows ? partial + u * 2 * C + c : partial + (u * C + c) * 2;
      s1 += double(q[0]);
      s2 += double(q[s.rows ? C : 1]);
    }
    A gw = A(s1), gb = A(s2);
    if (a.dweight) write_converted<A>(a.dweight, c, c + 1, &gw);
    if (a.dbias) write_converted<A>(a.dbias, c, c + 1, &gb);
    double slope = a.training ? -p * s1 / m : 0;
    pqt[c] = A(p);
    pqt[C + c] = A(slope * r);
    pqt[2 * C + c] = A(a.training ? -p * s2 / m - slope * r * double(mean[c]) : 0);
  };
  if (s.rows) {
    parallel_for(k.count, 1, [=](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        int64_t at = p * k.step * C;
        rows_sums<T, false>(x + at, dy + at, size_at(N * S, p, k.step), C, coefficients, partial + p * 2 * C);
      }
    });
    for (int64_t c = 0; c < C; ++c) combine(c);
    parallel_for(k.count, 1, [=](int64_t begin, int64_t end) {
      for (int64_t p = end - 1; p >= begin; --p) {
        int64_t at = p * k.step * C;
        rows_dx<T, false>(x + at, dy + at, dx + at, size_at(N * S, p, k.step), C, coefficients, pqt);
      }
    });
    return;
  }
  auto gradient = [=](int64_t c, int64_t u) {
    int64_t at = plane_at(c, u);
    plane_dx<T, false>(x + at, dy + at, dx + at, size_at(S, u % k.count, k.step), A(0), A(0), pqt[c], pqt[C + c],
                       pqt[2 * C + c]);
  };
  if (C >= 2 * num_threads()) {
    parallel_for(C, row_grain(N * S), [=](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t u = 0; u < units; ++u) plane_sum(c, u);
        combine(c);
        for (int64_t u = units - 1; u >= 0; --u) gradient(c, u);
      }
    });
    return;
  }
  parallel_for(C * units, row_grain(S), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) plane_sum(i / units, i % units);
  });
  for (int64_t c = 0; c < C; ++c) combine(c);
  parallel_for(C * units, row_grain(S), [=](int64_t begin, int64_t end) {
    for (int64_t i = end - 1; i >= begin; --i) gradient(i / units, i % units);
  });
}

static void forward(const BatchNormForward& a) {
  if (a.x.numel() == 0) return;
  visit_floating(a.x.dtype, [&](auto tag) { forward_of<typename decltype(tag)::type>(a); });
}
static void backward(const BatchNormBackward& a) {
  if (a.x.numel() == 0) return;
  visit_floating(a.x.dtype, [&](auto tag) { backward_of<typename decltype(tag)::type>(a); });
}
static bool forward_supports(const BatchNormForward& a) {
  return channel_input(a.x) && same_layout(a.y, a.x) && any_floating_channels(a.weight) &&
         any_floating_channels(a.bias) && any_floating_channels(a.running_mean) && any_floating_channels(a.running_var);
}
static bool backward_supports(const BatchNormBackward& a) {
  return channel_input(a.x) && same_layout(a.dy, a.x) && same_layout(a.dx, a.x) && any_floating_channels(a.weight);
}

SF_KERNEL(batch_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(batch_norm_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
