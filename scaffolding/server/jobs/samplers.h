// What the program brings along: samplers by their short names and those of other programs. Plain functions that any
// thread may call.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::server {

struct Samplers {
  std::vector<std::string> names;
  std::function<std::string(const std::string& name)> named;  // the short name; ValueError for one that is not here
  struct Schedule {
    std::string sampler;
    std::vector<std::string> options;  // field=value
  };
  std::function<Schedule(const std::string& name)> schedule;  // "Karras"; ValueError for one that is not here
  // "" is the model's own; always another object
  std::function<std::unique_ptr<diffusion::Scheduler>(const std::string& name, diffusion::Scheduler& own,
                                                      const std::vector<std::string>& options)>
      make;
};

}  // namespace sf::server
