// Diffusion models: samplers, guidance, pipelines, the training objective.
#pragma once
#include "scaffolding/diffusion/guidance.h"
#include "scaffolding/diffusion/memory/pipeline_memory.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/diffusion/schedulers/schedulers.h"
#include "scaffolding/diffusion/slerp.h"
#include "scaffolding/diffusion/training.h"
