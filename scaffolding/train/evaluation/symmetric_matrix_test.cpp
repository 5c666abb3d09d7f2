#include "scaffolding/train/evaluation/symmetric_matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/data/sample_random.h"

namespace sf::train {

static Matrix random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  data::SampleRandom random(seed);
  Matrix m(rows, columns);
  for (double& v : m.values) v = random.uniform() + random.uniform() + random.uniform() - 1.5;
  return m;
}

TEST(SymmetricMatrix, EigenvectorsGiveTheMatrixBack) {
  for (int64_t n : {1, 2, 3, 17, 90}) {
    Matrix x = random_matrix(n, n / 2 + 1, uint64_t(n));  // of half rank: many eigenvalues are 0
    Matrix a = product(x, transposed(x));
    EigenDecomposition e = symmetric_eigen(a);
    Matrix scaled = e.vectors;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) scaled(i, j) *= e.values[size_t(j)];
    Matrix again = product(scaled, transposed(e.vectors)), one = product(transposed(e.vectors), e.vectors);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_NEAR(again(i, j), a(i, j), 1e-11 * double(n));
        EXPECT_NEAR(one(i, j), i == j ? 1 : 0, 1e-12 * double(n));
      }
    for (int64_t j = 1; j < n; ++j) EXPECT_LE(e.values[size_t(j - 1)], e.values[size_t(j)]);
  }
}

TEST(SymmetricMatrix, EigenvaluesOfAKnownMatrix) {
  Matrix a(2, 2);
  a.values = {2, 1, 1, 2};
  EigenDecomposition e = symmetric_eigen(a);
  EXPECT_NEAR(e.values[0], 1, 1e-14);
  EXPECT_NEAR(e.values[1], 3, 1e-14);
  EXPECT_THROW(symmetric_eigen(Matrix(2, 3)), ValueError);
  a.values = {NAN, 1, 1, 2};
  EXPECT_THROW(symmetric_eigen(a), ValueError);
}

TEST(SymmetricMatrix, FrechetDistanceOfGaussiansThatAreKnown) {
  // Of diagonal covariances: sum (m1 - m2)^2 + (s1 - s2)^2.
  auto gaussian = [](std::vector<double> mean, std::vector<double> deviation) {
    Gaussian g{mean, Matrix(int64_t(mean.size()), int64_t(mean.size()))};
    for (size_t i = 0; i < mean.size(); ++i) g.covariance(int64_t(i), int64_t(i)) = deviation[i] * deviation[i];
    return g;
  };
  EXPECT_NEAR(frechet_distance(gaussian({0, 1, 2}, {1, 2, 3}), gaussian({1, 1, 0}, {2, 2, 1})), 1 + 4 + 1 + 4, 1e-12);
  Gaussian one = gaussian_of(random_matrix(200, 12, 1)), two = gaussian_of(random_matrix(200, 12, 2));
  EXPECT_NEAR(frechet_distance(one, one), 0, 1e-12);
  EXPECT_NEAR(frechet_distance(one, two), frechet_distance(two, one), 1e-12);
  EXPECT_GT(frechet_distance(one, two), 0);
  EXPECT_THROW(gaussian_of(Matrix(1, 3)), ValueError);
}

}  // namespace sf::train
