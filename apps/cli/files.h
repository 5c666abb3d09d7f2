// What files are, and how numbers are written for people. Functions only.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "scaffolding/core/dtype.h"

namespace sf::cli {

// float32, bfloat16, float16, also as fp32, bf16 and fp16
std::optional<DType> dtype_named(const std::string& name);
DType dtype_of(const char* option, const std::string& name);  // ValueError naming the option for another
bool is_picture(const std::string& path);                     // by its first bytes: PNG, JPEG or WebP
std::string count_text(int64_t n);                            // 1234567: "1.23 M"
// To standard output, or into a file, which appears whole or not at all.
void print_text(const std::string& text, const std::string& file);

}  // namespace sf::cli
