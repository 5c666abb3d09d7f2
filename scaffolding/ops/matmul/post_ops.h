// Our activations among oneDNN's post-ops. Included by *.onednn.cpp only.
#pragma once
#include <dnnl.hpp>

#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

void append(dnnl::post_ops& ops, Activation act);  // nothing for None

}  // namespace sf
