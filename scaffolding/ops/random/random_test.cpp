#include "scaffolding/ops/random/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <thread>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/kernel.h"

namespace sf::test {
namespace {

Tensor weights(DType t, const Shape& shape) {  // as in make_golden_random.py
  Tensor w = empty(shape, kFloat64);
  for (int64_t i = 0; i < w.numel(); ++i) w.data<double>()[i] = double(i * 37 % 11) / 16;
  return w.to(t) + scalar_tensor(0.0625, t);
}

// Repeats one call of the fixture.
Tensor call(const Generator& g, const std::vector<std::string>& words) {
  const std::string& name = words[0];
  DType t = kFloat32;
  dtype_from_name(words[1], t);
  auto number = [&](size_t i) { return std::stod(words[i]); };
  auto integer = [&](size_t i) { return int64_t(std::stoll(words[i])); };
  if (name == "rand") return rand({integer(2)}, g, t);
  if (name == "randn") return randn({integer(2)}, g, t);
  if (name == "randint") return randint(integer(3), integer(4), {integer(2)}, g, t);
  if (name == "randperm") return randperm(integer(2), g, t);
  if (name == "uniform") return uniform_(empty({integer(2)}, t), number(3), number(4), g);
  if (name == "normal") return normal_(empty({integer(2)}, t), number(3), number(4), g);
  if (name == "normal_tensors") return normal(weights(t, {integer(2)}), weights(t, {3, 1}), {}, g);
  if (name == "random")
    return words.size() > 3 ? random_(empty({integer(2)}, t), {}, integer(3), g)
                            : random_(empty({integer(2)}, t), {}, {}, g);
  if (name == "random_from") return random_(empty({integer(2)}, t), integer(3), {}, g);
  if (name == "exponential") return exponential_(empty({integer(2)}, t), number(3), g);
  if (name == "bernoulli") return bernoulli_(empty({integer(2)}, t), wrapped(number(3)), g);
  if (name == "bernoulli_tensor") return bernoulli(weights(t, {integer(2)}), {}, g);
  if (name == "multinomial") return multinomial(weights(t, {integer(2), integer(3)}), integer(4), integer(5) != 0, g);
  if (name == "permuted_randn") return normal_(empty({integer(2), integer(3)}, t).t(), 0, 1, g);
  if (name == "sliced_rand") return uniform_(zeros({integer(2), 2 * integer(3)}, t).slice(1, 0, {}, 2), 0, 1, g);
  if (name == "channels_last_randn")
    return normal_(to_channels_last(zeros({2, 3, integer(2), integer(2)}, t)), 0, 1, g);
  ADD_FAILURE() << "unknown call " << name;
  return {};
}

uint64_t fnv(const std::vector<uint8_t>& bytes) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (auto b : bytes) h = (h ^ b) * 0x100000001b3ull;
  return h;
}

// Distance in representable numbers; floats of one size order like their bits.
template <class F, class I> int64_t steps_between(uint64_t a, uint64_t b) {
  auto rank = [](uint64_t v) {
    return I(v) < 0 ? int64_t(std::numeric_limits<I>::min()) - int64_t(I(v)) : int64_t(I(v));
  };
  return std::llabs(rank(a) - rank(b));
}
int64_t steps(DType t, uint64_t a, uint64_t b) {
  if (a == b) return 0;
  if (t == kFloat32) return steps_between<float, int32_t>(a, b);
  if (t == kFloat64) return steps_between<double, int64_t>(a, b);
  if (is_reduced(t)) return steps_between<Half, int16_t>(a, b);
  return INT64_MAX;
}

TEST(random, every_call_gives_torchs_numbers_and_leaves_torchs_state) {
  std::istringstream file(unpacked(SF_SOURCE_DIR "/tests/golden/random.txt.xz"));
  // without fused multiply-add the last bits of float32 normals differ
  bool fused = provider_label(box_muller_kernel.entry(Device::CPU, 0)) != "native-base";
  Generator g = make_generator();
  std::string line;
  int calls = 0;
  while (std::getline(file, line)) {
    if (line[0] == '#') continue;
    std::istringstream left(line.substr(0, line.find('|'))),
        right(line.find('|') == line.npos ? "" : line.substr(line.find('|') + 1));
    std::vector<std::string> words{std::istream_iterator<std::string>(left), {}};
    SCOPED_TRACE(line.substr(0, 60));
    if (words[0] == "seed") {
      g->manual_seed(std::stoull(words[1]));
      continue;
    }
    int64_t first;
    right >> first;
    if (words[0] == "state") {
      uint64_t want;
      right >> std::hex >> want;
      EXPECT_EQ(fnv(g->get_state()), want);
      continue;
    }
    Tensor y = call(g, words).contiguous();
    bool normal = words[0].find("normal") != std::string::npos || words[0].find("randn") != std::string::npos;
    std::string bits;
    for (int64_t i = first; right >> bits; ++i) {
      ASSERT_LT(i, y.numel());
      uint64_t got = 0, want = std::stoull(bits, nullptr, 16);
      std::memcpy(&got, static_cast<char*>(y.data_ptr()) + size_t(i) * y.itemsize(), y.itemsize());
      if (normal && y.dtype() == kFloat32 && !fused) {
        float a, b;
        std::memcpy(&a, &got, 4), std::memcpy(&b, &want, 4);
        EXPECT_NEAR(a, b, 2e-6) << "element " << i;
      } else {
        EXPECT_LE(steps(y.dtype(), got, want), !normal || is_reduced(y.dtype()) ? 0
                                               : y.dtype() == kFloat64          ? 2
                                                                                : 1)
            << "element " << i;
      }
    }
    ++calls;
  }
  EXPECT_GT(calls, 200);
}

TEST(random, state_saves_and_restores_a_half_used_pair) {
  Generator g = make_generator();
  g->manual_seed(3);
  randn({1}, g);
  auto state = g->get_state();
  auto a = randn({5}, g).to_vector();
  g->set_state(state);
  EXPECT_EQ(randn({5}, g).to_vector(), a);
  g->set_state(state);
  Generator h = g->clone();
  EXPECT_EQ(randn({5}, h).to_vector(), a);
  EXPECT_EQ(g->get_state(), state) << "a clone draws on its own";
  EXPECT_THROW(g->set_state({1, 2, 3}), ValueError);
  EXPECT_EQ(g->initial_seed(), 3u);
  uint64_t fresh = g->seed();
  EXPECT_EQ(g->initial_seed(), fresh);
}

TEST(random, manual_seed_resets_the_default_generator) {
  manual_seed(5);
  auto a = rand({4}).to_vector();
  manual_seed(5);
  EXPECT_EQ(rand({4}).to_vector(), a);
  Generator g = make_generator();
  g->manual_seed(5);
  EXPECT_EQ(rand({4}, g).to_vector(), a);
}

TEST(random, two_threads_may_share_a_generator) {
  Generator g = make_generator();
  g->manual_seed(1);
  std::vector<double> seen[2];
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) seen[0].push_back(rand({1}, g, kFloat64).item());
  });
  for (int i = 0; i < 200; ++i) seen[1].push_back(rand({1}, g, kFloat64).item());
  other.join();
  std::vector<double> both = seen[0];
  both.insert(both.end(), seen[1].begin(), seen[1].end());
  std::sort(both.begin(), both.end());
  g->manual_seed(1);
  auto want = rand({400}, g, kFloat64).to_vector();
  std::sort(want.begin(), want.end());
  EXPECT_EQ(both, want);
}

// From curand_kernel.h (CUDA 13.0) compiled for the host: seed, thread, offset, words, uniforms, normals, double
// uniform, double normals.
struct Curand {
  uint64_t seed;
  int64_t thread;
  uint64_t offset;
  uint32_t words[4];
  float uniform[4], normal[4];
  double uniform_double, normal_double[2];
};
constexpr Curand kCurand[] = {
    {0u,
     0,
     0,
     {1713891541u, 3781805453u, 3159862348u, 2600524760u},
     {0.399046481f, 0.880520225f, 0.735712767f, 0.605481863f},
     {-0.924662411f, 0.991137743f, -0.482068747f, -0.617608845f},
     0.88052026840093833,
     {-0.31039573600037634, -0.39766713631503542}},
    {42u,
     300,
     8,
     {688485880u, 1026654596u, 1788041250u, 1535361051u},
     {0.160300612f, 0.239036649f, 0.416310787f, 0.357479095f},
     {1.90894282f, 0.131705314f, 1.03330123f, -0.827607989f},
     0.2390366076248816,
     {1.3204905143591619, -1.0576303414190646}},
    {1099511627779u,
     0,
     8,
     {34154909u, 2045071214u, 4078692270u, 1582146381u},
     {0.00795230921f, 0.476155251f, 0.949644566f, 0.368372172f},
     {0.464117676f, -3.07460237f, 0.236570939f, -0.217644706f},
     0.47615525086557725,
     {0.89651525521818654, -0.82479272454156705}},
    {1099511627779u,
     300,
     8,
     {901682999u, 3541184933u, 1017250860u, 1023937153u},
     {0.209939435f, 0.824496388f, 0.236847177f, 0.238403946f},
     {-1.57683361f, 0.797162414f, 1.69275367f, 0.123552866f},
     0.82449627131129599,
     {0.61961280181060807, 0.045224932778531228}},
};

TEST(random, philox_gives_curands_numbers_in_torchs_launch_layout) {
  constexpr int64_t kThreads = 512, kElements = 4 * kThreads * 3;
  for (auto& c : kCurand) {
    // Thread t of 512 writes elements t, 512 + t, 1024 + t and 1536 + t in the first round, 4 * 512 on in the second.
    Generator g = make_generator({}, "cuda", kThreads);
    int64_t round = int64_t(c.offset / 4);
    g->manual_seed(c.seed);
    Tensor u = rand({kElements}, g);
    g->manual_seed(c.seed);
    Tensor z = randn({kElements}, g);
    g->manual_seed(c.seed);
    Tensor w = randint(0, 1000, {kElements}, g);
    for (int64_t lane = 0; lane < 4; ++lane) {
      int64_t i = (round * 4 + lane) * kThreads + c.thread;
      EXPECT_EQ(u.data<float>()[i], c.uniform[lane]);
      EXPECT_NEAR(z.data<float>()[i], c.normal[lane], 1e-6);
      EXPECT_EQ(w.data<int64_t>()[i], c.words[lane] % 1000);
    }
    // 64-bit numbers: two per thread and round.
    g->manual_seed(c.seed);
    Tensor ud = rand({kElements}, g, kFloat64);
    g->manual_seed(c.seed);
    Tensor zd = randn({kElements}, g, kFloat64);
    g->manual_seed(c.seed);
    Tensor wide = randint(0, int64_t(1) << 40, {kElements}, g);
    int64_t i = round * 2 * kThreads + c.thread;
    EXPECT_EQ(ud.data<double>()[i], c.uniform_double);
    EXPECT_NEAR(zd.data<double>()[i], c.normal_double[0], 1e-14);
    EXPECT_NEAR(zd.data<double>()[i + kThreads], c.normal_double[1], 1e-14);
    EXPECT_EQ(wide.data<int64_t>()[i], int64_t(((uint64_t(c.words[0]) << 32) | c.words[1]) % (uint64_t(1) << 40)));
  }
}

TEST(random, philox_moves_its_offset_by_four_per_round) {
  Generator g = make_generator({}, "cuda", 512);
  g->manual_seed(0);
  Tensor first = randn({4}, g);  // published: seed 0 on a GPU starts with these
  const double want[] = {-0.9247, -0.4253, -2.6438, 0.1452};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(first.data<float>()[i], want[i], 5e-5);
  auto offset = [&] {
    uint64_t v;
    auto s = g->get_state();
    std::memcpy(&v, s.data() + 8, 8);
    return v;
  };
  EXPECT_EQ(offset(), 4u);
  rand({512 * 4 + 1}, g);
  EXPECT_EQ(offset(), 12u);
  auto state = g->get_state();
  auto a = randn({10}, g).to_vector();
  g->set_state(state);
  EXPECT_EQ(randn({10}, g, kBFloat16).to_vector(), to_dtype(tensor(a, {10}), kBFloat16).to_vector());
  Tensor p = randperm(50, g), seen = zeros({50}, kInt64);
  for (int64_t i = 0; i < 50; ++i) ++seen.data<int64_t>()[p.data<int64_t>()[i]];
  EXPECT_EQ(seen.to_vector(), std::vector<double>(50, 1.0));
}

TEST(random, meta_and_empty_tensors_draw_nothing) {
  Generator g = make_generator();
  auto before = g->get_state();
  EXPECT_TRUE(randn({2, 3}, g, kFloat32, Device::Meta).device().is_meta());
  EXPECT_TRUE(randperm(5, g, {}, Device::Meta).device().is_meta());
  EXPECT_EQ(rand({0, 4}, g).numel(), 0);
  EXPECT_EQ(randperm(0, g).numel(), 0);
  EXPECT_EQ(g->get_state(), before);
}

template <class F> std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}
#define EXPECT_REFUSED(text, expression) \
  EXPECT_NE(refusal([&] { expression; }).find(text), std::string::npos) << refusal([&] { expression; })

TEST(random, bad_arguments_are_refused) {
  EXPECT_REFUSED("floating-point", rand({2}, {}, kInt64));
  EXPECT_REFUSED("floating-point", randn({2}, {}, kFloat8E4M3));
  EXPECT_REFUSED("negative", rand({-1}));
  EXPECT_REFUSED("low must be less than high", randint(5, 5, {2}));
  EXPECT_REFUSED("out of range for uint8", randint(0, 300, {2}, {}, kUInt8));
  EXPECT_REFUSED("out of range for uint8", randint(-1, 3, {2}, {}, kUInt8));
  EXPECT_REFUSED("only floating-point tensors", randint(0, 3, {2}, {}, kInt64, {}, true));
  EXPECT_REFUSED("cannot hold", randperm(1000, {}, kUInt8));
  EXPECT_REFUSED("must not be negative", randperm(-1));
  EXPECT_REFUSED("between 0 and 1", bernoulli(tensor({0.5, 1.5})));
  EXPECT_REFUSED("between 0 and 1", bernoulli_(empty({2}), wrapped(-0.1)));
  EXPECT_REFUSED("floating-point", bernoulli(zeros({2}, kInt64)));
  EXPECT_REFUSED("low must not be above high", uniform_(empty({2}), 1, 0));
  EXPECT_REFUSED("std must not be negative", normal_(empty({2}), 0, -1));
  EXPECT_REFUSED("std must not be negative", normal(zeros({2}), full({2}, -1.0)));
  EXPECT_REFUSED("need a size", normal(wrapped(0.0), wrapped(1.0)));
  EXPECT_REFUSED("1 or 2 dimensions", multinomial(ones({2, 2, 2}), 1));
  EXPECT_REFUSED("without replacement", multinomial(ones({3}), 4));
  EXPECT_REFUSED("add up to 0", multinomial(zeros({3}), 1));
  EXPECT_REFUSED("finite", multinomial(tensor({1, -1}), 1));
  EXPECT_REFUSED("num_samples must be positive", multinomial(ones({3}), 0));
  EXPECT_REFUSED("must have categories", multinomial(ones({2, 0}), 1));
  EXPECT_REFUSED("expanded", normal_(zeros({1}).expand({4})));
  EXPECT_REFUSED("written in place", normal_(zeros({4}).requires_grad_()));
  EXPECT_REFUSED("must be a tensor", normal_({}));
  EXPECT_REFUSED("storage only", random_(empty({2}, kFloat8E5M2)));
  EXPECT_REFUSED("algorithm must be", make_generator({}, "pcg"));
  EXPECT_REFUSED("multiple of 256", make_generator({}, "cuda", 100));
}

TEST(random, in_place_fill_cuts_a_tensor_off_its_past) {
  Tensor x = ones({3}).requires_grad_(), y = x * 2.0;
  uint32_t version = y.version();
  normal_(y);
  EXPECT_GT(y.version(), version);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(3, 0.0)) << "the new values do not depend on x";
  autograd::NoGrad off;
  normal_(x, 0, 0);
  EXPECT_EQ(x.to_vector(), std::vector<double>(3, 0.0));
  EXPECT_TRUE(x.requires_grad());
}

TEST(random, ops_are_registered_by_name) {
  Generator g = make_generator();
  g->manual_seed(2);
  Value v = call_op("randint", {int64_t(0), int64_t(9), Shape{4}, g});
  g->manual_seed(2);
  EXPECT_EQ(std::get<Tensor>(v).to_vector(), randint(0, 9, {4}, g).to_vector());
  for (auto* name : {"rand", "randn", "randperm", "normal", "bernoulli", "multinomial"})
    EXPECT_TRUE(find_op(name) && find_op(name)->is_random) << name;
}

}  // namespace

}  // namespace sf::test
