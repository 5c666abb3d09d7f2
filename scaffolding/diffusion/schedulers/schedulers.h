// Every scheduler.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduling_ddim.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddim_cogvideox.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddpm.h"
#include "scaffolding/diffusion/schedulers/scheduling_dpm_cogvideox.h"
#include "scaffolding/diffusion/schedulers/scheduling_dpmsolver_multistep.h"
#include "scaffolding/diffusion/schedulers/scheduling_euler_ancestral_discrete.h"
#include "scaffolding/diffusion/schedulers/scheduling_euler_discrete.h"
#include "scaffolding/diffusion/schedulers/scheduling_flow_match_euler_discrete.h"
#include "scaffolding/diffusion/schedulers/scheduling_heun_discrete.h"
#include "scaffolding/diffusion/schedulers/scheduling_lcm.h"
#include "scaffolding/diffusion/schedulers/scheduling_pndm.h"
#include "scaffolding/diffusion/schedulers/scheduling_unipc_multistep.h"
