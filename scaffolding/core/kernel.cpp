#include "scaffolding/core/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/provider.h"

namespace sf {

static KernelTableBase*& head() {
  static KernelTableBase* first = nullptr;
  return first;
}
KernelTableBase* KernelTableBase::first() { return head(); }

void KernelTableBase::add(DeviceType d, KernelEntry e) {
  bool known = false;
  for (int c : count_) known |= c > 0;
  if (!known) {
    next_ = head();
    head() = this;
  }
  KernelEntry* v = entries_[int(d)];
  int& n = count_[int(d)];
  SF_CHECK_AS(RuntimeError, n < kMax, "kernel table ", name_, " is full while adding ", e.provider);
  int at = 0;
  while (at < n && v[at].priority >= e.priority) ++at;
  for (int i = n; i > at; --i) v[i] = v[i - 1];
  v[at] = e;
  ++n;
}

std::string provider_label(const KernelEntry& e) { return e.isa ? std::string(e.provider) + "-" + e.isa : e.provider; }

// ---- pinning and tracing: the slow path of find() and of a kernel call

namespace {
struct Pin {
  std::string table, provider;
};
std::vector<Pin>& pins() {
  static std::vector<Pin> p = [] {
    std::vector<Pin> v;
    std::string s = env::text("SF_PROVIDER");
    for (size_t at = 0; at < s.size();) {
      size_t comma = std::min(s.find(',', at), s.size());
      std::string item = s.substr(at, comma - at);
      size_t colon = item.find(':');
      SF_CHECK(colon != item.npos, "SF_PROVIDER: must be table:provider,..., got '", s, "'");
      v.push_back({item.substr(0, colon), item.substr(colon + 1)});
      at = comma + 1;
    }
    return v;
  }();
  return p;
}
bool trace_on() {
  static bool on = env::flag("SF_TRACE");
  return on;
}
std::function<void(const KernelCall&)>& watcher() {
  static std::function<void(const KernelCall&)> report;
  return report;
}
double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
bool matches(const Pin& p, const KernelTableBase& t, const KernelEntry& e) {
  std::string_view table = t.name();
  return (p.table == "*" || table.starts_with(p.table)) &&
         (p.provider == e.provider || p.provider == provider_label(e));
}
}  // namespace

bool detail::kernel_watch = false;
__attribute__((constructor)) static void start_watch() {
  if (std::getenv("SF_TRACE") || std::getenv("SF_PROVIDER")) detail::kernel_watch = true;
}

void pin_provider(const std::string& table, const std::string& provider) {
  pins().push_back({table, provider});
  detail::kernel_watch = true;
}
void unpin_providers() {
  pins().clear();
  detail::kernel_watch = trace_on() || watcher();
}

KernelWatcher::KernelWatcher(std::function<void(const KernelCall&)> report) {
  SF_CHECK_AS(RuntimeError, !watcher(), "KernelWatcher: there is one already");
  watcher() = std::move(report);
  detail::kernel_watch = true;
}
KernelWatcher::~KernelWatcher() {
  watcher() = nullptr;
  detail::kernel_watch = trace_on() || !pins().empty();
}

const KernelEntry* detail::pick_pinned(const KernelTableBase& t, DeviceType d, const void* args,
                                       bool (*ask)(const KernelEntry&, const void*)) {
  for (auto& p : pins())
    for (int i = 0; i < t.count(d); ++i)
      if (matches(p, t, t.entry(d, i)) && ask(t.entry(d, i), args)) return &t.entry(d, i);
  for (int i = 0; i < t.count(d); ++i)
    if (ask(t.entry(d, i), args)) return &t.entry(d, i);
  if (trace_on()) std::fprintf(stderr, "sf_trace %-28s no provider: reference\n", t.name());
  return nullptr;
}

void detail::trace_call(const KernelTableBase& t, const KernelEntry& e, const void* args) {
  auto call = reinterpret_cast<void (*)(const void*)>(e.fn);
  if (!trace_on() && !watcher()) return call(args);
  static thread_local int64_t calls = 0;
  const int64_t earlier = calls;
  const double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  call(args);
  const bool composed = calls != earlier;
  ++calls;
  const double took = seconds_of(CLOCK_MONOTONIC) - wall;
  if (watcher()) watcher()({t, e, args, took, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu, composed});
  if (trace_on())
    std::fprintf(stderr, "sf_trace %-28s %-18s %10.1f us\n", t.name(), provider_label(e).c_str(), took * 1e6);
}

}  // namespace sf
