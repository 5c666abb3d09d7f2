#include "scaffolding/server/metrics.h"

#include <cstdint>
#include <cstdio>

namespace sf::server {

namespace {

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

std::string head(const std::string& name, const char* kind, const char* help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n";
}

}  // namespace

void Metrics::Times::add(double seconds) {
  ++count, sum += seconds;
  for (size_t i = 0; i < kBounds.size(); ++i) below[i] += seconds <= kBounds[i];
}

std::string Metrics::Times::text(const std::string& name, const char* help) const {
  std::string out = head(name, "histogram", help);
  for (size_t i = 0; i < kBounds.size(); ++i)
    out += name + "_bucket{le=\"" + number(kBounds[i]) + "\"} " + std::to_string(below[i]) + "\n";
  out += name + "_bucket{le=\"+Inf\"} " + std::to_string(count) + "\n";
  return out + name + "_sum " + number(sum) + "\n" + name + "_count " + std::to_string(count) + "\n";
}

void Metrics::count_request(const std::string& method, int status, double seconds) {
  static constexpr const char* kMethods[] = {"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS"};
  std::string known = "other";  // a stranger's words are no label
  for (auto* m : kMethods)
    if (method == m) known = m;
  std::lock_guard lock(mutex_);
  ++requests_[{known, status}];
  request_times_.add(seconds);
}

void Metrics::count_job(const std::string& state) {
  std::lock_guard lock(mutex_);
  ++jobs_[state];
}

void Metrics::count_step(double seconds, size_t pictures) {
  std::lock_guard lock(mutex_);
  picture_steps_ += pictures;
  step_times_.add(seconds);
}

void Metrics::count_picture() {
  std::lock_guard lock(mutex_);
  ++pictures_;
}

std::string Metrics::text(const Gauges& now) const {
  std::lock_guard lock(mutex_);
  std::string out = head("scaffolding_http_requests_total", "counter", "Answered requests.");
  for (auto& [key, n] : requests_)
    out += "scaffolding_http_requests_total{method=\"" + key.first + "\",status=\"" + std::to_string(key.second) +
           "\"} " + std::to_string(n) + "\n";
  out += request_times_.text("scaffolding_http_request_seconds", "From a request's head to its answer.");
  out += head("scaffolding_jobs_total", "counter", "Jobs by what became of them.");
  for (auto& [state, n] : jobs_) out += "scaffolding_jobs_total{state=\"" + state + "\"} " + std::to_string(n) + "\n";
  out += head("scaffolding_pictures_total", "counter", "Pictures that were made.");
  out += "scaffolding_pictures_total " + std::to_string(pictures_) + "\n";
  out += step_times_.text("scaffolding_step_seconds", "Calls of the denoiser, which pictures share.");
  out += head("scaffolding_picture_steps_total", "counter", "Steps of pictures.");
  out += "scaffolding_picture_steps_total " + std::to_string(picture_steps_) + "\n";
  auto gauge = [&](const char* name, const char* help, size_t value) {
    out += head(name, "gauge", help) + name + " " + std::to_string(value) + "\n";
  };
  gauge("scaffolding_jobs_waiting", "Jobs that wait.", now.waiting);
  gauge("scaffolding_jobs_running", "Jobs that run, or were overtaken.", now.running);
  gauge("scaffolding_connections", "Open connections.", now.connections);
  gauge("scaffolding_request_body_bytes", "Memory of requests' bodies.", now.body_bytes);
  gauge("scaffolding_models_resident", "Models in memory.", now.resident_models);
  gauge("scaffolding_model_bytes", "Memory of their weights.", now.model_bytes);
  return out;
}

}  // namespace sf::server
