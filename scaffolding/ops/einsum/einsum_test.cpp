#include "scaffolding/ops/einsum/einsum.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(einsum) {
  sample("ij,jk->ik", Tensors{randn({3, 4}), randn({4, 5})});
  sample("bhid,bhjd->bhij", Tensors{randn({2, 3, 4, 5}), randn({2, 3, 6, 5})});
  sample("ij,kj", Tensors{randn({3, 4}), randn({4, 5}).transpose(0, 1)});
  sample("...ij,...jk->...ik", Tensors{randn({2, 1, 3, 4}), randn({5, 4, 2})});
  sample("i...->...", Tensors{randn({3, 2, 4})});
  sample("ii->i", Tensors{randn({4, 4})});
  sample("iji", Tensors{randn({3, 2, 3})});
  sample("ii", Tensors{randn({4, 4})});
  sample("i,j->ji", Tensors{randn({3}), randn({4})});
  sample("ij,ij->", Tensors{randn({3, 4}), randn({3, 4})});
  sample("ij,jk,kl,lm->im", Tensors{randn({2, 3}), randn({3, 4}), randn({4, 2}), randn({2, 5})});
  sample("bi,oij,bj->bo", Tensors{randn({2, 3}), randn({4, 3, 5}), randn({2, 5})});
  sample(" a b , c -> b c ", Tensors{randn({2, 3}), randn({4})});
  sample("ij,jk->ik", Tensors{randn({3, 0}), randn({0, 5})});
  sample("bij,bjk->bik", Tensors{randn({1, 3, 4}), randn({2, 4, 5})}).no_golden();  // a size of 1 broadcasts
  sample(",->", Tensors{randn({}), randn({})});
  rejects("names 2", "ij", Tensors{randn({2})});
  rejects("has 2 terms", "i,j", Tensors{randn({2})});
  rejects("named by letters", "i1->i", Tensors{randn({2, 2})});
  rejects("that no operand has", "i->j", Tensors{randn({2})});
  rejects("names a dimension twice", "i->ii", Tensors{randn({2})});
  rejects("differ between operands", "ij,jk->ik", Tensors{randn({3, 4}), randn({3, 5})});
  rejects("of different sizes", "ii->i", Tensors{randn({3, 4})});
  rejects("'...' may stand once", "...i...", Tensors{randn({3})});
  rejects("at least one operand", "i", Tensors{});
  rejects("one dtype", "i,i->", Tensors{randn({2}), randint(0, 3, {2})});
}

}  // namespace sf::test
