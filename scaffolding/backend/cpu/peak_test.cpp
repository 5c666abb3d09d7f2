#include "scaffolding/backend/cpu/peak.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "scaffolding/backend/cpu/isa.h"

namespace sf::cpu {
namespace {

TEST(Peak, UnitsHaveNamesOfTheirOwnAndOneMultipliesFloat32) {
  std::set<std::string> names;
  int of_float32 = 0;
  for (const Unit& unit : units()) {
    EXPECT_TRUE(names.insert(unit.name).second) << unit.name;
    EXPECT_GT(unit.operations, 0) << unit.name;
    of_float32 += unit.dtype == kFloat32;
    const bool amx = std::string(unit.name).starts_with("AMX");
    EXPECT_TRUE(!amx || has(Isa::avx512amx)) << unit.name << ": tiles in plain C++ are no unit";
    EXPECT_TRUE(!std::string(unit.name).starts_with("AVX512") || has(Isa::avx512)) << unit.name;
  }
  EXPECT_EQ(of_float32, 1);
  EXPECT_EQ(names.contains("AMX bfloat16"), has(Isa::avx512amx));
  EXPECT_EQ(names.contains("AVX512-BF16 bfloat16"), has(Isa::avx512bf16));
}

TEST(Peak, EveryUnitIsMeasuredAndTheRoofIsTheFastestThatComputesTheType) {
  const std::vector<Peak> peaks = measured_peaks();
  ASSERT_EQ(peaks.size(), units().size());
  for (const Peak& peak : peaks) {
    EXPECT_GT(peak.rate.wall, 0) << peak.unit.name;
    EXPECT_GT(peak.rate.cpu, 0) << peak.unit.name;
  }
  for (DType dtype : {kFloat32, kBFloat16, kFloat16, kInt8}) {
    const Peak& roof = roof_of(peaks, dtype);
    EXPECT_TRUE(computes(roof.unit, dtype));
    for (const Peak& peak : peaks) {
      if (peak.unit.dtype != dtype) continue;
      EXPECT_GE(roof.rate.cpu, peak.rate.cpu) << peak.unit.name;
    }
  }
  EXPECT_EQ(roof_of(peaks, kFloat32).unit.dtype, kFloat32);
  EXPECT_EQ(split_float32_rate(peaks) > 0, has(Isa::avx512amx));
}

// Rates as they might be: no clock decides what is tested.
TEST(Peak, ARoofIsOfTheTypeOrOfFloat32) {
  auto peak = [](const char* name, DType dtype, double rate) {
    return Peak{{name, "", dtype, 1, nullptr}, {rate, rate}};
  };
  const std::vector<Peak> peaks = {peak("FMA float32", kFloat32, 6), peak("AVX512-BF16 bfloat16", kBFloat16, 3),
                                   peak("AMX bfloat16", kBFloat16, 60), peak("AVX-VNNI int8", kInt8, 5)};
  EXPECT_STREQ(roof_of(peaks, kFloat32).unit.name, "FMA float32");
  EXPECT_STREQ(roof_of(peaks, kBFloat16).unit.name, "AMX bfloat16");
  EXPECT_STREQ(roof_of(peaks, kFloat16).unit.name, "FMA float32");
  EXPECT_STREQ(roof_of(peaks, kInt8).unit.name, "FMA float32") << "slower than widening";
  EXPECT_DOUBLE_EQ(split_float32_rate(peaks), 10);
  EXPECT_DOUBLE_EQ(split_float32_rate({peaks[0], peaks[1]}), 0);
}

}  // namespace
}  // namespace sf::cpu
