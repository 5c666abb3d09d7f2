#include "scaffolding/ops/recurrent/recurrent.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

namespace {
Tensor steps_of(std::initializer_list<int64_t> rows) {
  Tensor t = empty({int64_t(rows.size())}, kInt64);
  std::copy(rows.begin(), rows.end(), t.data<int64_t>());
  return t;
}
}  // namespace

SF_OP_TEST(lstm_sequence) {
  sample(randn({4, 12}), randn({12, 3}), randn({2, 3}), randn({2, 3}));
  sample(randn({6, 8}), randn({8, 2}), randn({3, 2}), randn({3, 2}), none, none, true);
  sample(randn({7, 8}), randn({8, 2}), randn({4, 2}), randn({4, 2}), none, steps_of({4, 2, 1}));
  sample(randn({7, 8}), randn({8, 2}), randn({4, 2}), randn({4, 2}), none, steps_of({4, 2, 1}), true);
  sample(randn({6, 12}), randn({12, 2}), randn({2, 2}), randn({2, 3}), randn({2, 3}));  // projected
  sample(randn({8, 4}).transpose(0, 1), randn({2, 8}).transpose(0, 1), randn({2, 4}).transpose(0, 1),
         randn({2, 4}).transpose(0, 1));
  // Several threads, several vectors; too large for a file.
  sample(randn({36, 80}), randn({80, 20}), randn({18, 20}), randn({18, 20})).no_grad().no_golden();
  sample(randn({0, 12}), randn({12, 3}), randn({0, 3}), randn({0, 3})).no_golden();  // torch wants a step
  rejects("weight_hh must be [4 * hidden_size", randn({6, 20}), randn({18, 5}), randn({2, 5}), randn({2, 5}));
  rejects("weight_hh must have shape", randn({6, 20}), randn({20, 4}), randn({2, 4}), randn({2, 5}));
  rejects("input must be [N, 20]", randn({6, 18}), randn({20, 5}), randn({2, 5}), randn({2, 5}));
  rejects("h0 must be [B, 5]", randn({6, 20}), randn({20, 5}), randn({2, 4}), randn({2, 5}));
  rejects("c0 must have shape", randn({6, 20}), randn({20, 5}), randn({2, 5}), randn({3, 5}));
  rejects("must have input's dtype", randn({6, 20}), randn({20, 5}).to(kFloat32), randn({2, 5}), randn({2, 5}));
  rejects("one step or more of h0's 4", randn({6, 20}), randn({20, 5}), randn({4, 5}), randn({4, 5}));
  rejects("never grow", randn({6, 20}), randn({20, 5}), randn({2, 5}), randn({2, 5}), none, steps_of({2, 1, 2, 1}));
  rejects("must begin with h0's rows", randn({6, 20}), randn({20, 5}), randn({4, 5}), randn({4, 5}), none,
          steps_of({3, 3}));
  rejects("must sum to input's rows", randn({6, 20}), randn({20, 5}), randn({2, 5}), randn({2, 5}), none,
          steps_of({2, 2}));
  rejects("batch_sizes must be int64", randn({4, 20}), randn({20, 5}), randn({2, 5}), randn({2, 5}), none, randn({2}));
}
SF_OP_TEST(gru_sequence) {
  sample(randn({4, 9}), randn({9, 3}), randn({9}), randn({2, 3}));
  sample(randn({6, 6}), randn({6, 2}), none, randn({3, 2}), none, true);
  sample(randn({7, 6}), randn({6, 2}), randn({6}), randn({4, 2}), steps_of({4, 2, 1}));
  sample(randn({7, 6}), randn({6, 2}), randn({6}), randn({4, 2}), steps_of({4, 2, 1}), true);
  sample(randn({6, 4}).transpose(0, 1), randn({2, 6}).transpose(0, 1), randn({12}).slice(0, 0, 12, 2), randn({2, 2}));
  // Several threads, several vectors; too large for a file.
  sample(randn({36, 60}), randn({60, 20}), randn({60}), randn({18, 20})).no_grad().no_golden();
  rejects("weight_hh must be [3 * hidden_size", randn({6, 15}), randn({14, 5}), none, randn({2, 5}));
  rejects("bias_hh must have shape", randn({6, 15}), randn({15, 5}), randn({5}), randn({2, 5}));
}
SF_OP_TEST(rnn_sequence) {
  sample(randn({4, 3}), randn({3, 3}), randn({2, 3}));
  sample(randn({7, 2}), randn({2, 2}), randn({4, 2}), "tanh", steps_of({4, 2, 1}), true);
  sample(distinct({6, 3}), distinct({3, 3}), randn({2, 3}), "relu");
  sample(randn({3, 4}).transpose(0, 1), randn({3, 3}).transpose(0, 1), randn({2, 3}), "tanh", none, true);
  rejects("nonlinearity must be", randn({6, 5}), randn({5, 5}), randn({2, 5}), "sigmoid");
  rejects("weight_hh must have shape", randn({6, 5}), randn({5, 4}), randn({2, 5}));
}

}  // namespace sf::test
