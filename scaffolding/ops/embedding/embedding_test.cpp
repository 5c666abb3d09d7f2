#include "scaffolding/ops/embedding/embedding.h"

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(embedding) {
  sample(randint(0, 5, {2, 7}), randn({5, 4}));
  sample(randint(0, 5, {9}, kInt32), randn({4, 5}).transpose(0, 1));
  sample(randint(0, 5, {12}), randn({5, 3}), -1).no_grad();  // the padding row's gradient is left out on purpose
  sample(randint(0, 3, {12}), randn({5, 3}), 3);
  sample(randint(0, 3, {12}), randn({5, 3}), 1, true).no_grad();  // a mean over equal numbers, on purpose
  sample(randint(0, 5, {}), randn({5, 4}));
  sample(randint(0, 5, {0, 2}), randn({5, 4}));
  rejects("index 5 is out of range for dimension 0 of size 5", tensor({5.}, kInt64), randn({5, 4}));
  rejects("out of range", tensor({-1.}, kInt64), randn({5, 4}));
  rejects("must be an integer tensor", randn({2}), randn({5, 4}));
  rejects("weight must be", randint(0, 2, {2}), randn({5}));
  rejects("padding_idx", randint(0, 2, {2}), randn({5, 4}), 5);
}

SF_OP_TEST(embedding_renorm_) {
  // it writes its own sample; the numbers are checked below
  sample(randn({5, 3}), randint(0, 5, {4}), 0.5).no_golden();
  sample(randn({5, 3}), randint(0, 5, {2, 2}), 0.5, 1.0).no_golden();
  rejects("out of range", randn({5, 3}), full({1}, 5, kInt64), 1.0);
  rejects("max_norm must be positive", randn({5, 3}), randint(0, 5, {4}), 0.0);
  rejects("weight must be", randn({5}), randint(0, 5, {4}), 1.0);
}

TEST(embedding, a_padding_row_gets_no_gradient_and_sums_of_bfloat16_keep_float32) {
  Tensor weight = zeros({3, 2}, kBFloat16).requires_grad_();
  Tensor numbers = full({1000}, 1, kInt64);
  embedding(numbers, weight).sum().backward();
  EXPECT_EQ(weight.grad().to_vector(), (std::vector<double>{0, 0, 1000, 1000, 0, 0}));  // 256 + 1 == 256 in bfloat16
  weight.set_grad({});
  embedding(numbers, weight, 1).sum().backward();
  EXPECT_EQ(weight.grad().to_vector(), (std::vector<double>(6, 0.)));
}

TEST(embedding, scale_grad_by_freq_averages_over_equal_numbers) {
  Tensor weight = zeros({4, 1}).requires_grad_();
  Tensor numbers = tensor(std::vector<int64_t>{2, 0, 2, 1, 2, 1}, {2, 3}),
         dy = tensor({1, 2, 3, 4, 8, 6}).reshape({2, 3, 1});
  embedding(numbers, weight, 1, true).backward(dy);
  EXPECT_EQ(weight.grad().to_vector(), (std::vector<double>{2, 0, 4, 0}));
}

TEST(embedding, rows_that_are_looked_up_are_scaled_down_to_max_norm) {
  Tensor weight = tensor({3, 4, 0.3, 0.4, 6, 8}).reshape({3, 2}).requires_grad_();
  embedding_renorm_(weight, tensor(std::vector<int64_t>{0, 1, 0}, {3}), 1);
  std::vector<double> w = weight.detach().to_vector(), want{0.6, 0.8, 0.3, 0.4, 6, 8};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(w[i], want[i], 1e-6);
  EXPECT_TRUE(weight.is_leaf());
  EXPECT_THROW(embedding_renorm_(weight, tensor(std::vector<int64_t>{3}, {1}), 1), IndexError);
  EXPECT_THROW(embedding_renorm_(weight, tensor(std::vector<int64_t>{0}, {1}), 0), ValueError);
}

}  // namespace sf::test
