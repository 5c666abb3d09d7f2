#include "scaffolding/server/log.h"

#include <chrono>
#include <ctime>

#include "scaffolding/io/json.h"

namespace sf::server {

void Log::write(const char* event, nlohmann::ordered_json details) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], time[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(time, sizeof time, "%s.%03dZ", date, int(ms));
  nlohmann::ordered_json line{{"time", time}, {"event", event}};
  line.update(details);
  const std::string text = io::tolerant_json_text(line) + "\n";
  std::lock_guard lock(mutex_);
  std::fwrite(text.data(), 1, text.size(), to_);
  std::fflush(to_);
}

}  // namespace sf::server
