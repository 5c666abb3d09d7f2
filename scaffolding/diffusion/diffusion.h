// Diffusion models: samplers and guidance.
#pragma once
#include "scaffolding/diffusion/guidance.h"
#include "scaffolding/diffusion/schedulers/schedulers.h"
