#include "scaffolding/backend/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "scaffolding/backend/kernel_file.h"
#include "scaffolding/backend/library.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

namespace {

namespace fs = std::filesystem;

// As nvrtc.h declares them, which need not be there.
struct Nvrtc {
  using Program = struct Opaque*;
  int (*version)(int*, int*);
  const char* (*error_string)(int);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*add_name)(Program, const char*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*lowered_name)(Program, const char*, const char**);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
};
constexpr int kSuccess = 0, kCompilationFailed = 6;

// The newest release that this was tried with first.
Library library() {
  const void* beside = reinterpret_cast<const void*>(&compile_kernel);
  try {
    return Library("libnvrtc.so.13", beside, "nvidia-cuda-nvrtc");
  } catch (const Error& missing) {
    try {
      return Library("libnvrtc.so.12", beside, "nvidia-cuda-nvrtc-cu12");
    } catch (const Error&) {
      throw RuntimeError(missing.what());  // the first one's folders and advice
    }
  }
}

Nvrtc load() {
  Library lib = library();
  Nvrtc f{};
  lib.find(f.version, "nvrtcVersion");
  lib.find(f.error_string, "nvrtcGetErrorString");
  lib.find(f.create, "nvrtcCreateProgram");
  lib.find(f.destroy, "nvrtcDestroyProgram");
  lib.find(f.add_name, "nvrtcAddNameExpression");
  lib.find(f.compile, "nvrtcCompileProgram");
  lib.find(f.log_size, "nvrtcGetProgramLogSize");
  lib.find(f.log, "nvrtcGetProgramLog");
  lib.find(f.lowered_name, "nvrtcGetLoweredName");
  lib.find(f.cubin_size, "nvrtcGetCUBINSize");
  lib.find(f.cubin, "nvrtcGetCUBIN");
  return f;
}

const Nvrtc& nvrtc() {
  static const Nvrtc functions = load();  // throws again on the next call when it throws
  return functions;
}

void check(int status, const std::string& name) {
  SF_CHECK_AS(RuntimeError, status == kSuccess, "cuda: kernel '", name, "': NVRTC: ", nvrtc().error_string(status),
              " (status ", status, ")");
}

// The headers that came with this NVRTC: <toolkit>/include beside <toolkit>/lib64, or those of every nvidia package,
// since pip has NVRTC, the runtime and CCCL in packages of their own.
std::vector<std::string> folders_beside_nvrtc() {
  std::vector<std::string> folders;
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(nvrtc().version), &info) || !info.dli_fname) return folders;
  const fs::path package = fs::absolute(fs::path(info.dli_fname)).parent_path().parent_path();
  folders.push_back((package / "include").string());
  std::error_code none;
  if (package.parent_path().filename() == "nvidia")
    for (auto& other : fs::directory_iterator(package.parent_path(), none))
      folders.push_back((other.path() / "include").string());
  std::sort(folders.begin() + 1, folders.end());  // the kernel's key must not depend on the order of a folder
  return folders;
}

std::vector<std::string> include_folders() {
  std::vector<std::string> folders;
  auto add_list = [&](const std::string& list) {
    for (size_t at = 0; at < list.size();) {
      size_t end = std::min(list.find(':', at), list.size());
      if (end > at) folders.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  };
  add_list(env::text("SF_CUDA_INCLUDE_PATH"));
  if (const char* list = std::getenv("CUDARC_NVRTC_EXTRA_INCLUDE_PATHS")) add_list(list);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home && *home) folders.push_back(std::string(home) + "/include");
  for (auto& folder : folders_beside_nvrtc()) folders.push_back(folder);
  folders.emplace_back("/usr/local/cuda/include");
  for (size_t i = folders.size(); i-- > 0;)
    folders.insert(folders.begin() + std::ptrdiff_t(i) + 1, folders[i] + "/cccl");
  for (size_t i = 1; i < folders.size();)  // one that was named twice is looked into once
    if (std::find(folders.begin(), folders.begin() + std::ptrdiff_t(i), folders[i]) !=
        folders.begin() + std::ptrdiff_t(i))
      folders.erase(folders.begin() + std::ptrdiff_t(i));
    else ++i;
  std::erase_if(folders, [](const std::string& f) {
    std::error_code none;
    return !fs::is_directory(f, none);
  });
  return folders;
}

std::string line_of(const std::string& source, int number) {
  std::istringstream lines(source);
  std::string line;
  for (int i = 0; i < number; ++i)
    if (!std::getline(lines, line)) return {};
  size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? std::string() : line.substr(begin, 200);
}

// The first error of NVRTC's log ("kernel.cu(3): error: ..."), with the line of the source; then the whole log.
[[noreturn]] void fail_to_compile(const KernelSource& k, const std::string& log) {
  size_t at = log.find(": error");
  size_t begin = at == std::string::npos ? 0 : log.rfind('\n', at) + 1;
  std::string first = log.substr(begin, log.find('\n', begin) - begin), where;
  if (first.rfind("kernel.cu(", 0) == 0) {
    int number = std::atoi(first.c_str() + 10);
    where = " at line " + std::to_string(number) + ", `" + line_of(k.source, number) + "`";
    first = first.substr(std::min(first.size(), first.find(": error") + 7));
    first = first.substr(std::min(first.size(), first.find_first_not_of(": ")));
  }
  fail<RuntimeError>("cuda: kernel '", k.name, "' does not compile", where, ": ", first, "\n", log);
}

struct Program {
  Nvrtc::Program handle = nullptr;
  ~Program() {
    if (handle) nvrtc().destroy(&handle);
  }
};

std::atomic<int64_t> compiled{0};

KernelImage compile(const KernelSource& k, const std::string& arch, const std::vector<std::string>& options) {
  const Nvrtc& rtc = nvrtc();
  ++compiled;
  Program program;
  check(rtc.create(&program.handle, k.source.c_str(), "kernel.cu", 0, nullptr, nullptr), k.name);
  check(rtc.add_name(program.handle, k.name.c_str()), k.name);
  std::vector<const char*> arguments;
  for (auto& o : options) arguments.push_back(o.c_str());
  int status = rtc.compile(program.handle, int(arguments.size()), arguments.data());
  if (status == kCompilationFailed) {
    size_t size = 0;
    check(rtc.log_size(program.handle, &size), k.name);
    std::string log(size, 0);
    check(rtc.log(program.handle, log.data()), k.name);
    fail_to_compile(k, log.c_str());
  }
  SF_CHECK_AS(
      RuntimeError, status == kSuccess, "cuda: kernel '", k.name, "' for ", arch, ": NVRTC: ", rtc.error_string(status),
      " (options:",
      [&] {
        std::string all;
        for (auto& o : options) all += " " + o;
        return all;
      }(),
      ")");
  const char* lowered = nullptr;
  check(rtc.lowered_name(program.handle, k.name.c_str(), &lowered), k.name);
  KernelImage image{lowered, {}};
  size_t size = 0;
  check(rtc.cubin_size(program.handle, &size), k.name);
  image.cubin.resize(size);
  check(rtc.cubin(program.handle, image.cubin.data()), k.name);
  return image;
}

}  // namespace

int64_t kernels_compiled() { return compiled; }

std::shared_ptr<const KernelImage> compile_kernel(const KernelSource& k, const std::string& arch) {
  int major = 0, minor = 0;
  check(nvrtc().version(&major, &minor), k.name);
  std::vector<std::string> options{"-arch=" + arch, "-std=c++17"};
  options.insert(options.end(), k.options.begin(), k.options.end());
  std::string key = "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
  for (auto& o : options) key += '\n' + o;
  for (auto& folder : include_folders()) {
    options.push_back("-I" + folder);
    key += "\n-I" + folder;
  }
  key += '\n' + k.name + '\n' + k.source;

  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const KernelImage>> images;
  {
    std::lock_guard lock(mutex);
    if (auto at = images.find(key); at != images.end()) return at->second;
  }
  auto image = std::make_shared<KernelImage>();
  if (!read_kernel_file(key, *image)) {
    *image = compile(k, arch, options);
    write_kernel_file(key, *image);
  }
  std::lock_guard lock(mutex);
  return images.emplace(key, image).first->second;
}

}  // namespace sf::cuda
