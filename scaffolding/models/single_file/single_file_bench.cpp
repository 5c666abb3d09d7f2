#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "benchmarks/bench.h"
#include "scaffolding/models/single_file/single_file.h"

namespace sf::bench {
namespace {

namespace fs = std::filesystem;

// A checkpoint of a kind in F16, without a page of data on the disk: its header, and a hole.
struct SparseFile {
  explicit SparseFile(const std::string& kind)
      : path(fs::temp_directory_path() / ("sf_bench_" + kind + "_" + std::to_string(getpid()) + ".safetensors")) {
    std::string header;
    int64_t at = 0;
    for (auto& part : models::single_file_kind(kind).parts) {
      if (part.places.empty()) continue;
      const models::NameTable names = models::single_file_names(part, part.config);
      for (auto& source : names.sources()) {
        std::string shape;
        for (int64_t n : source.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(n));
        const int64_t end = at + 2 * numel(source.shape);
        header += header.empty() ? "{\"" : ",\"";
        header += source.name + "\":{\"dtype\":\"F16\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                  std::to_string(at) + "," + std::to_string(end) + "]}";
        at = end;
      }
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << header;
    out.close();
    fs::resize_file(path, 8 + length + uint64_t(at));
  }
  ~SparseFile() { fs::remove(path); }
  fs::path path;
};

// Recognised and checked, every tensor's name and shape; with its models where `load`.
std::function<void()> opened(const char* kind, bool load) {
  return [load, sparse = std::make_shared<SparseFile>(kind)] {
    models::SingleFile file(sparse->path.string());
    if (!load) return;
    for (auto& part : file.kind().parts)
      if (!part.places.empty()) file.load(part.name);
  };
}

const Rows rows([](std::vector<Row>& out) {
  out.push_back({"open SD 1.5 in one file", Roof::None, 0, seconds(0.005), [] { return opened("v1", false); }, 1});
  out.push_back({"open SD 1.5 in one file, with its models", Roof::None, 0, seconds(0.008),
                 [] { return opened("v1", true); }, 1});
  out.push_back({"open SDXL in one file", Roof::None, 0, seconds(0.012), [] { return opened("xl_base", false); }, 1});
});

}  // namespace
}  // namespace sf::bench
