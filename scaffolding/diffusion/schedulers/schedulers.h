// Every scheduler.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduling_ddim.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddpm.h"
#include "scaffolding/diffusion/schedulers/scheduling_euler_ancestral_discrete.h"
#include "scaffolding/diffusion/schedulers/scheduling_euler_discrete.h"
