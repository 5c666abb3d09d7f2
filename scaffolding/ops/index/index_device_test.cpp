// scatter along a long dimension with little beside it, where elements are sorted by where they go, and index_put with
// few lanes. Needs a GPU or the emulator.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "scaffolding/scaffolding.h"

namespace sf {
namespace {

TEST(CudaScatter, few_lanes_of_many_elements_equal_the_cpus) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(5);
  for (DType t : {kFloat32, kBFloat16, kInt64, kUInt8})
    for (int64_t lanes : {1, 3})
      for (bool turned : {false, true}) {
        // Whole numbers, so that sums are exact in any order; places that get nothing,
        // and one that gets a third of all.
        Tensor index = randint(0, 29, {1500, lanes}), out = randint(0, 4, {40, lanes}).to(t),
               src = randint(0, 2, {1600, lanes}).to(t);
        index = where(lt(index, full({}, 10, kInt64)), full_like(index, 31), index);
        if (turned)
          src = src.transpose(0, 1).contiguous().transpose(0, 1),
          out = out.transpose(0, 1).contiguous().transpose(0, 1);
        Tensor numbers = arange(0, 1600 * lanes).view({1600, lanes}).to(t);  // the last of those for a place stays
        auto equal = [&](const Tensor& got, const Tensor& want) { return got.cpu().to_vector() == want.to_vector(); };
        EXPECT_TRUE(equal(scatter(out.cuda(), 0, index.cuda(), numbers.cuda()), scatter(out, 0, index, numbers)))
            << name(t) << lanes << turned;
        if (t == kBFloat16 || t == kUInt8)
          src = src * 0 + 1, out = out * 0,
          index = remainder(arange(0, 1500 * lanes).view({1500, lanes}), full({}, 29, kInt64));
        EXPECT_TRUE(equal(scatter_add(out.cuda(), 0, index.cuda(), src.cuda()), scatter_add(out, 0, index, src)))
            << name(t) << lanes << turned;
      }
}

TEST(CudaPut, few_lanes_equal_the_cpus_and_share_a_block) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(6);
  auto expect_equal = [](const Tensor& x, const Tensors& at, const Tensor& values) {
    Tensors there;
    for (auto& index : at) there.push_back(index.cuda());
    for (bool accumulate : {false, true})
      EXPECT_EQ(index_put(x.cuda(), there, values.cuda(), accumulate).cpu().to_vector(),
                index_put(x, at, values, accumulate).to_vector());
  };
  Tensor at = clamp(randint(-29, 40, {700}), {}, 20);  // a third of the points go to one place
  for (DType t : {kFloat32, kBFloat16, kInt64, kUInt8, kBool}) {
    for (int64_t lanes : {1, 3, 16, 255, 256, 259})
      expect_equal(randint(0, 4, {33, lanes}).to(t), {at}, randint(0, 3, {700, lanes}).to(t));
    Tensor values = randint(0, 3, {700}).to(t);
    expect_equal(randint(0, 4, {33}).to(t), {at}, values);
    expect_equal(randint(0, 4, {5, 33}).to(t).t(), {at, randint(0, 5, {700})}, values);
  }
  auto count = reinterpret_cast<int64_t (*)(int)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_count"));
  if (!count) return;
  Tensor x = zeros({1000}, kFloat32).cuda(), points = randint(0, 1000, {4096}).cuda(), one = ones({}).cuda();
  const int64_t before = count(22);
  index_put_(x, {points}, one);
  EXPECT_LT(count(22) - before, 256);
  EXPECT_GT(count(22), before);
}

}  // namespace
}  // namespace sf
