#include "scaffolding/backend/cpu/lean_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/ops.h"

namespace sf::cpu {

TEST(LeanMemory, FreedBlocksGoBeforeMoreIsTaken) {
  LeanMemory lean;
  empty_cache();
  reset_peak();
  const size_t before = allocated_bytes();
  constexpr size_t kLittle = size_t(384) << 20;
  for (size_t mb : {40, 56, 80, 96, 128, 112, 72, 48, 448, 384, 416, 320, 96, 64}) {  // none of it is touched
    release(allocate(mb << 20), mb << 20);
    EXPECT_LE(allocated_bytes() + cached_bytes(), std::max(kLittle, max_allocated_bytes() + (size_t(32) << 20))) << mb;
#ifndef __SANITIZE_ADDRESS__  // under which nothing is cached
    if (mb == 48) {
      EXPECT_GT(cached_bytes(), size_t(200) << 20) << "little is kept for the next call";
    }
#endif
  }
  EXPECT_EQ(allocated_bytes(), before);
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kCaches = false;  // so that use after free is seen
#else
constexpr bool kCaches = true;
#endif

// How many blocks of `bytes`, of n that were freed, may be kept.
size_t kept_of(size_t n, size_t bytes) {
  while (n > 0 && !may_cache(n * bytes)) --n;
  return n;
}

TEST(HostMemory, WhatIsNoLongerAskedForGivesWayInTheCache) {
  empty_cache();
  reset_peak();
  const size_t old_size = size_t(128) << 20, new_size = size_t(40) << 20;
  std::vector<void*> old;
  for (size_t i = 0; i < 9; ++i) old.push_back(allocate(old_size));  // more than 1 GB, none of it touched
  for (void* p : old) release(p, old_size);
  EXPECT_EQ(cached_bytes(), kept_of(9, old_size) * old_size);
  reset_peak();  // what was taken at once before is no reason to keep more
  void* p = allocate(new_size);
  release(p, new_size);
  EXPECT_TRUE(may_cache(cached_bytes())) << cached_bytes();
  EXPECT_EQ(cached_bytes() == 9 * old_size + new_size, may_cache(9 * old_size + new_size)) << "else old ones went";
  const size_t before = cached_bytes(), its = may_cache(new_size) ? new_size : 0;
  void* again = allocate(new_size);
  EXPECT_EQ(cached_bytes(), before - its);
  if (its > 0) {
    EXPECT_EQ(again, p);
  }
  release(again, new_size);
  empty_cache();
}

TEST(HostMemory, WhatAStepTakesAgainStays) {
  empty_cache();
  reset_peak();
  const size_t size = size_t(224) << 20;  // five of them, none of it touched, are 1.09 GB
  auto step = [&] {
    std::vector<void*> taken;
    for (int i = 0; i < 5; ++i) taken.push_back(allocate(size));
    for (void* p : taken) release(p, size);
  };
  step();
  const size_t kept = kept_of(5, size);
  EXPECT_EQ(cached_bytes(), kept * size);
  const std::string set = env::text("SF_CPU_CACHE_MB");
  const size_t fixed = set.empty() ? 5 : std::min<size_t>(5, (std::stoull(set) << 20) / size);
  EXPECT_EQ(kept, kCaches ? fixed : 0) << "1 GB and what the step took, or what SF_CPU_CACHE_MB says";
  step();
  EXPECT_EQ(cached_bytes(), kept * size);
  EXPECT_FALSE(may_cache((size_t(1) << 40) + max_allocated_bytes()));
  empty_cache();
}

TEST(LeanMemory, GivesBackWhatIsKept) {
  Tensor a = randn({64, 512}), weight = randn({512, 512});
  linear(a, weight);
  LeanMemory::give_back();
  EXPECT_EQ(packed_total(), 0u);
  EXPECT_EQ(cached_bytes(), 0u);
  linear(a, weight);
  const size_t kept = packed_total() + cached_bytes();
  LeanMemory::give_back_much();
  EXPECT_EQ(packed_total() + cached_bytes(), kept) << "it is little";
  constexpr size_t kMuch = size_t(256) << 20;
  release(allocate(kMuch), kMuch);
  LeanMemory::give_back_much();
  EXPECT_EQ(packed_total() + cached_bytes(), 0u);
  EXPECT_FALSE(LeanMemory::active());
  LeanMemory one, two;
  EXPECT_TRUE(LeanMemory::active());
}

// Weights that could take a gradient are kept in the layout of kernels where the model is small.
TEST(LeanMemory, KeepsTheWeightsOfASmallModelWhole) {
  autograd::NoGrad off;
  // of a type that every instruction set packs
  Tensor a = randn({64, 512}).to(kFloat16), weight = randn({512, 512}).to(kFloat16).requires_grad_();
  LeanMemory::give_back();
  LeanMemory lean;
  EXPECT_TRUE(LeanMemory::keeps_few());
  linear(a, weight);
  EXPECT_EQ(packed_total(), 0u);
  {
    KeptWhole large(size_t(65) << 20);
    EXPECT_TRUE(LeanMemory::keeps_few());
    KeptWhole small(size_t(1) << 20);
    EXPECT_FALSE(LeanMemory::keeps_few());
    linear(a, weight);
    EXPECT_GE(packed_total(), size_t(512) << 10);
    EXPECT_GT(LeanMemory::most_packed(), size_t(64) << 20);
  }
  EXPECT_TRUE(LeanMemory::keeps_few());
  LeanMemory::give_back();
}

}  // namespace sf::cpu
