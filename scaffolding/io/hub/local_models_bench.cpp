#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "benchmarks/bench.h"
#include "scaffolding/io/hub/local_models.h"

namespace sf::bench {
namespace {

namespace fs = std::filesystem;

// Ten thousand files in the folders of a program, a hundred to a folder.
struct ManyModels {
  ManyModels() : path(fs::temp_directory_path() / ("sf_bench_models_" + std::to_string(getpid()))) {
    for (int i = 0; i < 10'000; ++i) {
      const fs::path folder = path / (i % 2 ? "loras" : "checkpoints") / ("of " + std::to_string(i / 100));
      if (i % 100 < 2) fs::create_directories(folder);
      std::ofstream(folder / ("model number " + std::to_string(i) + ".safetensors")) << "x";
    }
  }
  ~ManyModels() { fs::remove_all(path); }
  fs::path path;
};

std::function<void()> found() {
  return [many = std::make_shared<ManyModels>()] {
    const auto models = io::local_models({{io::ModelPlace::Folder, many->path.string(), ""}});
    if (io::models_called("MODEL NUMBER 9999", models).size() != 1) std::abort();
  };
}

const Rows rows([](std::vector<Row>& out) {
  out.push_back({"a model by name in 10 000 files", Roof::None, 0, seconds(0.2), found, 1});
});

}  // namespace
}  // namespace sf::bench
