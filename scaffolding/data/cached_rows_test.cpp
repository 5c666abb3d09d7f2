#include "scaffolding/data/cached_rows.h"

#include "scaffolding/data/dataloader.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {
namespace {

class Cache : public io::TestFolder {
 protected:
  // Rows 0 .. n - 1 of [2, 3] and [], in calls of `step` rows.
  void fill(int64_t n, int64_t step, int64_t per_file) {
    RowWriter writer(path("cache"), per_file);
    Tensor all = arange(0, n * 6, 1, kFloat32).reshape({n, 2, 3}), numbers = arange(0, n, 1, kInt64);
    for (int64_t i = 0; i < n; i += step) {
      int64_t count = std::min(step, n - i);
      writer.add({{"latents", all.narrow(0, i, count)}, {"number", numbers.narrow(0, i, count)}});
    }
    writer.finish();
  }
  void expect_rows(int64_t n) {
    CachedRows rows(path("cache"));
    ASSERT_EQ(rows.size(), n);
    EXPECT_EQ(rows.names(), (std::vector<std::string>{"latents", "number"}));
    for (int64_t i = 0; i < n; ++i) {
      auto row = rows.get(i);
      EXPECT_EQ(row["number"].item_int(), i);
      EXPECT_EQ(row["latents"].shape(), (Shape{2, 3}));
      EXPECT_EQ(row["latents"].to_vector()[0], double(6 * i));
    }
  }
};

TEST_F(Cache, RowsComeBackHoweverTheyWereAdded) {
  for (auto [n, step, per_file] : {std::array{1, 1, 4}, {8, 3, 4}, {9, 9, 2}, {7, 2, 100}}) {
    fill(n, step, per_file);
    expect_rows(n);
    std::filesystem::remove_all(path("cache"));
  }
}

TEST_F(Cache, IsADatasetOfALoader) {
  fill(10, 4, 3);
  DataLoader loader(std::make_shared<CachedRowsDataset>(path("cache"), "latents", "number"), {.batch_size = 4});
  int64_t seen = 0;
  for (Batch& batch : loader) {
    EXPECT_EQ(batch.image.shape(), (Shape{batch.size(), 2, 3}));
    for (double v : batch.target.to_vector()) EXPECT_EQ(v, double(seen++));
  }
  EXPECT_EQ(seen, 10);
  SF_EXPECT_ERROR(ValueError, "has no rows of 'text'", CachedRowsDataset(path("cache"), "latents", "text"));
}

TEST_F(Cache, IsThereOnlyWhenItIsWhole) {
  {
    RowWriter writer(path("cache"), 2);
    writer.add({{"x", zeros({5, 1})}});
  }
  SF_EXPECT_ERROR(ValueError, "there is no file", CachedRows(path("cache")));
  fill(3, 1, 2);  // begins anew
  expect_rows(3);
  SF_EXPECT_ERROR(ValueError, "holds a cache already", RowWriter(path("cache")));
  SF_EXPECT_ERROR(IndexError, "row 3 of 3", CachedRows(path("cache")).get(3));
  SF_EXPECT_ERROR(IndexError, "row -1 of 3", CachedRows(path("cache")).get(-1));
}

TEST_F(Cache, KnowsWhatItIsAbout) {
  RowWriter writer(path("cache"), 2, "pictures at 512");
  writer.add({{"x", zeros({5, 1})}});
  writer.finish();
  EXPECT_EQ(CachedRows(path("cache")).about(), "pictures at 512");
  EXPECT_EQ(CachedRows(path("cache"), "pictures at 512").size(), 5);
  SF_EXPECT_ERROR(ValueError, "are about 'pictures at 512', not 'pictures at 768'",
                  CachedRows(path("cache"), "pictures at 768"));
}

TEST_F(Cache, WhatDoesNotFitIsRefused) {
  SF_EXPECT_ERROR(ValueError, "rows_per_file must be above 0", RowWriter(path("a"), 0));
  RowWriter writer(path("a"), 4);
  SF_EXPECT_ERROR(ValueError, "no rows were added", writer.finish());
  SF_EXPECT_ERROR(ValueError, "at least one tensor", writer.add({}));
  SF_EXPECT_ERROR(ValueError, "must be [N, ...]", writer.add({{"x", zeros({})}}));
  SF_EXPECT_ERROR(ValueError, "with the N of the others", writer.add({{"x", zeros({2})}, {"y", zeros({3})}}));
  writer.add({{"x", zeros({2, 3})}});
  SF_EXPECT_ERROR(ValueError, "rows of x must be as before, float32 [1, 3], got float32 [1, 4]",
                  writer.add({{"x", zeros({2, 4})}}));
  SF_EXPECT_ERROR(ValueError, "rows of x must be as before", writer.add({{"x", zeros({2, 3}, kInt64)}}));
  SF_EXPECT_ERROR(ValueError, "the names must be those of the first call", writer.add({{"y", zeros({2, 3})}}));
  SF_EXPECT_ERROR(ValueError, "the names must be those of the first call",
                  writer.add({{"x", zeros({2, 3})}, {"y", zeros({2, 3})}}));
  EXPECT_EQ(writer.size(), 2);
}

TEST_F(Cache, DamageIsFound) {
  fill(5, 5, 2);
  io::save_safetensors({{"latents", zeros({1, 2, 3})}, {"number", zeros({1}, kInt64)}},
                       path("cache/rows-00001.safetensors"));
  SF_EXPECT_ERROR(ValueError, "must have 2 rows, got [1, 2, 3]", CachedRows(path("cache")));
  io::save_safetensors({{"latents", zeros({2, 3})}, {"number", zeros({2}, kInt64)}},
                       path("cache/rows-00001.safetensors"));
  SF_EXPECT_ERROR(ValueError, "must be as those of the first file", CachedRows(path("cache")));
  io::save_safetensors({{"latents", zeros({2, 2, 3})}}, path("cache/rows-00001.safetensors"));
  SF_EXPECT_ERROR(ValueError, "must have the tensors of the first file", CachedRows(path("cache")));
  std::filesystem::remove(path("cache/rows-00001.safetensors"));
  SF_EXPECT_ERROR(RuntimeError, "rows-00001.safetensors", CachedRows(path("cache")));
  write("cache/rows.json", R"({"rows": 9000000000000000, "rows_per_file": 1})");
  SF_EXPECT_ERROR(ValueError, "need at most 100000 files", CachedRows(path("cache")));
  write("cache/rows.json", R"({"rows": "five", "rows_per_file": 1})");
  SF_EXPECT_ERROR(TypeError, "rows must be an integer", CachedRows(path("cache")));
  write("cache/rows.json", "{");
  SF_EXPECT_ERROR(ValueError, "rows.json", CachedRows(path("cache")));
}

}  // namespace
}  // namespace sf::data
