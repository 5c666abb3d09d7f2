// group_norm (+ SiLU) on the CPU; channel_norm.h has the inner loops.
// Data flow, channels-last: per batch item, threads take the statistics of their pieces of rows, one combines them,
// each applies them to the same pieces, the last first, so that an item is read from memory once and from the cache
// again.
// (Rows within a piece go forwards: backwards, the prefetcher fails and the whole takes a fifth longer.)
// NCHW: a group is contiguous; each thread does whole groups, or pieces of them where groups are fewer than threads.
// [2, 320, 64, 64] with SiLU, out of the caches, share of a copy's bandwidth on 2 cores of Zen 4: NCHW 89 % in float32,
// 86 % in bfloat16; channels-last 85 and 77 %, where reading an item for its statistics takes a third of the time. Rows
// are read one by one: eight abreast came at two thirds of the bandwidth. Columns of channels that would fit the L2
// were slower than whole rows.
#include "scaffolding/ops/group_norm/kernel.h"

#include "scaffolding/ops/group_norm/channel_norm.h"
#include "scaffolding/ops/group_norm/fold_item.h"

namespace sf {
namespace SF_ISA {

static constexpr int64_t kSmallItem = 262144;  // elements: several items run side by side in the threads' L2

template <class A> static void finish(const Moments& m, double eps, A* mean, A* rstd) {
  *mean = A(m.mean);
  *rstd = A(1.0 / __builtin_sqrt(m.m2 / m.count + eps));
}

template <class T, bool kSilu>
static void forward_rows(const GroupNormForward& a, const ChannelShape& s, const Acc<T>* weight, const Acc<T>* bias) {
  using A = Acc<T>;
  int64_t N = s.N, C = s.C, S = s.S, G = a.groups, step = kRowsPiece / C > 4 ? kRowsPiece / C : 4,
          pieces = (S + step - 1) / step;
  int64_t K = row_coefficients(C);
  char* shared = static_cast<char*>(scratch(size_t(N * (pieces * G * 2 * 8 + K * int64_t(sizeof(A)))), 1));
  double* partial = reinterpret_cast<double*>(shared);                // [N][pieces][G][mean, m2]
  A* folded = reinterpret_cast<A*>(shared + N * pieces * G * 2 * 8);  // [N][row_coefficients]
  bool stream = streams<T>(s, a.x.data, a.y.data);
  const T* x = a.x.as<const T>();
  T* y = a.y.as<T>();
  A *mean = a.mean.as<A>(), *rstd = a.rstd.as<A>();
  auto rows_in = [=](int64_t p) { return S - p * step < step ? S - p * step : step; };
  auto statistics = [=](int64_t n, int64_t begin, int64_t end) {
    A* work = static_cast<A*>(scratch(size_t(3 * C) * sizeof(A), 2));
    for (int64_t p = begin; p < end; ++p)
      rows_moments<T>(x + (n * S + p * step) * C, rows_in(p), C, G, work, partial + (n * pieces + p) * G * 2);
  };
  // the parallel axis theorem, without Moments::add's divisions: the other threads wait for this one
  auto combine = [=, &a](int64_t n) {
    const double per_row = 1.0 / double(S);
    for (int64_t g = 0; g < G; ++g) {
      Moments m;
      m.count = double(S * (C / G));
      for (int64_t p = 0; p < pieces; ++p)
        m.mean += partial[((n * pieces + p) * G + g) * 2] * double(rows_in(p)) * per_row;
      for (int64_t p = 0; p < pieces; ++p) {
        const double* q = partial + ((n * pieces + p) * G + g) * 2;
        const double off = q[0] - m.mean;
        m.m2 += q[1] + off * off * double(rows_in(p) * (C / G));
      }
      finish(m, a.eps, mean + n * G + g, rstd + n * G + g);
    }
    fold_item(mean + n * G, rstd + n * G, weight, bias, C, G, kActivationScale<T, kSilu>, folded + n * K,
              folded + n * K + C);
    pair_row_coefficients<T>(folded + n * K, C);
  };
  auto apply = [=](int64_t n, int64_t begin, int64_t end) {
    if (!y) return;
    for (int64_t p = end - 1; p >= begin; --p) {
      int64_t at = (n * S + p * step) * C;
      rows_apply<T, kSilu>(x + at, y + at, rows_in(p), C, folded + n * K, stream, n + 1 < N ? x + at + S * C : nullptr);
    }
    if (stream) stream_fence();
  };
  if (N > 1 && S * C <= kSmallItem) {
    parallel_for(N, row_grain(S * C), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        statistics(n, 0, pieces);
        combine(n);
        apply(n, 0, pieces);
      }
    });
    return;
  }
  for (int64_t n = 0; n < N; ++n) {
    parallel_for(pieces, 1, [=](int64_t begin, int64_t end) { statistics(n, begin, end); });
    combine(n);
    parallel_for(pieces, 1, [=](int64_t begin, int64_t end) { apply(n, begin, end); });
  }
}

template <class T, bool kSilu>
static void forward_planes(const GroupNormForward& a, const ChannelShape& s, const Acc<T>* weight, const Acc<T>* bias) {
  using A = Acc<T>;
  int64_t N = s.N, C = s.C, S = s.S, G = a.groups, D = C / G, M = D * S;
  int64_t pieces = (M + kPiece - 1) / kPiece, plane_pieces = (S + kPiece - 1) / kPiece;
  double* partial = static_cast<double*>(scratch(size_t(N * G * pieces * 2) * 8, 1));
  bool stream = streams<T>(s, a.x.data, a.y.data);
  const T* x = a.x.as<const T>();
  T* y = a.y.as<T>();
  A *mean = a.mean.as<A>(), *rstd = a.rstd.as<A>();
  auto size_at = [](int64_t total, int64_t p) { return total - p * kPiece < kPiece ? total - p * kPiece : kPiece; };
  auto statistics = [=](int64_t u, int64_t p) {
    plane_moments<T>(x + u * M + p * kPiece, size_at(M, p), partial + (u * pieces + p) * 2);
  };
  auto combine = [=, &a](int64_t u) {
    Moments m;
    for (int64_t p = 0; p < pieces; ++p)
      m.add(partial[(u * pieces + p) * 2], partial[(u * pieces + p) * 2 + 1], double(size_at(M, p)));
    finish(m, a.eps, mean + u, rstd + u);
  };
  auto apply = [=](int64_t plane, int64_t from, int64_t count) {  // plane = n C + c
    if (!y) return;
    int64_t c = plane % C, u = plane / D;
    double gain = double(rstd[u]) * double(weight[c]), offset = double(bias[c]) - double(mean[u]) * gain,
           scale = kActivationScale<T, kSilu>;
    plane_apply<T, kSilu>(x + plane * S + from, y + plane * S + from, count, A(scale * gain), A(scale * offset),
                          x + plane * S + from + M, stream);
  };
  if (N * G >= 2 * num_threads() || N * G * M <= kPiece) {
    parallel_for(N * G, row_grain(M), [=](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        for (int64_t p = 0; p < pieces; ++p) statistics(u, p);
        combine(u);
        for (int64_t d = D - 1; d >= 0; --d) apply(u * D + d, 0, S);
      }
      if (stream) stream_fence();
    });
    return;
  }
  parallel_for(N * G * pieces, 1, [=](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) statistics(k / pieces, k % pieces);
  });
  for (int64_t u = 0; u < N * G; ++u) combine(u);
  parallel_for(N * C * plane_pieces, row_grain(S), [=](int64_t begin, int64_t end) {
    for (int64_t k = end - 1; k >= begin; --k)
      apply(k / plane_pieces, k % plane_pieces * kPiece, size_at(S, k % plane_pieces));
    if (stream) stream_fence();
  });
}

// From the sums over a channel, A1 = sum(dz hat) and A2 = sum(dz), with m elements in a group and sums over the group
// of w A2 and w A1:  dx = rstd (w dz - (S2 + hat S1) / m), written as p dz + q x + t.
template <class A> struct GroupGradient {
  double rstd, mean, q, t;
  SF_INLINE GroupGradient(A mean_, A rstd_, double s1, double s2, double m) : rstd(rstd_), mean(mean_) {
    double slope = -rstd * s1 / m;
    q = slope * rstd;
    t = -rstd * s2 / m - slope * rstd * mean;
  }
};

template <class A>
static void write_sums(const GroupNormBackward& a, int64_t N, int64_t C, const A* totals, int64_t stride,
                       int64_t step) {
  // totals of (n, c): sum(dz hat) at n C step-strided, sum(dz) `stride` further
  for (int64_t c = 0; c < C; ++c) {
    double w = 0, b = 0;
    for (int64_t n = 0; n < N; ++n) {
      w += double(totals[n * 2 * C + c * step]);
      b += double(totals[n * 2 * C + c * step + stride]);
    }
    A gw = A(w), gb = A(b);
    if (a.dweight) write_converted<A>(a.dweight, c, c + 1, &gw);
    if (a.dbias) write_converted<A>(a.dbias, c, c + 1, &gb);
  }
}

template <class T, bool kSilu>
static void backward_rows(const GroupNormBackward& a, const ChannelShape& s, const Acc<T>* weight, const Acc<T>* bias) {
  using A = Acc<T>;
  int64_t N = s.N, C = s.C, S = s.S, G = a.groups, D = C / G, step = kRowsPiece / C > 4 ? kRowsPiece / C : 4,
          pieces = (S + step - 1) / step;
  bool side_by_side = N > 1 && S * C <= kSmallItem;
  int64_t kept = side_by_side ? N : 1;  // items whose partial sums and coefficients live at once
  A* shared = static_cast<A*>(scratch(size_t(kept * (pieces * 2 * C + 7 * C) + N * 2 * C) * sizeof(A), 1));
  A* totals = shared;                        // [N][sum(dz hat), sum(dz)][C]
  A* coefficients = totals + N * 2 * C;      // [kept][gain, offset, rstd, center, p, q, t][C]
  A* partial = coefficients + kept * 7 * C;  // [kept][pieces][2][C]
  const T *x = a.x.as<const T>(), *dy = a.dy.as<const T>();
  T* dx = a.dx.as<T>();
  const A *mean = a.mean.as<const A>(), *rstd = a.rstd.as<const A>();
  auto rows_in = [=](int64_t p) { return S - p * step < step ? S - p * step : step; };
  auto prepare = [=](int64_t n, int64_t slot) {
    A* k = coefficients + slot * 7 * C;
    fold_item(mean + n * G, rstd + n * G, weight, bias, C, G, 1, k, k + C);
    for (int64_t c = 0; c < C; ++c) {
      k[2 * C + c] = rstd[n * G + c / D];
      k[3 * C + c] = A(-double(mean[n * G + c / D]) * double(rstd[n * G + c / D]));
    }
  };
  auto sums = [=](int64_t n, int64_t slot, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int64_t at = (n * S + p * step) * C;
      rows_sums<T, kSilu>(x + at, dy + at, rows_in(p), C, coefficients + slot * 7 * C,
                          partial + (slot * pieces + p) * 2 * C);
    }
  };
  auto combine = [=](int64_t n, int64_t slot) {
    A *total = totals + n * 2 * C, *pqt = coefficients + slot * 7 * C + 4 * C;
    for (int64_t c = 0; c < 2 * C; ++c) {
      double sum = 0;
      for (int64_t p = 0; p < pieces; ++p) sum += double(partial[(slot * pieces + p) * 2 * C + c]);
      total[c] = A(sum);
    }
    for (int64_t g = 0; g < G; ++g) {
      double s1 = 0, s2 = 0;
      for (int64_t c = g * D; c < (g + 1) * D; ++c) {
        s1 += double(weight[c]) * double(total[c]);
        s2 += double(weight[c]) * double(total[C + c]);
      }
      GroupGradient<A> f(mean[n * G + g], rstd[n * G + g], s1, s2, double(D * S));
      for (int64_t c = g * D; c < (g + 1) * D; ++c) {
        pqt[c] = A(f.rstd * double(weight[c]));
        pqt[C + c] = A(f.q);
        pqt[2 * C + c] = A(f.t);
      }
    }
  };
  auto gradient = [=](int64_t n, int64_t slot, int64_t begin, int64_t end) {
    const A* k = coefficients + slot * 7 * C;
    for (int64_t p = end - 1; p >= begin; --p) {
      int64_t at = (n * S + p * step) * C;
      rows_dx<T, kSilu>(x + at, dy + at, dx + at, rows_in(p), C, k, k + 4 * C);
    }
  };
  if (side_by_side) {
    parallel_for(N, row_grain(S * C), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        prepare(n, n);
        sums(n, n, 0, pieces);
        combine(n, n);
        gradient(n, n, 0, pieces);
      }
    });
  } else {
    for (int64_t n = 0; n < N; ++n) {
      prepare(n, 0);
      parallel_for(pieces, 1, [=](int64_t begin, int64_t end) { sums(n, 0, begin, end); });
      combine(n, 0);
      parallel_for(pieces, 1, [=](int64_t begin, int64_t end) { gradient(n, 0, begin, end); });
    }
  }
  write_sums<A>(a, N, C, totals, C, 1);
}

template <class T, bool kSilu>
static void backward_planes(const GroupNormBackward& a, const ChannelShape& s, const Acc<T>* weight,
                            const Acc<T>* bias) {
  using A = Acc<T>;
  int64_t N = s.N, C = s.C, S = s.S, G = a.groups, D = C / G, pieces = (S + kPiece - 1) / kPiece;
  A* totals = static_cast<A*>(scratch(size_t(N * C * 2 + N * C * pieces * 2 + N * G * 2) * sizeof(A), 1));  // [N][C][2]
  A *partial = totals + N * C * 2, *group = partial + N * C * pieces * 2;  // [N][C][pieces][2], [N][G][q, t]
  const T *x = a.x.as<const T>(), *dy = a.dy.as<const T>();
  T* dx = a.dx.as<T>();
  const A *mean = a.mean.as<const A>(), *rstd = a.rstd.as<const A>();
  auto size_at = [=](int64_t p) { return S - p * kPiece < kPiece ? S - p * kPiece : kPiece; };
  auto coefficients = [=](int64_t plane) {
    int64_t c = plane % C, u = plane / D;
    double r = rstd[u], m = mean[u], gain = r * double(weight[c]);
    return Coefficients<A>{A(gain), A(double(bias[c]) - m * gain), A(r), A(-m * r)};
  };
  auto sums = [=](int64_t plane, int64_t p) {
    int64_t at = plane * S + p * kPiece;
    plane_sums<T, kSilu>(x + at, dy + at, size_at(p), coefficients(plane), partial + (plane * pieces + p) * 2);
  };
  auto combine = [=](int64_t u) {
    double s1 = 0, s2 = 0;
    for (int64_t plane = u * D; plane < (u + 1) * D; ++plane) {
      double sum[2] = {0, 0};
      for (int64_t p = 0; p < pieces; ++p) {
        sum[0] += double(partial[(plane * pieces + p) * 2]);
        sum[1] += double(partial[(plane * pieces + p) * 2 + 1]);
      }
      totals[plane * 2] = A(sum[0]);
      totals[plane * 2 + 1] = A(sum[1]);
      s1 += double(weight[plane % C]) * sum[0];
      s2 += double(weight[plane % C]) * sum[1];
    }
    GroupGradient<A> f(mean[u], rstd[u], s1, s2, double(D * S));
    group[2 * u] = A(f.q);
    group[2 * u + 1] = A(f.t);
  };
  auto gradient = [=](int64_t plane, int64_t from, int64_t count) {
    int64_t u = plane / D, at = plane * S + from;
    Coefficients<A> k = coefficients(plane);
    plane_dx<T, kSilu>(x + at, dy + at, dx + at, count, k.gain, k.offset, k.gain, group[2 * u], group[2 * u + 1]);
  };
  if (N * G >= 2 * num_threads() || N * C * S <= kPiece) {
    parallel_for(N * G, row_grain(D * S), [=](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        for (int64_t k = u * D * pieces; k < (u + 1) * D * pieces; ++k) sums(k / pieces, k % pieces);
        combine(u);
        for (int64_t plane = (u + 1) * D - 1; plane >= u * D; --plane) gradient(plane, 0, S);
      }
    });
  } else {
    parallel_for(N * C * pieces, row_grain(S), [=](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) sums(k / pieces, k % pieces);
    });
    for (int64_t u = 0; u < N * G; ++u) combine(u);
    parallel_for(N * C * pieces, row_grain(S), [=](int64_t begin, int64_t end) {
      for (int64_t k = end - 1; k >= begin; --k) gradient(k / pieces, k % pieces * kPiece, size_at(k % pieces));
    });
  }
  write_sums<A>(a, N, C, totals, 1, 2);
}

static void forward(const GroupNormForward& a) {
  visit_floating(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Acc<T>;
    ChannelShape s = channel_shape(a.x);
    A* rows = static_cast<A*>(scratch(size_t(2 * s.C) * sizeof(A), 0));
    const A *weight = converted<A>(a.weight, s.C, A(1), rows), *bias = converted<A>(a.bias, s.C, A(0), rows + s.C);
    if (s.N * s.C * s.S == 0) return;
    if (s.rows) a.silu ? forward_rows<T, true>(a, s, weight, bias) : forward_rows<T, false>(a, s, weight, bias);
    else a.silu ? forward_planes<T, true>(a, s, weight, bias) : forward_planes<T, false>(a, s, weight, bias);
  });
}
static void backward(const GroupNormBackward& a) {
  visit_floating(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Acc<T>;
    ChannelShape s = channel_shape(a.x);
    A* rows = static_cast<A*>(scratch(size_t(2 * s.C) * sizeof(A), 0));
    const A *weight = converted<A>(a.weight, s.C, A(1), rows), *bias = converted<A>(a.bias, s.C, A(0), rows + s.C);
    if (s.N * s.C * s.S == 0) return write_sums<A>(a, 0, s.C, rows, 0, 0);
    if (s.rows) a.silu ? backward_rows<T, true>(a, s, weight, bias) : backward_rows<T, false>(a, s, weight, bias);
    else a.silu ? backward_planes<T, true>(a, s, weight, bias) : backward_planes<T, false>(a, s, weight, bias);
  });
}
static bool forward_supports(const GroupNormForward& a) {
  return !a.beside && channel_input(a.x) && (!a.y || same_layout(a.y, a.x)) && any_floating_channels(a.weight) &&
         any_floating_channels(a.bias);
}
static bool backward_supports(const GroupNormBackward& a) {
  return channel_input(a.x) && same_layout(a.dy, a.x) && same_layout(a.dx, a.x) && any_floating_channels(a.weight) &&
         any_floating_channels(a.bias);
}

SF_KERNEL(group_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(group_norm_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
