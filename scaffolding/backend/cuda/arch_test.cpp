// Which GPUs a build can run on: decided from numbers, so that it is tested without a GPU.
#include "scaffolding/backend/cuda/arch.h"

#include <gtest/gtest.h>

namespace sf::cuda {

TEST(CudaArch, machine_code_runs_within_its_major_version_from_its_minor_on) {
  EXPECT_TRUE(runs_on("80-real", 80));
  EXPECT_TRUE(runs_on("80-real", 89));
  EXPECT_FALSE(runs_on("86-real", 80));
  EXPECT_FALSE(runs_on("80-real", 90));
}

TEST(CudaArch, code_for_90a_runs_on_9_0_alone) {
  EXPECT_TRUE(runs_on("90a-real", 90));
  EXPECT_FALSE(runs_on("90a-real", 100));
  EXPECT_FALSE(runs_on("90a", 120));
}

TEST(CudaArch, ptx_runs_on_every_later_gpu) {
  EXPECT_TRUE(runs_on("120", 121));
  EXPECT_TRUE(runs_on("80-virtual", 120));
  EXPECT_FALSE(runs_on("120", 100));
}

TEST(CudaArch, any_entry_of_the_list_will_do) {
  EXPECT_TRUE(runs_on("80-real,90a-real,120", 90));
  EXPECT_FALSE(runs_on("80-real,90a-real,120", 75));
  EXPECT_FALSE(runs_on("", 90));
}

}  // namespace sf::cuda
