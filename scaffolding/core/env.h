// Every SF_* environment variable, declared in one place with its help text. Read once, at first use.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sf::env {

struct Variable {
  const char* name;
  const char* fallback;
  const char* help;
};
const std::vector<Variable>& all();

std::string text(const char* name);  // the value, or the declared fallback; undeclared names are a RuntimeError
int64_t integer(const char* name);
bool flag(const char* name);  // "1", "true", "on", "yes"

}  // namespace sf::env
