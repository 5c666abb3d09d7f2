// Symmetric matrices of a few hundred rows, in double precision: eigenvectors, and what evaluation makes of them. The
// arithmetic is the library Eigen's, which is included in the .cpp alone. Functions only; any thread.
#pragma once
#include <stddef.h>

#include <cstdint>
#include <vector>

namespace sf::train {

// Row-major, rows * columns values.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(size_t(r * c), 0.0) {}
  double& operator()(int64_t r, int64_t c) { return values[size_t(r * columns + c)]; }
  double operator()(int64_t r, int64_t c) const { return values[size_t(r * columns + c)]; }
};
Matrix product(const Matrix& a, const Matrix& b);
Matrix transposed(const Matrix& a);

// a = vectors * diag(values) * vectors^T, values ascending, vectors in columns. Reads the lower triangle. ValueError
// for values that are not finite.
struct EigenDecomposition {
  std::vector<double> values;
  Matrix vectors;
};
EigenDecomposition symmetric_eigen(const Matrix& a);

// Rows are samples.
struct Gaussian {
  std::vector<double> mean;
  Matrix covariance;
};
Gaussian gaussian_of(const Matrix& samples);

// |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)): how far one Gaussian is from another (Frechet 1957), as
// FID takes it of a network's features.
double frechet_distance(const Gaussian& a, const Gaussian& b);

}  // namespace sf::train
