// Training: the loop, its checkpoints and its logs.
#pragma once
#include "scaffolding/train/trainer.h"
