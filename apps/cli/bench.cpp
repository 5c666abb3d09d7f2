#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>

#include "apps/cli/bench_models.h"
#include "apps/cli/commands.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/backend/cpu/peak.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/kernel_cost.h"
#include "scaffolding/ops/ops.h"

namespace sf::cli {

namespace {

struct Time {
  double wall = 0, cpu = 0;  // seconds; cpu: of all threads
};
Time now() {
  auto read = [](clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  return {read(CLOCK_MONOTONIC), read(CLOCK_PROCESS_CPUTIME_ID)};
}
Time timed(const std::function<void()>& call) {
  const Time start = now();
  call();
  const Time end = now();
  return {end.wall - start.wall, end.cpu - start.cpu};
}

struct Kind {
  int64_t calls = 0;
  Time time;
  double flop = 0;
};

struct BenchOptions {
  std::string name, dtype = "f32";
  int64_t batch = 1, repeats = 3;
};

// What a large product reaches, FLOP per second of wall time.
double rate_of_product(DType dtype) {
  const int64_t n = 1536;
  Tensor a = randn({n, n}).to(dtype), b = randn({n, n}).to(dtype);
  auto product = [&] { linear(a, b); };
  product();
  double best = 1e30;
  for (int i = 0; i < 5; ++i) best = std::min(best, timed(product).wall);
  return 2.0 * double(n * n * n) / best;
}

double megabytes_resident_at_most() {
  // Linux counts what the parent held into ru_maxrss of a process that it starts.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024 / 1e6;
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) * 1024 / 1e6;
}

void print_kinds(const std::map<std::string, Kind>& kinds, Time total, cpu::Rate peak) {
  std::vector<std::pair<std::string, Kind>> rows(kinds.begin(), kinds.end());
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.time.cpu > b.second.time.cpu; });
  std::cout << "  " << std::left << std::setw(36) << "kernel" << std::right << std::setw(7) << "calls" << std::setw(11)
            << "wall ms" << std::setw(11) << "cpu ms" << std::setw(8) << "share" << std::setw(10) << "GFLOP/s"
            << std::setw(9) << "of peak\n";
  Time rest = total;
  for (auto& [name, k] : rows) {
    rest.wall -= k.time.wall, rest.cpu -= k.time.cpu;
    std::cout << "  " << std::left << std::setw(36) << name << std::right << std::setw(7) << k.calls << std::fixed
              << std::setprecision(1) << std::setw(11) << k.time.wall * 1e3 << std::setw(11) << k.time.cpu * 1e3
              << std::setw(7) << 100 * k.time.cpu / total.cpu << "%";
    if (k.flop > 0)
      std::cout << std::setw(10) << k.flop / k.time.wall / 1e9 << std::setw(7) << std::setprecision(0)
                << 100 * k.flop / k.time.cpu / peak.cpu << "%";
    std::cout << "\n";
  }
  std::cout << "  " << std::left << std::setw(43) << "between kernels" << std::right << std::setprecision(1)
            << std::setw(11) << rest.wall * 1e3 << std::setw(11) << rest.cpu * 1e3 << std::setw(7)
            << 100 * rest.cpu / total.cpu << "%\n";
}

void run(const BenchOptions& o) {
  const BenchModel* model = nullptr;
  std::vector<std::string> names;
  for (auto& m : bench_models()) names.push_back(m.name);
  for (auto& m : bench_models())
    if (o.name == m.name || o.name + "-unet" == m.name) model = &m;
  SF_CHECK(model, "bench: there is no model '", o.name, "'",
           did_you_mean(o.name, names, "`scaffolding bench` lists them"));
  SF_CHECK(o.dtype == "f32" || o.dtype == "bf16", "bench: dtype must be f32 or bf16, got '", o.dtype, "'");
  SF_CHECK(o.batch > 0 && o.repeats > 0, "bench: batch and repeats must be positive, got ", o.batch, " and ",
           o.repeats);
  const DType dtype = o.dtype == "f32" ? kFloat32 : kBFloat16;
  autograd::NoGrad off;
  auto pass = model->prepare(dtype, o.batch);
  const double weights = double(cpu::allocated_bytes()) / 1e6;
  cpu::reset_peak();
  pass();
  const double peak_memory = double(cpu::max_allocated_bytes()) / 1e6, resident = megabytes_resident_at_most();
  const std::vector<cpu::Peak> peaks = cpu::measured_peaks();
  const cpu::Peak& roof = cpu::roof_of(peaks, dtype);
  const double product = rate_of_product(dtype), split = dtype == kFloat32 ? cpu::split_float32_rate(peaks) : 0;
  Time best{1e30, 1e30};
  for (int64_t i = 0; i < o.repeats; ++i) {
    const Time t = timed(pass);
    best = {std::min(best.wall, t.wall), std::min(best.cpu, t.cpu)};
  }
  std::map<std::string, Kind> kinds;
  double flop = 0;
  Time watched;
  {
    KernelWatcher watcher([&](const KernelCall& call) {
      Kind& k = kinds[std::string(call.table.name()) + " " + provider_label(call.entry)];
      const double f = cost_of(call).flop;
      ++k.calls, k.flop += f, flop += f;
      k.time.wall += call.wall, k.time.cpu += call.cpu;
    });
    watched = timed(pass);
  }
  const int threads = num_threads();
  std::cout << std::fixed << model->name << ": " << model->what << ", batch " << o.batch << ", " << o.dtype << ", "
            << threads << " threads, kernels for " << cpu::name(cpu::best()) << ", random weights\n"
            << std::setprecision(3) << "  pass " << best.wall << " s, processor time / threads " << best.cpu / threads
            << " s\n"
            << std::setprecision(1) << "  " << flop / 1e9 << " GFLOP at " << flop / best.wall / 1e9
            << " GFLOP/s: " << std::setprecision(0) << 100 * flop / best.wall / roof.rate.wall << "% of the "
            << roof.rate.wall / 1e9 << " GFLOP/s of " << roof.unit.name << ", by processor time "
            << 100 * flop / best.cpu / roof.rate.cpu << "%; a 1536^3 product reaches " << product / 1e9 << " GFLOP/s\n";
  if (split > 0)
    std::cout << "  products of float32 as six of bfloat16 on tiles: at most " << split / 1e9 << " GFLOP/s\n";
  std::cout << "  weights " << weights << " MB, at most " << peak_memory - weights
            << " MB of tensors above them; the process held at most " << resident << " MB\n";
  print_kinds(kinds, watched, roof.rate);
}

}  // namespace

void add_bench(CLI::App& program) {
  auto* command =
      program.add_subcommand("bench", "Time one pass of a model with random weights, and where the time goes");
  auto o = std::make_shared<BenchOptions>();
  command->add_option("name", o->name, "A model, such as sd15-unet or sd15; lists them without it");
  command->add_option("--dtype", o->dtype, "f32 or bf16")->capture_default_str();
  command->add_option("--batch", o->batch, "Samples in a pass")->capture_default_str();
  command->add_option("--repeats", o->repeats, "Passes, of which the fastest counts")->capture_default_str();
  command->footer("Examples:\n  scaffolding bench\n  scaffolding bench sd15-unet --dtype bf16 --repeats 5");
  command->callback([o] {
    if (!o->name.empty()) return run(*o);
    for (auto& m : bench_models()) std::cout << std::left << std::setw(12) << m.name << m.what << "\n";
  });
}

}  // namespace sf::cli
