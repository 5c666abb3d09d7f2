// Every pipeline, their files, and LoRA.
#pragma once
#include "scaffolding/diffusion/pipelines/dit/pipeline_dit.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/lora.h"
#include "scaffolding/diffusion/pipelines/lora_tags.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/diffusion/pipelines/pixart/pipeline_pixart_sigma.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_img2img.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion_inpaint.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl_img2img.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
