// Every op. A new op adds its line here (tools/lint.py sees to it).
#pragma once
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/rms_norm/rms_norm.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"
