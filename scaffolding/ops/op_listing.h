// What scaffolding_tests writes besides test results.
#pragma once
#include <string>

namespace sf::test {

void dump_samples(const std::string& folder);     // <op>.safetensors and <op>.json per op: the input of make_golden.py
void write_table(const std::string& path);        // docs/ops.md
void write_environment(const std::string& path);  // docs/env.md
void write_autocast(const std::string& path);     // docs/autocast.md

// Time of a call and of its backward pass for every sample of the ops whose name contains `filter`,
// by dtype and provider.
void time_samples(const std::string& filter);

}  // namespace sf::test
