// Optimizers, schedules of learning rates, averages of weights and loss scaling:
// torch.optim and diffusers.optimization in C++.
#pragma once
#include "scaffolding/optim/adadelta.h"
#include "scaffolding/optim/adafactor.h"
#include "scaffolding/optim/adagrad.h"
#include "scaffolding/optim/adam.h"
#include "scaffolding/optim/adam8bit.h"
#include "scaffolding/optim/adamax.h"
#include "scaffolding/optim/asgd.h"
#include "scaffolding/optim/ema.h"
#include "scaffolding/optim/grad_scaler.h"
#include "scaffolding/optim/graphed_step.h"
#include "scaffolding/optim/lion.h"
#include "scaffolding/optim/lr_scheduler.h"
#include "scaffolding/optim/nadam.h"
#include "scaffolding/optim/optimizer.h"
#include "scaffolding/optim/radam.h"
#include "scaffolding/optim/rmsprop.h"
#include "scaffolding/optim/rprop.h"
#include "scaffolding/optim/sgd.h"

namespace sf::optim {

// Each is compiled beside its rule (rule_optimizer.h).
using Adam = RuleOptimizer<AdamOptions>;
using AdamW = RuleOptimizer<AdamWOptions>;
using AdamW8bit = RuleOptimizer<AdamW8bitOptions>;
using Adafactor = RuleOptimizer<AdafactorOptions>;
using SGD = RuleOptimizer<SGDOptions>;
using Adadelta = RuleOptimizer<AdadeltaOptions>;
using Adagrad = RuleOptimizer<AdagradOptions>;
using Adamax = RuleOptimizer<AdamaxOptions>;
using ASGD = RuleOptimizer<ASGDOptions>;
using Lion = RuleOptimizer<LionOptions>;
using NAdam = RuleOptimizer<NAdamOptions>;
using RAdam = RuleOptimizer<RAdamOptions>;
using RMSprop = RuleOptimizer<RMSpropOptions>;
using Rprop = RuleOptimizer<RpropOptions>;

}  // namespace sf::optim
