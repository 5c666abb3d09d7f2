#include "scaffolding/train/evaluation/symmetric_matrix.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::train {

namespace {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const Rows> as_eigen(const Matrix& m) { return {m.values.data(), m.rows, m.columns}; }
Eigen::Map<Rows> as_eigen(Matrix& m) { return {m.values.data(), m.rows, m.columns}; }

Matrix square_root(const Matrix& a) {
  EigenDecomposition eigen = symmetric_eigen(a);
  Matrix out(a.rows, a.columns);
  Eigen::VectorXd roots = Eigen::Map<const Eigen::VectorXd>(eigen.values.data(), a.rows).cwiseMax(0).cwiseSqrt();
  as_eigen(out).noalias() = as_eigen(eigen.vectors) * roots.asDiagonal() * as_eigen(eigen.vectors).transpose();
  return out;
}

}  // namespace

Matrix product(const Matrix& a, const Matrix& b) {
  SF_CHECK(a.columns == b.rows, "product: columns of a must be rows of b, got ", a.columns, " and ", b.rows);
  Matrix out(a.rows, b.columns);
  as_eigen(out).noalias() = as_eigen(a) * as_eigen(b);
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  as_eigen(out) = as_eigen(a).transpose();
  return out;
}

EigenDecomposition symmetric_eigen(const Matrix& a) {
  SF_CHECK(a.rows == a.columns && a.rows > 0, "symmetric_eigen: the matrix must be square, got ", a.rows, " x ",
           a.columns);
  SF_CHECK(as_eigen(a).allFinite(), "symmetric_eigen: values must be finite");
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(as_eigen(a));
  SF_CHECK_AS(RuntimeError, solver.info() == Eigen::Success, "symmetric_eigen: does not converge");
  EigenDecomposition out{{solver.eigenvalues().begin(), solver.eigenvalues().end()}, Matrix(a.rows, a.rows)};
  as_eigen(out.vectors) = solver.eigenvectors();
  return out;
}

Gaussian gaussian_of(const Matrix& samples) {
  SF_CHECK(samples.rows > 1, "gaussian_of: needs 2 samples at least, got ", samples.rows);
  const Eigen::RowVectorXd mean = as_eigen(samples).colwise().mean();
  const Rows centred = as_eigen(samples).rowwise() - mean;
  Gaussian g{{mean.begin(), mean.end()}, Matrix(samples.columns, samples.columns)};
  as_eigen(g.covariance).noalias() = centred.transpose() * centred / double(samples.rows - 1);
  return g;
}

double frechet_distance(const Gaussian& a, const Gaussian& b) {
  SF_CHECK(a.mean.size() == b.mean.size(), "frechet_distance: both must have as many features, got ", a.mean.size(),
           " and ", b.mean.size());
  double out = 0;
  for (size_t i = 0; i < a.mean.size(); ++i) {
    out += (a.mean[i] - b.mean[i]) * (a.mean[i] - b.mean[i]);
    out += a.covariance(int64_t(i), int64_t(i)) + b.covariance(int64_t(i), int64_t(i));
  }
  // The trace of (S1 S2)^(1/2) is that of (S1^(1/2) S2 S1^(1/2))^(1/2), which is symmetric.
  Matrix root = square_root(a.covariance);
  Matrix inner = product(product(root, b.covariance), root);
  as_eigen(inner) = 0.5 * (as_eigen(inner) + as_eigen(inner).transpose()).eval();  // what rounding made unsymmetric
  for (double v : symmetric_eigen(inner).values) out -= 2 * std::sqrt(std::max(0.0, v));
  return std::max(0.0, out);
}

}  // namespace sf::train
