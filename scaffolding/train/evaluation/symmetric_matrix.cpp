#include "scaffolding/train/evaluation/symmetric_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "scaffolding/core/error.h"

namespace sf::train {

Matrix product(const Matrix& a, const Matrix& b) {
  SF_CHECK(a.columns == b.rows, "product: columns of a must be rows of b, got ", a.columns, " and ", b.rows);
  Matrix out(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k) {
      const double v = a(i, k);
      const double* from = b.values.data() + k * b.columns;
      double* to = out.values.data() + i * b.columns;
      for (int64_t j = 0; j < b.columns; ++j) to[j] += v * from[j];
    }
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  return out;
}

namespace {

// V becomes the orthogonal matrix of the tridiagonal form, d its diagonal, e what stands below it.
void tridiagonal(Matrix& V, std::vector<double>& d, std::vector<double>& e) {
  const int64_t n = V.rows;
  for (int64_t j = 0; j < n; ++j) d[size_t(j)] = V(n - 1, j);
  for (int64_t i = n - 1; i > 0; --i) {
    double scale = 0, h = 0;
    for (int64_t k = 0; k < i; ++k) scale += std::abs(d[size_t(k)]);
    if (scale == 0) {
      e[size_t(i)] = d[size_t(i - 1)];
      for (int64_t j = 0; j < i; ++j) d[size_t(j)] = V(i - 1, j), V(i, j) = V(j, i) = 0;
    } else {
      for (int64_t k = 0; k < i; ++k) d[size_t(k)] /= scale, h += d[size_t(k)] * d[size_t(k)];
      double f = d[size_t(i - 1)], g = f > 0 ? -std::sqrt(h) : std::sqrt(h);
      e[size_t(i)] = scale * g;
      h -= f * g;
      d[size_t(i - 1)] = f - g;
      std::fill(e.begin(), e.begin() + i, 0.0);
      for (int64_t j = 0; j < i; ++j) {
        f = d[size_t(j)];
        V(j, i) = f;
        g = e[size_t(j)] + V(j, j) * f;
        for (int64_t k = j + 1; k < i; ++k) g += V(k, j) * d[size_t(k)], e[size_t(k)] += V(k, j) * f;
        e[size_t(j)] = g;
      }
      f = 0;
      for (int64_t j = 0; j < i; ++j) e[size_t(j)] /= h, f += e[size_t(j)] * d[size_t(j)];
      for (int64_t j = 0; j < i; ++j) e[size_t(j)] -= f / (h + h) * d[size_t(j)];
      for (int64_t j = 0; j < i; ++j) {
        f = d[size_t(j)], g = e[size_t(j)];
        for (int64_t k = j; k < i; ++k) V(k, j) -= f * e[size_t(k)] + g * d[size_t(k)];
        d[size_t(j)] = V(i - 1, j);
        V(i, j) = 0;
      }
    }
    d[size_t(i)] = h;
  }
  for (int64_t i = 0; i + 1 < n; ++i) {
    V(n - 1, i) = V(i, i);
    V(i, i) = 1;
    const double h = d[size_t(i + 1)];
    if (h != 0) {
      for (int64_t k = 0; k <= i; ++k) d[size_t(k)] = V(k, i + 1) / h;
      for (int64_t j = 0; j <= i; ++j) {
        double g = 0;
        for (int64_t k = 0; k <= i; ++k) g += V(k, i + 1) * V(k, j);
        for (int64_t k = 0; k <= i; ++k) V(k, j) -= g * d[size_t(k)];
      }
    }
    for (int64_t k = 0; k <= i; ++k) V(k, i + 1) = 0;
  }
  for (int64_t j = 0; j < n; ++j) d[size_t(j)] = V(n - 1, j), V(n - 1, j) = 0;
  V(n - 1, n - 1) = 1;
  e[0] = 0;
}

void diagonal(Matrix& V, std::vector<double>& d, std::vector<double>& e) {
  const int64_t n = V.rows;
  for (int64_t i = 1; i < n; ++i) e[size_t(i - 1)] = e[size_t(i)];
  e[size_t(n - 1)] = 0;
  double f = 0, largest = 0;
  for (int64_t l = 0; l < n; ++l) {
    largest = std::max(largest, std::abs(d[size_t(l)]) + std::abs(e[size_t(l)]));
    int64_t m = l;
    while (m < n - 1 && std::abs(e[size_t(m)]) > 0x1p-52 * largest) ++m;
    for (int round = 0; m > l && std::abs(e[size_t(l)]) > 0x1p-52 * largest; ++round) {
      SF_CHECK_AS(RuntimeError, round < 60, "symmetric_eigen: does not converge");
      double g = d[size_t(l)], p = (d[size_t(l + 1)] - g) / (2 * e[size_t(l)]), r = std::hypot(p, 1.0);
      if (p < 0) r = -r;
      d[size_t(l)] = e[size_t(l)] / (p + r);
      d[size_t(l + 1)] = e[size_t(l)] * (p + r);
      const double next = d[size_t(l + 1)], h = g - d[size_t(l)], below = e[size_t(l + 1)];
      for (int64_t i = l + 2; i < n; ++i) d[size_t(i)] -= h;
      f += h;
      p = d[size_t(m)];
      double c = 1, c2 = 1, c3 = 1, s = 0, s2 = 0;
      for (int64_t i = m - 1; i >= l; --i) {
        c3 = c2, c2 = c, s2 = s;
        g = c * e[size_t(i)];
        const double hh = c * p;
        r = std::hypot(p, e[size_t(i)]);
        e[size_t(i + 1)] = s * r;
        s = e[size_t(i)] / r;
        c = p / r;
        p = c * d[size_t(i)] - s * g;
        d[size_t(i + 1)] = hh + s * (c * g + s * d[size_t(i)]);
        for (int64_t k = 0; k < n; ++k) {
          const double v = V(k, i + 1);
          V(k, i + 1) = s * V(k, i) + c * v;
          V(k, i) = c * V(k, i) - s * v;
        }
      }
      p = -s * s2 * c3 * below * e[size_t(l)] / next;
      e[size_t(l)] = s * p;
      d[size_t(l)] = c * p;
    }
    d[size_t(l)] += f;
    e[size_t(l)] = 0;
  }
}

Matrix square_root(const Matrix& a) {
  Eigen eigen = symmetric_eigen(a);
  Matrix scaled = eigen.vectors;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.rows; ++j) scaled(i, j) *= std::sqrt(std::max(0.0, eigen.values[size_t(j)]));
  return product(scaled, transposed(eigen.vectors));
}

}  // namespace

Eigen symmetric_eigen(const Matrix& a) {
  SF_CHECK(a.rows == a.columns && a.rows > 0, "symmetric_eigen: the matrix must be square, got ", a.rows, " x ", a.columns);
  SF_CHECK(std::all_of(a.values.begin(), a.values.end(), [](double v) { return std::isfinite(v); }), "symmetric_eigen: values must be finite");
  const int64_t n = a.rows;
  Matrix V = a;
  std::vector<double> d(size_t(n), 0.0), e(size_t(n), 0.0);
  tridiagonal(V, d, e);
  diagonal(V, d, e);
  std::vector<int64_t> order(size_t(n), 0);
  for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return d[size_t(x)] < d[size_t(y)]; });
  Eigen out{std::vector<double>(size_t(n), 0.0), Matrix(n, n)};
  for (int64_t j = 0; j < n; ++j) {
    out.values[size_t(j)] = d[size_t(order[size_t(j)])];
    for (int64_t i = 0; i < n; ++i) out.vectors(i, j) = V(i, order[size_t(j)]);
  }
  return out;
}

Gaussian gaussian_of(const Matrix& samples) {
  SF_CHECK(samples.rows > 1, "gaussian_of: needs 2 samples at least, got ", samples.rows);
  const int64_t n = samples.rows, width = samples.columns;
  Gaussian g{std::vector<double>(size_t(width), 0.0), Matrix(0, 0)};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) g.mean[size_t(j)] += samples(i, j) / double(n);
  Matrix centred = samples;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) centred(i, j) -= g.mean[size_t(j)];
  g.covariance = product(transposed(centred), centred);
  for (double& v : g.covariance.values) v /= double(n - 1);
  return g;
}

double frechet_distance(const Gaussian& a, const Gaussian& b) {
  SF_CHECK(a.mean.size() == b.mean.size(), "frechet_distance: both must have as many features, got ", a.mean.size(), " and ", b.mean.size());
  double out = 0;
  for (size_t i = 0; i < a.mean.size(); ++i) {
    out += (a.mean[i] - b.mean[i]) * (a.mean[i] - b.mean[i]);
    out += a.covariance(int64_t(i), int64_t(i)) + b.covariance(int64_t(i), int64_t(i));
  }
  // The trace of (S1 S2)^(1/2) is that of (S1^(1/2) S2 S1^(1/2))^(1/2), which is symmetric.
  Matrix root = square_root(a.covariance);
  Matrix inner = product(product(root, b.covariance), root);
  for (int64_t i = 0; i < inner.rows; ++i)  // what rounding made unsymmetric
    for (int64_t j = 0; j < i; ++j) inner(i, j) = inner(j, i) = 0.5 * (inner(i, j) + inner(j, i));
  for (double v : symmetric_eigen(inner).values) out -= 2 * std::sqrt(std::max(0.0, v));
  return std::max(0.0, out);
}

}  // namespace sf::train
