// OutOfMemory: a device's memory does not suffice. Modules whose calls it leaves add their names,
// so that it says which part of a model asked.
#pragma once
#include "scaffolding/core/error.h"

namespace sf {

class OutOfMemory : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
  const char* what() const noexcept override { return text_.empty() ? RuntimeError::what() : text_.c_str(); }

  // The call of `module` that it leaves, an `outer`. path: from there to the module named before, "" for the first one.
  void leaves(const void* module, const std::string& path, const std::string& outer);
  const void* module() const { return module_; }  // the last that was named

 private:
  const void* module_ = nullptr;
  std::string path_, type_, text_;  // of the innermost module
};

}  // namespace sf
