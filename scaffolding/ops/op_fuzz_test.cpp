// Calls every registered op with random arguments: wrong shapes, dtypes, devices and numbers of arguments, sizes of
// zero and of 2^40, NaN and infinity, strided and expanded tensors, numbers at the ends of their range. An op may
// refuse with sf::Error or compute; anything else (a crash, std::bad_alloc, a sanitizer's report,
// a call that takes seconds) fails.
// Half of the calls are samples of the op's own test with some arguments replaced: those get past the checks.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <random>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/op_check.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace sf::test {

namespace {

constexpr size_t kMemory = size_t(64) << 20;  // above what is in use: refusals of large results are part of the test
constexpr double kSecondsForAll = 12, kSecondsForOne = 10;

// ---- what runs now, for the report of a crash

char g_now[4096] = "none";

void report_crash() {
  const char* parts[] = {"\nfuzz: the process died in ", g_now, "\n"};
  for (const char* p : parts) [[maybe_unused]] auto ignored = write(STDERR_FILENO, p, std::strlen(p));
}

void on_signal(int number) {
  report_crash();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

class CrashReport {
 public:
  CrashReport() {
    if (__sanitizer_set_death_callback) {
      __sanitizer_set_death_callback(report_crash);
      return;
    }
    for (size_t i = 0; i < std::size(kSignals); ++i) old_[i] = std::signal(kSignals[i], on_signal);
  }
  ~CrashReport() {
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(nullptr);
    else
      for (size_t i = 0; i < std::size(kSignals); ++i) std::signal(kSignals[i], old_[i]);
  }

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGFPE, SIGABRT, SIGILL, SIGBUS};
  void (*old_[5])(int) = {};
};

// Tensors beyond kMemory are refused. Memory that ops take by other ways ends in std::bad_alloc,
// not in a dying machine;
// AddressSanitizer reserves terabytes of addresses and has its own limit (main_test.cpp).
class MemoryLimits {
 public:
  MemoryLimits() {
    cpu::set_memory_limit(cpu::allocated_bytes() + kMemory);
    if (__sanitizer_set_death_callback || getrlimit(RLIMIT_AS, &old_) != 0) return;
    rlimit tighter = old_;
    tighter.rlim_cur = std::min<rlim_t>(old_.rlim_max, rlim_t(8) << 30);
    limited_ = setrlimit(RLIMIT_AS, &tighter) == 0;
  }
  ~MemoryLimits() {
    cpu::set_memory_limit(0);
    if (limited_) setrlimit(RLIMIT_AS, &old_);
  }

 private:
  rlimit old_{};
  bool limited_ = false;
};

std::string text_of(const Value& v) {
  struct Text {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const Tensor& t) const {
      if (!t) return "Tensor()";
      return std::string(name(t.dtype())) + str(t.shape()) + "/" + str(t.strides()) +
             (t.device().is_cpu() ? "" : "@" + t.device().str()) + (t.requires_grad() ? "*" : "");
    }
    std::string operator()(bool b) const { return b ? "True" : "False"; }
    std::string operator()(int64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const { return std::to_string(d); }
    std::string operator()(const std::string& s) const { return "'" + s.substr(0, 40) + "'"; }
    std::string operator()(const Shape& s) const { return str(s); }
    std::string operator()(const Floats& f) const { return std::to_string(f.size()) + " numbers"; }
    std::string operator()(const Tensors& ts) const {
      std::string s = "(";
      for (auto& t : ts) s += (*this)(t) + " ";
      return s + ")";
    }
    std::string operator()(DType t) const { return std::string(name(t)); }
    std::string operator()(const Device& d) const { return d.str(); }
    std::string operator()(const Generator&) const { return "generator"; }
  };
  return std::visit(Text{}, v);
}

// ---- random arguments

class Fuzzer {
 public:
  Fuzzer(uint64_t seed, uint64_t number) : random_(seed * 1000003 + number) {
    meta_ = chance(8);
    base_ = shape();
  }

  bool chance(int percent) { return int64_t(random_() % 100) < percent; }
  int64_t below(int64_t n) { return int64_t(random_() % uint64_t(n)); }
  template <class T, size_t N> T one_of(const T (&values)[N]) { return values[below(N)]; }

  std::vector<Value> arguments(const OpEntry& op, const OpTest* samples) {
    std::vector<Value> args;
    if (samples && !samples->all.empty() && chance(50)) {
      args = map_tensors(complete(op, *samples->all[size_t(below(int64_t(samples->all.size())))]), [](const Tensor& t) {
        Tensor copy = empty_like(t);  // in-place ops must not change the samples
        copy_bytes(copy, t);
        return copy;
      });
      for (size_t i = 0; i < args.size(); ++i)
        if (chance(25)) args[i] = argument(op.args[i]);
        else if (chance(35)) args[i] = altered(args[i]);
    } else {
      for (auto& a : op.args) args.push_back(a.has_default && chance(40) ? a.fallback : argument(a));
    }
    if (chance(2) && !args.empty()) args.pop_back();
    if (chance(1)) args.push_back(int64_t(0));
    return args;
  }

 private:
  int64_t size() {
    if (meta_ && chance(30))
      return one_of<int64_t>({int64_t(1) << 20, int64_t(1) << 31, int64_t(1) << 40, (int64_t(1) << 62) + 1});
    return chance(10) ? 0 : chance(5) ? 17 + below(60) : 1 + below(6);
  }
  Shape shape() {
    Shape s;
    int64_t n = chance(8) ? 6 + below(7) : below(6);
    for (int64_t i = 0; i < n; ++i) s.push_back(i < 6 ? size() : 1);
    return s;
  }
  DType dtype() { return chance(55) ? kFloat32 : DType(below(kNumDTypes)); }
  int64_t integer() {
    if (chance(80)) return below(9) - 3;
    return one_of<int64_t>(
        {100, -100, 1 << 16, INT32_MAX, INT32_MIN, int64_t(1) << 40, INT64_MAX, INT64_MIN, INT64_MIN + 1});
  }
  double real() {
    constexpr double inf = std::numeric_limits<double>::infinity();
    return chance(60)
               ? double(below(2000) - 1000) / 256
               : one_of<double>({0, -0.0, 1, -1, 0.5, 1e-5, 1e-320, 1e30, 1e308, -1e308, inf, -inf, std::nan("")});
  }

  Tensor filled(const Shape& sizes, DType t) {
    Tensor x = empty(sizes, is_floating(t) ? kFloat64 : kInt64);
    bool odd = chance(15);  // special values
    for (int64_t i = 0; i < x.numel(); ++i)
      if (is_floating(t)) x.data<double>()[i] = odd ? real() : double(below(2000) - 1000) / 256;
      else x.data<int64_t>()[i] = odd ? integer() : below(4);
    return to_dtype(x, t);
  }
  // Not contiguous, expanded, channels-last or at an offset; the shape may change.
  Tensor relaid(Tensor x) {
    int64_t n = x.ndim();
    switch (below(6)) {
      case 0: return n >= 2 ? x.transpose(below(n), below(n)) : x;
      case 1: return n >= 1 ? x.slice(below(n), {}, {}, 2) : x;
      case 2: return n >= 1 && x.size(n - 1) > 1 ? x.narrow(n - 1, 1, x.size(n - 1) - 1) : x;
      case 3: return n < kMaxDims ? x.unsqueeze(0).expand(Shape(x.shape())) : x;
      case 4: return n >= 3 && n <= 5 ? x.contiguous(MemoryFormat::ChannelsLast) : x;
      default:
        return n < kMaxDims && x.numel() < 1000 ? x.unsqueeze(n).expand(with_back(x.shape(), 1 + below(300))) : x;
    }
  }
  static Shape with_back(Shape s, int64_t v) {
    s.push_back(v);
    return s;
  }
  Tensor tensor() {
    Shape s = base_;
    if (chance(20)) s = shape();
    else if (chance(30) && !s.empty()) s[below(s.size())] = chance(50) ? 1 : size();
    else if (chance(15) && !s.empty()) s.erase(0);
    if (meta_) return empty(s, dtype(), Device::Meta);
    Tensor x = filled(s, dtype());
    if (chance(30)) x = relaid(x);
    if (chance(2)) x = x.to(Device::Meta);
    if (chance(25) && is_real(x)) x = x.detach().requires_grad_();
    return x;
  }

  Value of_kind(ArgKind kind) {
    static const std::string words[] = {"",
                                        "none",
                                        "mean",
                                        "sum",
                                        "tanh",
                                        "same",
                                        "reflect",
                                        "replicate",
                                        "circular",
                                        "constant",
                                        "nearest",
                                        "bilinear",
                                        "trilinear",
                                        "area",
                                        "floor",
                                        "trunc",
                                        "ij",
                                        "xy",
                                        "i",
                                        "ij,jk->ik",
                                        "...i->i",
                                        "\xc3\xa9\xff",
                                        std::string(3000, 'x')};
    switch (kind) {
      case ArgKind::Tensor: return chance(3) ? Tensor() : tensor();
      case ArgKind::Tensors: {
        Tensors ts;
        for (int64_t n = below(4); n > 0; --n) ts.push_back(chance(3) ? Tensor() : tensor());
        return ts;
      }
      case ArgKind::Int: return integer();
      case ArgKind::Float: return real();
      case ArgKind::Bool: return chance(50);
      case ArgKind::Scalar: return chance(40) ? Value(integer()) : chance(80) ? Value(real()) : Value(chance(50));
      case ArgKind::Ints: {
        Shape s;
        bool plain = chance(85);
        for (int64_t n = chance(5) ? below(kMaxDims + 1) : below(4); n > 0; --n)
          s.push_back(plain ? below(5) - (chance(20) ? 2 : 0) : integer());
        return s;
      }
      case ArgKind::Floats: {
        Floats f;
        for (int64_t n = below(5); n > 0; --n) f.push_back(real());
        return f;
      }
      case ArgKind::Str: return words[below(std::size(words))];
      case ArgKind::DType: return dtype();
      case ArgKind::Device:
        return one_of<Device>(
            {Device(Device::CPU), Device(Device::Meta), Device(Device::MPS), Device(Device::CUDA, 99)});
      default: return std::monostate{};
    }
  }
  Value argument(const ArgInfo& a) {
    if (chance(3)) return of_kind(ArgKind(below(12)));
    if (chance(a.optional ? 25 : 2)) return std::monostate{};
    return of_kind(a.kind);
  }
  // The same tensor in another dtype, layout or on the tape; other values as they are.
  Value altered(const Value& v) {
    auto* t = std::get_if<Tensor>(&v);
    if (!t || !*t || !t->device().is_cpu()) return v;
    if (chance(30)) return to_dtype(*t, dtype());
    if (chance(40)) return relaid(*t);
    if (chance(30)) return filled(t->shape(), t->dtype());
    return is_real(*t) ? Value(t->detach().requires_grad_()) : v;
  }

  std::mt19937_64 random_;
  bool meta_;
  Shape base_;
};

// Reads every result and walks the tape backwards, so that a wrong pointer or a broken closure shows.
void use(const Value& result, bool backward) {
  Tensors ys = outputs(result);
  for (auto& y : ys)
    if (y && y.device().is_cpu() && y.numel() <= 1 << 16) y.to_vector();
  for (auto& y : ys)
    if (backward && y && is_real(y) && y.requires_grad()) return y.backward(empty_like(y).fill_(1));
}

TEST(Fuzz, every_op_computes_or_refuses_with_an_error) {
  std::map<std::string, OpTest*> tests;
  for (OpTest* t : op_tests()) {
    if (t->all.empty() && t->refused.empty()) t->samples();
    tests[t->name] = t;
  }
  uint64_t seed = uint64_t(env::integer("SF_FUZZ_SEED"));
  int64_t wanted = env::integer("SF_FUZZ_CASES"), cases = wanted > 0 ? wanted : int64_t(all_ops().size()) * 60;
  MemoryLimits limits;
  CrashReport report;
  using Clock = std::chrono::steady_clock;
  auto seconds_since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  auto start = Clock::now();
  int64_t done = 0, refused = 0;
  for (; done < cases && (wanted > 0 || seconds_since(start) < kSecondsForAll); ++done) {
    const OpEntry& op = *all_ops()[size_t(done) % all_ops().size()];
    std::string what = op.name + "(", shown = " [seed " + std::to_string(seed) + ", case " + std::to_string(done) + "]";
    auto began = Clock::now();
    try {
      std::snprintf(g_now, sizeof g_now, "making arguments for %s%s", what.c_str(), shown.c_str());
      Fuzzer fuzzer(seed, uint64_t(done));
      auto args = fuzzer.arguments(op, tests.count(op.name) ? tests[op.name] : nullptr);
      for (auto& a : args) what += text_of(a) + ", ";
      what += ")" + shown;
      std::snprintf(g_now, sizeof g_now, "%s", what.c_str());
      use(call_op(op.name, args), fuzzer.chance(70));
    } catch (const Error& e) {
      ++refused;
      EXPECT_GT(std::strlen(e.what()), 8u) << what << ": an error without a sentence";
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << " threw " << typeid(e).name() << ": " << e.what();
    } catch (...) {
      ADD_FAILURE() << what << " threw something that is no std::exception";
    }
    double took = seconds_since(began);
    EXPECT_LT(took, kSecondsForOne) << what;
  }
  std::printf("fuzz: seed %llu, %lld calls of %zu ops, %lld refused, %.1f s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(done), all_ops().size(), static_cast<long long>(refused), seconds_since(start));
  EXPECT_GT(done - refused, done / 20)
      << "hardly a call passed the checks: the arguments are too random to test anything";
}

TEST(Fuzz, the_memory_limit_refuses_and_recovers) {
  cpu::empty_cache();  // a block that a test before this one has left is no new memory
  cpu::set_memory_limit(cpu::allocated_bytes() + (size_t(8) << 20));
  EXPECT_THROW(empty({4 << 20}, kFloat32), RuntimeError);
  EXPECT_EQ(empty({1 << 20}, kUInt8).numel(), 1 << 20);
  cpu::set_memory_limit(0);
  EXPECT_EQ(empty({4 << 20}, kFloat32).numel(), 4 << 20);
}

}  // namespace
}  // namespace sf::test
