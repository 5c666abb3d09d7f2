// Counts and times of the server, as Prometheus reads them. Locked: any thread may count.
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <string>

namespace sf::server {

class Metrics {
 public:
  void count_request(const std::string& method, int status, double seconds);
  void count_job(const std::string& state);
  void count_step(double seconds, size_t pictures);
  void count_picture();

  struct Gauges {
    size_t waiting = 0, running = 0, connections = 0, body_bytes = 0, resident_models = 0, model_bytes = 0;
  };
  std::string text(const Gauges& now) const;  // text format 0.0.4

  static constexpr std::array kBounds{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0};

 private:
  struct Times {
    std::array<uint64_t, kBounds.size()> below{};
    uint64_t count = 0;
    double sum = 0;
    void add(double seconds);
    std::string text(const std::string& name, const char* help) const;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  std::map<std::string, uint64_t> jobs_;
  uint64_t pictures_ = 0, picture_steps_ = 0;
  Times request_times_, step_times_;
};

}  // namespace sf::server
