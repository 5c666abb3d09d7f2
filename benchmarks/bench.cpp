// scaffolding_bench: times rows and prints one JSON object per line.
//   scaffolding_bench [--filter TEXT] [--threads N] [--repeats N] [--seconds S] [--quick]
//   scaffolding_bench --list | --peaks | --serve      (--serve reads names of rows from stdin: benchmarks/table.py)
#include "benchmarks/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <mutex>

#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/backend/cpu/peak.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/random/random.h"

namespace sf::bench {

static std::vector<Row>& rows() {
  static std::vector<Row> list;
  return list;
}
Goal share_of_int8(double vectors, double tiles) { return share(cpu::has(cpu::Isa::avx512amx) ? tiles : vectors); }
Rows::Rows(void (*add)(std::vector<Row>&)) { add(rows()); }

struct Factors {
  DType dtype;
  Roof roof;
  const char* name;
};
static constexpr Factors kFactors[] = {{kFloat32, Roof::F32, "f32"},
                                       {kBFloat16, Roof::BF16, "bf16"},
                                       {kFloat16, Roof::F16, "f16"},
                                       {kInt8, Roof::Int8, "int8"}};
static const Factors& factors_of(DType t) {
  for (const Factors& f : kFactors)
    if (f.dtype == t) return f;
  SF_CHECK(false, "scaffolding_bench: there is no roof for ", t);
}
Roof roof_of(DType t) { return factors_of(t).roof; }
std::string short_name(DType t) { return factors_of(t).name; }

Tensor random(const Shape& size, DType dtype, bool requires_grad) {
  return randn(size).to(dtype).requires_grad_(requires_grad);
}
Tensor random_channels_last(const Shape& size, DType dtype, bool requires_grad) {
  return randn(size).to(dtype).contiguous(MemoryFormat::ChannelsLast).requires_grad_(requires_grad);
}

namespace {

struct Settings {
  std::string filter;
  int threads = num_threads();
  int repeats = 5;
  double seconds = 0.15;  // a sample lasts at least this long
  bool quick = false;
};

// Wall time, and processor time of all threads: the second is steadier where other programs run too.
struct Time {
  double wall = 0, cpu = 0;
  Time operator-(const Time& o) const { return {wall - o.wall, cpu - o.cpu}; }
};
Time now() {
  timespec w, c;
  clock_gettime(CLOCK_MONOTONIC, &w);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c);
  return {double(w.tv_sec) + 1e-9 * double(w.tv_nsec), double(c.tv_sec) + 1e-9 * double(c.tv_nsec)};
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

// Calls per sample such that one lasts `seconds`.
int64_t calls_for(const std::function<void()>& call, double seconds) {
  call();  // packs weights, fills caches
  for (int64_t n = 1;; n *= 4) {
    Time start = now();
    for (int64_t i = 0; i < n; ++i) call();
    double took = (now() - start).wall;
    if (took > seconds / 8 || n > (int64_t(1) << 40))
      return std::max<int64_t>(1, int64_t(double(n) * seconds / std::max(took, 1e-9)));
  }
}
Time sample(const std::function<void()>& call, int64_t calls) {
  Time start = now();
  for (int64_t i = 0; i < calls; ++i) call();
  Time took = now() - start;
  return {took.wall / double(calls), took.cpu / double(calls)};
}

// ---- roofs

const std::vector<cpu::Peak>& peaks() {
  static const std::vector<cpu::Peak> measured = cpu::measured_peaks();
  return measured;
}

// Bytes that no cache holds: four times the last level, at most 1 GiB.
double cold_bytes() {
  long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::min(4.0 * double(last > 0 ? last : 32 << 20), double(1 << 30));
}
// How many times a row's bytes go into those.
int64_t turns(double bytes) { return std::max<int64_t>(2, int64_t(std::ceil(cold_bytes() / bytes))); }

// Bytes read and written per second by memcpy, each thread copying its share of `bytes` / 2;
// one of `turns` places in turn.
class Copier {
 public:
  Copier(double bytes, int64_t turns)
      : n_(int64_t(bytes / 2)), turns_(turns), from_(size_t(n_ * turns), 'a'), to_(size_t(n_ * turns), 'b') {}
  void operator()() {
    const int64_t at = n_ * (next_++ % turns_);
    parallel_for(n_, 1 << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to_.data() + at + begin, from_.data() + at + begin, size_t(end - begin));
    });
    asm volatile("" : : "r"(to_.data()) : "memory");
  }

 private:
  int64_t n_, turns_, next_ = 0;
  std::vector<char> from_, to_;
};

// The unit that bounds the row, or null.
const cpu::Unit* roof_unit(Roof roof) {
  for (const Factors& f : kFactors)
    if (f.roof == roof) return &cpu::roof_of(peaks(), f.dtype).unit;
  return nullptr;
}

// Rates of a row's roof, measured again at each call.
std::function<Time()> roof_meter(const Row& row, double seconds) {
  if (row.roof == Roof::None) return [] { return Time{}; };
  if (row.roof == Roof::Copy) {
    auto copier = std::make_shared<Copier>(row.work, seconds > 0 ? turns(row.work) : 1);
    int64_t calls = calls_for([=] { (*copier)(); }, seconds / 3);
    return [=, work = row.work] {
      Time t = sample([=] { (*copier)(); }, calls);
      return Time{work / t.wall, work / t.cpu};
    };
  }
  return [unit = roof_unit(row.roof)] {
    const cpu::Rate rate = cpu::rate_of(*unit, 0.01);
    return Time{rate.wall, rate.cpu};
  };
}

// ---- one row

std::function<void()> in_turn(const Row& row) {
  auto calls = std::make_shared<std::vector<std::function<void()>>>();
  for (int64_t i = turns(row.work); i > 0; --i) calls->push_back(row.prepare());
  for (auto& call : *calls) call();  // every output is there before time counts
  return [calls, next = size_t(0)]() mutable { (*calls)[next++ % calls->size()](); };
}

const char* kGoals[] = {"none", "share", "speedup", "seconds"};
const char* kRoofs[] = {"none", "f32", "bf16", "f16", "int8", "copy"};

// Of one more call, which nobody times: "gemm native avx512amx", those that took longest first. Kernels made of others
// come last.
std::vector<std::string> kernels_of(const std::function<void()>& call) {
  std::map<std::string, double> took;
  std::mutex lock;  // data is loaded and gradients are made on other threads
  {
    KernelWatcher watcher([&](const KernelCall& k) {
      const std::string name = std::string(k.table.name()) + " " + k.entry.provider;
      std::lock_guard held(lock);
      took[k.entry.isa ? name + " " + k.entry.isa : name] += k.composed ? 0 : k.wall;
    });
    call();
  }
  std::vector<std::string> names;
  for (const auto& [name, seconds] : took) names.push_back(name);
  std::stable_sort(names.begin(), names.end(), [&](auto& a, auto& b) { return took[a] > took[b]; });
  return names;
}
std::string json_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return "[" + text + "]";
}

void measure(const Row& row, const Settings& s) {
  int before = num_threads();
  set_num_threads(row.threads ? row.threads : s.threads);
  {
    double seconds = s.quick ? 0 : s.seconds;
    std::function<void()> call = row.roof == Roof::Copy && !s.quick ? in_turn(row) : row.prepare();
    int64_t calls = calls_for(call, seconds);
    auto roof = roof_meter(row, seconds);
    std::vector<double> wall, cpu, peak, share_wall, share_cpu;
    for (int r = 0; r < (s.quick ? 1 : s.repeats); ++r) {
      Time p = roof(), t = sample(call, calls), q = roof();
      wall.push_back(t.wall);
      cpu.push_back(t.cpu);
      if (row.roof == Roof::None) continue;
      Time around{(p.wall + q.wall) / 2, (p.cpu + q.cpu) / 2};
      peak.push_back(around.wall);
      share_wall.push_back(row.work / t.wall / around.wall);
      share_cpu.push_back(row.work / t.cpu / around.cpu);
    }
    const cpu::Unit* unit = roof_unit(row.roof);
    std::printf(
        "{\"name\": \"%s\", \"wall\": %.4g, \"cpu\": %.4g, \"work\": %.6g, \"roof\": \"%s\", \"peak\": %.4g, "
        "\"share\": %.4g, \"share_cpu\": %.4g, "
        "\"goal\": \"%s\", \"goal_value\": %g, \"threads\": %d, \"unit\": \"%s\", \"kernels\": %s}\n",
        row.name.c_str(), median(wall), median(cpu), row.work, kRoofs[int(row.roof)], median(peak), median(share_wall),
        median(share_cpu), kGoals[int(row.goal.kind)], row.goal.value, num_threads(),
        unit                     ? unit->name
        : row.roof == Roof::Copy ? "memcpy"
                                 : "",
        json_list(kernels_of(call)).c_str());
    std::fflush(stdout);
  }
  set_num_threads(before);
}

void print_peaks(const Settings& s) {
  set_num_threads(s.threads);
  for (const auto& [unit, rate] : peaks()) {
    std::string types;
    for (const Factors& f : kFactors)
      if (cpu::computes(unit, f.dtype)) types.append(types.empty() ? "" : " ").append(f.name);
    std::printf("{\"peak\": \"%s\", \"instruction\": \"%s\", \"types\": \"%s\", \"operations_per_second\": %.4g}\n",
                unit.name, unit.instruction, types.c_str(), rate.wall);
  }
  if (const double split = cpu::split_float32_rate(peaks()))
    std::printf("{\"peak\": \"float32 as six products of AMX bfloat16\", \"operations_per_second\": %.4g}\n", split);
  Copier copier(cold_bytes(), 1);
  std::vector<double> rates;
  for (int r = 0; r < (s.quick ? 1 : 9); ++r) rates.push_back(cold_bytes() / sample([&] { copier(); }, 1).wall);
  std::printf("{\"peak\": \"memcpy past the caches\", \"bytes_per_second\": %.4g}\n", median(rates));
  std::printf("{\"processor\": \"%s\", \"isa\": \"%s\", \"threads\": %d}\n", cpu::processor_name().c_str(),
              cpu::name(cpu::best()), num_threads());
}

// Rows that take a second or more on two cores are left out of a quick run.
bool is_chosen(const Row& r, const Settings& s) {
  bool heavy = r.roof != Roof::None && r.roof != Roof::Copy && r.work > 5e9;
  return r.name.find(s.filter) != std::string::npos && !(s.quick && heavy);
}

int run(int argc, char** argv) {
  Settings s;
  bool list = false, serve = false, peaks = false;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    auto value = [&]() -> std::string {
      SF_CHECK(i + 1 < argc, "scaffolding_bench: ", a, " needs a value");
      return argv[++i];
    };
    if (a == "--filter") s.filter = value();
    else if (a == "--threads") s.threads = std::stoi(value());
    else if (a == "--repeats") s.repeats = std::stoi(value());
    else if (a == "--seconds") s.seconds = std::stod(value());
    else if (a == "--quick") s.quick = true;
    else if (a == "--list") list = true;
    else if (a == "--peaks") peaks = true;
    else if (a == "--serve") serve = true;
    else SF_CHECK(false, "scaffolding_bench: unknown argument ", a, "; see the head of benchmarks/bench.cpp");
  }
  if (peaks) return print_peaks(s), 0;
  if (serve) {
    for (std::string name; std::getline(std::cin, name);)
      for (const Row& r : rows())
        if (r.name == name) measure(r, s);
    return 0;
  }
  for (const Row& r : rows()) {
    if (!is_chosen(r, s)) continue;
    if (list) std::printf("%s\n", r.name.c_str());
    else measure(r, s);
  }
  return 0;
}

}  // namespace
}  // namespace sf::bench

int main(int argc, char** argv) {
  try {
    return sf::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
