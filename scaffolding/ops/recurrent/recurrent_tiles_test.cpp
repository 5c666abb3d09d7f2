// Recurrent layers on tiles beside those of multiply-adds.
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/matmul/test_tiles.h"
#include "scaffolding/ops/recurrent/kernel.h"

namespace sf::test {
namespace {

struct Layer {
  RecurrentCell cell;
  bool reverse;
  int64_t batch, size, gates;  // more than one panel of rows, columns that fill no strip
  std::vector<int64_t> starts;
  Tensor input, weight, bias, h0, c0, doutput, dh_n, dc_n;

  Layer(RecurrentCell cell_, bool reverse_, int64_t batch_, int64_t size_)
      : cell(cell_),
        reverse(reverse_),
        batch(batch_),
        size(size_),
        gates(cell == RecurrentCell::Lstm  ? 4
              : cell == RecurrentCell::Gru ? 3
                                           : 1),
        starts{0, batch, 2 * batch, 3 * batch - 3, 3 * batch - 2} {
    manual_seed(5);
    const int64_t rows = starts.back();
    input = randn({rows, gates * size}), weight = randn({gates * size, size}) * (0.5 / std::sqrt(double(size)));
    h0 = randn({batch, size}), c0 = randn({batch, size});
    doutput = randn({rows, size}), dh_n = randn({batch, size}), dc_n = randn({batch, size});
    if (cell == RecurrentCell::Gru) bias = randn({gates * size});
  }
  bool is_lstm() const { return cell == RecurrentCell::Lstm; }
  RecurrentSteps steps() const { return {cell, starts.data(), int64_t(starts.size()) - 1, reverse}; }
};

// output, h_n, c_n, and the gradients of input, of what the hidden part becomes, h0 and c0.
Tensors run(const Layer& l, const KernelEntry& ahead, const KernelEntry& back) {
  const bool gated = l.gates > 1;
  auto like = [](const Tensor& x) { return full(x.shape(), NAN); };
  const Tensor output = like(l.doutput), cells = gated ? like(l.doutput) : Tensor(),
               gates = gated ? like(l.input) : Tensor(), h_n = like(l.h0), c_n = l.is_lstm() ? like(l.c0) : Tensor();
  const Tensor c0 = l.is_lstm() ? l.c0 : Tensor(), dc_n = l.is_lstm() ? l.dc_n : Tensor();
  test::call(ahead,
             RecurrentForward{l.steps(), l.input, l.weight, l.bias, l.h0, c0, output, cells, gates, h_n, c_n, 0});
  const Tensor dinput = like(l.input), dhidden = l.cell == RecurrentCell::Gru ? like(l.input) : Tensor(),
               before = like(output), dh0 = like(l.h0), dc0 = l.is_lstm() ? like(l.c0) : Tensor();
  test::call(back, RecurrentBackward{l.steps(), l.weight, l.h0, c0, output, cells, gates, l.doutput, l.dh_n, dc_n,
                                     dinput, dhidden, before, dh0, dc0});
  Tensors all{output, h_n, dinput, dh0, before};
  for (const Tensor& t : {c_n, dhidden, dc0})
    if (t) all.push_back(t);
  return all;
}
Tensors on_tiles(const Layer& l) { return run(l, tile_kernel(recurrent_forward), tile_kernel(recurrent_backward)); }
Tensors plain(const Layer& l) { return run(l, plain_kernel(recurrent_forward), plain_kernel(recurrent_backward)); }

constexpr RecurrentCell kCells[] = {RecurrentCell::Lstm, RecurrentCell::Gru, RecurrentCell::Tanh, RecurrentCell::Relu};

TEST(RecurrentTiles, are_as_multiply_adds) {
  constexpr double kMost[] = {5e-6, 1e-3, 0.2};
  for (Float32Precision precision : kEveryPrecision) {
    PrecisionScope scope(precision);
    for (RecurrentCell cell : kCells)
      for (bool reverse : {false, true})
        for (auto [batch, size] : {std::pair<int64_t, int64_t>{20, 72}, {70, 64}, {15, 288}}) {
          const Layer l(cell, reverse, batch, size);
          const Tensors got = on_tiles(l), want = plain(l);
          // Which of Relu's gradients are zero hangs on a sign.
          const bool rough = cell == RecurrentCell::Relu && precision != Float32Precision::Highest;
          for (size_t i = 0; i < (rough ? 2 : got.size()); ++i)
            EXPECT_LE(amax(abs(got[i] - want[i])).item(), kMost[int(precision)] * (1 + amax(abs(want[i])).item()))
                << "result " << i << " of cell " << int(cell) << (reverse ? " reversed" : "");
        }
  }
}

TEST(RecurrentTiles, are_the_same_for_any_number_of_threads) {
  const int before = num_threads();
  for (RecurrentCell cell : kCells) {
    const Layer l(cell, false, 40, 96);
    set_num_threads(1);
    const Tensors one = on_tiles(l);
    set_num_threads(3);
    const Tensors three = on_tiles(l);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], three[i])) << i;
  }
  set_num_threads(before);
}

// A state or a weight that does not split without a rest.
TEST(RecurrentTiles, fall_back) {
  for (RecurrentCell cell : kCells)
    for (bool in_weight : {false, true}) {
      Layer l(cell, false, 20, 72);
      (in_weight ? l.weight : l.h0).slice(0, 3, 4).slice(1, 5, 6).fill_(1.2345679e-36);
      if (in_weight) l.doutput.slice(0, 30, 31).slice(1, 5, 6).fill_(1e-40);
      const Tensors got = on_tiles(l), want = plain(l);
      // A gradient falls back by itself, so that only what the state goes through is as plain.
      for (size_t i = 0; i < (in_weight ? got.size() : 2); ++i) {
        if (falls_back_to_the_same_bits()) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
        else EXPECT_LE(amax(abs(got[i] - want[i])).item(), 1e-5 * (1 + amax(abs(want[i])).item())) << i;
      }
    }
}

TEST(RecurrentTiles, pass_on_what_is_not_finite) {
  for (float special : {INFINITY, NAN}) {
    Layer l(RecurrentCell::Relu, false, 20, 72);
    l.h0.slice(0, 3, 4).slice(1, 5, 6).fill_(special);
    const Tensor got = on_tiles(l)[0], want = plain(l)[0];
    EXPECT_LE(amax(abs(got.slice(0, 4, 20) - want.slice(0, 4, 20))).item(), 1e-5);
    EXPECT_EQ(isnan(got.slice(0, 3, 4)).to_vector(), isnan(want.slice(0, 3, 4)).to_vector());
  }
}

}  // namespace
}  // namespace sf::test
