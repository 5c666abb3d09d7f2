#include "scaffolding/core/generator.h"

#include <map>
#include <mutex>
#include <random>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/random/streams.h"

namespace sf {

uint64_t GeneratorImpl::seed() {
  std::random_device source;
  uint64_t s = (uint64_t(source()) << 32 | source()) & ((uint64_t(1) << 53) - 1);  // fits a double, as torch's
  manual_seed(s);
  return s;
}

Generator make_generator(Device device, const std::string& algorithm, int64_t threads) {
  SF_CHECK(threads >= 0 && threads % 256 == 0,
           "Generator: threads must be a multiple of 256, the size of a block of the original launch, got ", threads);
  bool philox = algorithm.empty() ? device.is_cuda() : algorithm == "cuda" || algorithm == "philox";
  SF_CHECK(philox || algorithm.empty() || algorithm == "cpu" || algorithm == "mt19937",
           "Generator: algorithm must be 'cpu' or 'cuda', got '", algorithm, "'");
  SF_CHECK(philox || threads == 0, "Generator: threads belongs to algorithm 'cuda'");
  Generator g = philox ? make_philox(threads) : make_mt19937();
  g->device = device;
  return g;
}

namespace {
struct Defaults {
  std::mutex lock;
  std::map<std::pair<DeviceType, int>, Generator> generators;
  uint64_t seed = kDefaultSeed;
};
Defaults& defaults() {
  static Defaults d;
  return d;
}
}  // namespace

Generator default_generator(Device device) {
  if (!device.is_cuda()) device = Device();  // mps and meta share the CPU's
  Defaults& d = defaults();
  std::lock_guard guard(d.lock);
  Generator& g = d.generators[{device.type, device.index}];
  if (!g) {
    g = make_generator(device);
    g->manual_seed(d.seed);
  }
  return g;
}

void manual_seed(uint64_t seed) {
  Defaults& d = defaults();
  std::lock_guard guard(d.lock);
  d.seed = seed;  // for devices whose generator is made later
  for (auto& [device, g] : d.generators) g->manual_seed(seed);
}

}  // namespace sf
