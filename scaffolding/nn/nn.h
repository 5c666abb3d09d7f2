// Modules, layers, initial values and state dicts.
#pragma once
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/layer.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/module.h"
#include "scaffolding/nn/state_dict.h"
