#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "benchmarks/bench.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::bench {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("sf_bench_" + std::to_string(getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

// A safetensors file of `count` F32 tensors without a page on the disk: it has a hole where the data are.
void write_sparse(const fs::path& path, const std::string& prefix, int count, uint64_t bytes) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header += (i ? ",\"" : "\"") + prefix + std::to_string(i) + "\":{\"dtype\":\"F32\",\"shape\":[" +
              std::to_string(bytes / 4) + "],\"data_offsets\":[" + std::to_string(uint64_t(i) * bytes) + "," +
              std::to_string(uint64_t(i + 1) * bytes) + "]}";
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header;
  out.close();
  fs::resize_file(path, 8 + length + uint64_t(count) * bytes);
}

// Two files of 625 tensors of 4 MB each.
std::function<void()> one_of_many() {
  auto folder = std::make_shared<Folder>();
  constexpr uint64_t kBytes = 4'000'000;
  std::string map;
  for (int shard : {1, 2}) {
    std::string file = "model-0000" + std::to_string(shard) + "-of-00002.safetensors",
                prefix = "layers." + std::to_string(shard) + ".weight.";
    write_sparse(folder->path / file, prefix, 625, kBytes);
    for (int i = 0; i < 625; ++i)
      map += (map.empty() ? "\"" : ",\"") + prefix + std::to_string(i) + "\":\"" + file + "\"";
  }
  std::ofstream(folder->path / "model.safetensors.index.json")
      << "{\"metadata\":{\"total_size\":5000000000},\"weight_map\":{" << map << "}}";
  return [folder] {
    keep(io::open_checkpoint(folder->path / "model.safetensors.index.json")->get("layers.2.weight.300").clone());
  };
}

// 64 tensors of 4 MB into tensors that are there already, as load_state_dict does.
std::function<void()> whole_file() {
  auto folder = std::make_shared<Folder>();
  std::map<std::string, Tensor> tensors;
  for (int i = 0; i < 64; ++i) tensors[std::to_string(i)] = full({1000, 1000}, i);
  std::string path = folder->path / "whole.safetensors";
  io::save_safetensors(tensors, path);
  return [folder, path, tensors] {
    io::SafetensorsFile file(path);
    for (auto& [name, t] : tensors) std::memcpy(t.data_ptr(), file.get(name).data_ptr(), t.nbytes());
  };
}

const Rows rows([](std::vector<Row>& out) {
  out.push_back({"open 5 GB in 2 shards, read 4 MB", Roof::None, 0, seconds(0.05), one_of_many, 1});
  out.push_back({"load 256 MB of safetensors", Roof::Copy, 2 * 256e6, {}, whole_file, 1});
});

}  // namespace
}  // namespace sf::bench
