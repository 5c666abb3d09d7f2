#include "scaffolding/backend/cpu/lean_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/backend/free_memory.h"
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

TEST(HostMemory, WhatIsNoLongerAskedForGivesWayInTheCache) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is cached under AddressSanitizer";
#endif
  empty_cache();
  reset_peak();
  const size_t old_size = size_t(128) << 20, new_size = size_t(40) << 20, limit = size_t(1) << 30;
  if (!env::text("SF_CPU_CACHE_MB").empty()) GTEST_SKIP() << "SF_CPU_CACHE_MB is set";
  std::vector<void*> old;
  for (size_t i = 0; i <= limit / old_size; ++i) old.push_back(allocate(old_size));  // none of it is touched
  for (void* p : old) release(p, old_size);
  EXPECT_GT(cached_bytes() + new_size, limit);
  reset_peak();  // what was taken at once before is no reason to keep more
  void* p = allocate(new_size);
  release(p, new_size);
  EXPECT_LE(cached_bytes(), limit + new_size);
  const size_t before = cached_bytes();
  void* again = allocate(new_size);
  EXPECT_EQ(again, p);
  EXPECT_EQ(cached_bytes(), before - new_size);
  release(again, new_size);
  empty_cache();
}

TEST(HostMemory, WhatAStepTakesAgainStays) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is cached under AddressSanitizer";
#endif
  if (!env::text("SF_CPU_CACHE_MB").empty()) GTEST_SKIP() << "SF_CPU_CACHE_MB is set";
  if (free_host_memory().free / 8 < size_t(1500) << 20) GTEST_SKIP() << "an eighth of the memory is too little";
  empty_cache();
  reset_peak();
  const size_t size = size_t(200) << 20;
  auto step = [&] {
    std::vector<void*> taken;
    for (int i = 0; i < 6; ++i) taken.push_back(allocate(size));  // 1.2 GB, none of it touched
    for (void* p : taken) release(p, size);
    return taken;
  };
  auto first = step(), second = step();
  std::reverse(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_LE(allocated_bytes() + cached_bytes(), max_allocated_bytes() + (size_t(1) << 30));
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
