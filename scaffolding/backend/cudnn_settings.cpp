#include "scaffolding/backend/cudnn_settings.h"

#include <atomic>

namespace sf {

static std::atomic<CudnnSettings> g_cudnn{CudnnSettings{}};

CudnnSettings cudnn_settings() { return g_cudnn.load(std::memory_order_relaxed); }
void set_cudnn_settings(CudnnSettings s) { g_cudnn.store(s, std::memory_order_relaxed); }

}  // namespace sf
