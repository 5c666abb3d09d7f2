#include "scaffolding/io/hub/unreachable.h"

#include <chrono>
#include <map>
#include <mutex>

namespace sf::io {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kRemembered{30};

struct Failure {
  Clock::time_point when;
  std::string why;
};

struct Failures {
  std::mutex lock;
  std::map<std::string, Failure> of;  // by origin
};
Failures& failures() {
  static Failures all;
  return all;
}

}  // namespace

void remember_unreachable(const std::string& origin, const std::string& why) {
  std::lock_guard hold(failures().lock);
  failures().of[origin] = {Clock::now(), why};
}

std::string why_unreachable(const std::string& origin) {
  std::lock_guard hold(failures().lock);
  auto found = failures().of.find(origin);
  if (found == failures().of.end()) return "";
  if (Clock::now() - found->second.when < kRemembered) return found->second.why;
  failures().of.erase(found);
  return "";
}

}  // namespace sf::io
