#include <cstdio>
#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cpu/amx.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/backend/cpu/peak.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/parallel.h"

namespace sf::cli {

static void print_devices() {
  std::cout << "cpu: " << cpu::processor_name() << ", kernels for " << cpu::name(cpu::best()) << ", " << num_threads()
            << " threads\n";
  if (!cpu::tiles_refused().empty()) std::cout << "cpu tiles (AMX): not used: " << cpu::tiles_refused() << "\n";
  for (const cpu::Peak& peak : cpu::measured_peaks()) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.3g", peak.rate.wall / 1e12);
    std::cout << "cpu unit: " << peak.unit.name << ", " << rate
              << (is_floating(peak.unit.dtype) ? " TFLOP/s" : " TOP/s") << " on " << num_threads()
              << (num_threads() == 1 ? " thread\n" : " threads\n");
  }
  const FreeHostMemory host = free_host_memory();
  std::cout << "host memory: " << (host.free >> 20) << " of " << (host.total >> 20) << " MiB free"
            << (host.limits.empty() ? "" : ", by " + host.limits[0].name) << "\n";
  for (auto [type, name] : {std::pair(DeviceType::CUDA, "cuda"), std::pair(DeviceType::MPS, "mps")}) {
    std::string why;
    if (!backend_available(type, &why)) {
      std::cout << name << ": not available: " << why << "\n";
      continue;
    }
    int count = backend(Device(type)).device_count();
    for (int i = 0; i < count; ++i) {
      std::cout << Device(type, i).str() << ": available";
      if (type == Device::CUDA) {
        DeviceProperties p = accelerator(Device(type, i)).properties(i);
        std::cout << ", " << p.name << ", compute capability " << p.major << "." << p.minor << ", " << p.multiprocessors
                  << " multiprocessors, " << (free_device_memory(Device(type, i)) >> 20) << " of "
                  << (p.total_memory >> 20) << " MiB free";
      }
      std::cout << "\n";
    }
    if (type == Device::CUDA) {
      int version = accelerator(Device(type)).cudnn_version(0, &why);
      if (version)
        std::cout << "cuDNN: " << version / 10000 << "." << version / 100 % 100 << "." << version % 100 << "\n";
      else std::cout << "cuDNN: not available: " << why << "\n";
    }
  }
  std::cout << "meta: shapes without bytes\n";
}

void add_devices(CLI::App& program) {
  auto* command = program.add_subcommand("devices", "Print the devices, and why one is missing");
  command->footer("Example:\n  scaffolding devices");
  command->callback(print_devices);
}

}  // namespace sf::cli
