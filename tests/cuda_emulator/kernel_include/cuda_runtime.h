// Nothing more than NVRTC knows by itself.
#pragma once
#include "builtins.h"
