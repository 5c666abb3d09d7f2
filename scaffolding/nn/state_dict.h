// State dicts: a module's parameters and persistent buffers by dotted name.
#pragma once
#include <map>

#include "scaffolding/nn/module.h"

namespace sf::nn {

using StateDict = std::vector<std::pair<std::string, Tensor>>;  // in the order of the modules, as torch's

// Tensors share the module's memory; detached unless keep_vars. Shared tensors appear under each of their names.
StateDict state_dict(Module& m, const std::string& prefix = "", bool keep_vars = false);

struct LoadOptions {
  bool strict = true;   // missing and unexpected keys are an error
  bool assign = false;  // the module takes the given tensors (their memory and dtype) instead of copying their values
};
struct LoadReport {
  std::vector<std::string> missing_keys, unexpected_keys;
};
// RuntimeError listing every missing, unexpected and wrong-shaped key with the closest names. Nothing is changed then.
LoadReport load_state_dict(Module& m, const std::map<std::string, Tensor>& state, const LoadOptions& options = {});

// What load_state_dict says of a report's keys.
std::string state_dict_errors(Module& m, const LoadReport& report);

}  // namespace sf::nn
