#include "scaffolding/data/dataloader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "scaffolding/core/parallel.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {
namespace {

// Sample i is [i, a random number]; slow, broken or failing where asked.
struct Counting : Dataset {
  int64_t n = 23;
  std::function<void(int64_t)> before = [](int64_t) {};
  mutable std::atomic<int64_t> calls{0};
  int64_t size() const override { return n; }
  Sample get(int64_t i, SampleRandom& random) const override {
    ++calls;
    before(i);
    Sample s;
    s.image = empty({2}, kFloat64);
    s.image.data<double>()[0] = double(i);
    s.image.data<double>()[1] = random.uniform();
    s.index = i;
    s.name = sample_name(i);
    return s;
  }
};

using Order = std::vector<std::vector<int64_t>>;

Order epoch_of(DataLoader& loader, std::vector<double>* values = nullptr) {
  Order out;
  for (Batch& b : loader) {
    out.push_back(b.index);
    if (values)
      for (double v : b.image.to_vector()) values->push_back(v);
  }
  return out;
}
Generator seeded(uint64_t seed) {
  Generator g = make_generator();
  g->manual_seed(seed);
  return g;
}
nlohmann::json golden() { return nlohmann::json::parse(std::ifstream(SF_SOURCE_DIR "/tests/golden/data/orders.json")); }

TEST(DataLoader, shuffles_as_torch_does) {
  auto want = golden();
  auto data = std::make_shared<Counting>();
  for (uint64_t seed : {0, 42}) {
    DataLoader own(data, {.batch_size = 4, .shuffle = true, .num_workers = 2, .generator = seeded(seed)});
    for (auto& epoch : want["shuffle generator " + std::to_string(seed)]) EXPECT_EQ(epoch_of(own), epoch.get<Order>());
    manual_seed(seed);
    DataLoader global(data, {.batch_size = 5, .shuffle = true, .drop_last = true});
    for (auto& epoch : want["shuffle default " + std::to_string(seed)]) EXPECT_EQ(epoch_of(global), epoch.get<Order>());
    EXPECT_EQ(randint(0, 1 << 30, {2}).to_vector(),
              want["next draw " + std::to_string(seed)].get<std::vector<double>>());
  }
}

TEST(DataLoader, workers_change_nothing) {
  std::vector<double> first;
  Order order;
  for (int64_t workers : {0, 1, 3, 8}) {
    auto data = std::make_shared<Counting>();
    data->before = [](int64_t i) { std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 500)); };
    DataLoader loader(data, {.batch_size = 4, .shuffle = true, .num_workers = workers, .generator = seeded(7)});
    std::vector<double> values;
    Order got = epoch_of(loader, &values);
    if (workers == 0) {
      first = values;
      order = got;
    }
    EXPECT_EQ(got, order);
    EXPECT_EQ(values, first);
    std::vector<double> second;
    epoch_of(loader, &second);
    EXPECT_NE(second, first);
  }
}

TEST(DataLoader, workers_leave_the_pool_alone) {
  const int threads = num_threads();
  set_num_threads(3);
  auto data = std::make_shared<Counting>();
  std::atomic<int> pieces{0};
  data->before = [&](int64_t) { parallel_for(1000, 1, [&](int64_t, int64_t) { ++pieces; }); };
  DataLoader loader(data, {.batch_size = 4, .num_workers = 1});
  EXPECT_EQ(epoch_of(loader).size(), 6u);
  EXPECT_EQ(pieces, data->n);  // each sample's whole loop in the worker
  set_num_threads(threads);
}

TEST(DataLoader, goes_on_where_it_was_stopped) {
  for (bool own_generator : {true, false})
    for (int64_t workers : {0, 2}) {
      auto make = [&](uint64_t seed) {
        return DataLoaderOptions{.batch_size = 4,
                                 .shuffle = true,
                                 .num_workers = workers,
                                 .generator = own_generator ? seeded(seed) : Generator()};
      };
      auto data = std::make_shared<Counting>();
      manual_seed(3);
      DataLoader whole(data, make(3));
      std::vector<double> all;
      Order first = epoch_of(whole), second = epoch_of(whole, &all);
      for (size_t cut = 0; cut <= second.size(); ++cut) {
        manual_seed(3);
        DataLoader before(data, make(3));
        EXPECT_EQ(epoch_of(before), first);
        std::vector<double> values;
        for (size_t i = 0; i < cut; ++i)
          for (double v : before.next()->image.to_vector()) values.push_back(v);
        DataLoaderState state = before.state();
        Generator at_cut = own_generator ? Generator() : default_generator()->clone();
        before.stop();
        DataLoader after(data, make(99));
        if (!own_generator) default_generator()->set_state(at_cut->get_state());  // a training run restores it
        after.load_state(state);
        EXPECT_EQ(after.state().batches, int64_t(cut));
        Order rest = epoch_of(after, &values);
        EXPECT_EQ(rest, Order(second.begin() + int64_t(cut), second.end())) << cut;
        EXPECT_EQ(values, all) << cut;
        EXPECT_EQ(after.epoch(), 2);
      }
    }
}

TEST(DataLoader, broken_samples_are_left_out_and_counted) {
  auto data = std::make_shared<Counting>();
  data->before = [](int64_t i) {
    if (i % 5 == 2 || (i >= 8 && i < 12)) fail<BrokenSample>("x", i, ".png: is broken");
  };
  for (int64_t workers : {0, 2}) {
    std::vector<std::string> seen;
    DataLoader loader(data, {.batch_size = 4, .num_workers = workers, .on_skip = [&](const Skipped& s) {
                               seen.push_back(s.reason);
                             }});
    EXPECT_EQ(epoch_of(loader), (Order{{0, 1, 3}, {4, 5, 6}, {13, 14, 15}, {16, 18, 19}, {20, 21}}));
    EXPECT_EQ(loader.skipped(), 9);
    EXPECT_EQ(seen[0], "x2.png: is broken");
  }
  data->before = [](int64_t) { throw BrokenSample("all.png: is broken"); };
  DataLoader loader(data, {.batch_size = 4, .num_workers = 2});
  EXPECT_THROW(epoch_of(loader), RuntimeError);
}

TEST(DataLoader, an_error_names_the_sample) {
  auto data = std::make_shared<Counting>();
  data->before = [](int64_t i) {
    if (i == 9 || i == 10) throw TypeError("of a wrong kind");
  };
  for (int64_t workers : {0, 3}) {
    DataLoader loader(data, {.batch_size = 4, .num_workers = workers});
    EXPECT_EQ(loader.next()->index.size(), 4u);
    EXPECT_EQ(loader.next()->index.size(), 4u);
    try {
      loader.next();
      ADD_FAILURE();
    } catch (const TypeError& e) {
      EXPECT_STREQ(e.what(), "DataLoader: 'sample 9': of a wrong kind");
    }
  }
}

TEST(DataLoader, works_ahead_only_as_far_as_it_may) {
  auto data = std::make_shared<Counting>();
  data->n = 1000;
  DataLoader by_count(data, {.batch_size = 4, .num_workers = 2, .prefetch_factor = 3});
  by_count.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(data->calls, 4 * (2 * 3 + 1));
  by_count.stop();
  data->calls = 0;
  // 16 bytes a sample: three batches fill the limit; a sample in each worker may be under way when it is reached.
  DataLoader by_bytes(data, {.batch_size = 4, .num_workers = 2, .prefetch_factor = 50, .prefetch_bytes = 3 * 4 * 16});
  by_bytes.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(data->calls, 4 + 3 * 4 + 2);
  int64_t rest = 0;
  while (by_bytes.next()) ++rest;
  EXPECT_EQ(rest, 249);
}

TEST(DataLoader, leaving_early_is_quick) {
  auto data = std::make_shared<Counting>();
  data->n = 100000;
  data->before = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    DataLoader loader(data, {.batch_size = 8, .num_workers = 4});
    for (Batch& b : loader) {
      EXPECT_EQ(b.size(), 8);
      break;
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(DataLoader, impossible_arguments_are_refused) {
  auto data = std::make_shared<Counting>();
  EXPECT_THROW(DataLoader(nullptr), ValueError);
  EXPECT_THROW(DataLoader(data, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(data, {.num_workers = -1}), ValueError);
  EXPECT_THROW(DataLoader(data, {.prefetch_factor = 0}), ValueError);
  EXPECT_THROW(DataLoader(data, {.batch_size = 24, .drop_last = true}), ValueError);
  EXPECT_THROW(DataLoader(data, {.buckets = AspectBuckets(4096, 16)}), TypeError);
  data->n = 0;
  EXPECT_THROW(DataLoader{data}, ValueError);
  data->n = 23;
  DataLoader loader(data, {.batch_size = 4, .shuffle = true});
  EXPECT_THROW(loader.load_state({.batches = 7, .order_generator = {}}), ValueError);
  EXPECT_THROW(loader.load_state({.batches = 2, .order_generator = {}}), ValueError);
  EXPECT_THROW(loader.load_state({.batches = 2, .order_generator = {1, 2, 3}}), ValueError);
  EXPECT_EQ(epoch_of(loader).size(), 6u);
}

TEST(DataLoader, tensors_are_a_data_set_too) {
  Tensor x = empty({5, 2}, kFloat32), y = empty({5}, kInt64);
  for (int64_t i = 0; i < 5; ++i) {
    x[i].fill_(double(i));
    y[i].fill_(i * 10);
  }
  DataLoader loader(std::make_shared<TensorDataset>(x, y), {.batch_size = 2});
  std::vector<double> targets;
  for (Batch& b : loader)
    for (double v : b.target.to_vector()) targets.push_back(v);
  EXPECT_EQ(targets, (std::vector<double>{0, 10, 20, 30, 40}));
  EXPECT_THROW(TensorDataset(x, x.slice(0, 0, 3)), ValueError);
}

TEST(Buckets, batches_are_of_one_bucket) {
  std::vector<uint32_t> bucket = {0, 1, 0, 1, 2, 0, 0, 1};
  std::vector<int64_t> order = {7, 0, 2, 4, 1, 5, 3, 6};
  EXPECT_EQ(bucket_batches(order, bucket, 2, false), (Order{{0, 2}, {7, 1}, {5, 6}, {3}, {4}}));
  EXPECT_EQ(bucket_batches(order, bucket, 2, true), (Order{{0, 2}, {7, 1}, {5, 6}}));
  EXPECT_THROW(bucket_batches({8}, bucket, 2, true), IndexError);
}

}  // namespace
}  // namespace sf::data
