// libnvrtc.so.13 of the emulator: compiles kernels from source for this processor, with the C++ compiler that is found
// when it is asked (CXX, c++). What it calls a cubin is a shared object whose table of kernels library.cpp reads. As
// NVRTC it sees no headers of the host, refuses options that it does not know, names kernels only by name expressions,
// and gives a log in NVRTC's form.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#define SF_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" const char* sf_cuda_emulator_compile_options();

namespace {

namespace fs = std::filesystem;

// nvrtcResult of the toolkit's nvrtc.h.
enum Result {
  kSuccess = 0,
  kProgramCreationFailed = 2,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kCompilation = 6,
  kNoNamesAfterCompilation = 8,
  kNoLoweredNamesBeforeCompilation = 9,
  kNameNotValid = 10,
};

struct Program {
  std::string source, name, log, binary;
  std::vector<std::string> expressions, lowered;
  bool compiled = false;
};

// Of CUDA 13: what -arch takes.
bool known_architecture(const std::string& arch, int& number) {
  static const std::regex form("(sm|compute)_(75|80|86|87|88|89|90a?|100[af]?|103[af]?|110[af]?|120[af]?|121[af]?)");
  std::smatch found;
  if (!std::regex_match(arch, found, form)) return false;
  number = std::atoi(found[2].str().c_str()) * 10;
  return true;
}

// The compiler's arguments for NVRTC's options; false for one that it would refuse.
bool translate(const std::vector<std::string>& options, std::vector<std::string>& arguments) {
  int arch = 750;
  bool has_features = false;  // of one architecture alone
  std::string standard = "17";
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& o = options[i];
    auto value = [&](const char* short_name, const char* long_name, std::string& to) {
      for (std::string name : {std::string(short_name), std::string(long_name)}) {
        if (name.empty() || o.rfind(name, 0) != 0) continue;
        bool is_short_letter = name.size() == 2 && name[0] == '-' && std::isalpha(static_cast<unsigned char>(name[1]));
        if (o == name && i + 1 < options.size()) return to = options[++i], true;
        if (o.size() > name.size() && o[name.size()] == '=') return to = o.substr(name.size() + 1), true;
        if (is_short_letter && o.size() > 2) return to = o.substr(2), true;
      }
      return false;
    };
    std::string v;
    if (value("-arch", "--gpu-architecture", v)) {
      if (!known_architecture(v, arch)) return false;
      has_features = v.back() == 'a';
    } else if (value("-std", "--std", v)) {
      if (v != "c++03" && v != "c++11" && v != "c++14" && v != "c++17" && v != "c++20") return false;
      standard = v == "c++20" ? "20" : "17";  // the emulator's own headers need that much
    } else if (value("-I", "--include-path", v)) {
      arguments.push_back("-I" + v);
    } else if (value("-D", "--define-macro", v)) {
      arguments.push_back("-D" + v);
    } else if (value("-U", "--undefine-macro", v)) {
      arguments.push_back("-U" + v);
    } else {
      static const std::regex without_meaning_here(
          "-G|-g|--device-debug|-lineinfo|--generate-line-info|-w|--disable-warnings|-default-device|--device-as-"
          "default-execution-space|--restrict|-restrict|"
          "-use_fast_math|--use_fast_math|-extra-device-vectorization|--extra-device-vectorization|"
          "--?(fmad|ftz|prec-sqrt|prec-div|maxrregcount|split-compile)=.+");
      if (!std::regex_match(o, without_meaning_here)) return false;
    }
  }
  arguments.push_back("-std=c++" + standard);
  arguments.push_back("-D__CUDA_ARCH__=" + std::to_string(arch));
  if (has_features) arguments.push_back("-D__CUDA_ARCH_FEAT_SM" + std::to_string(arch / 10) + "_ALL");
  arguments.push_back("-DSF_EMULATED_ARCH=" + std::to_string(arch / 10));
  return true;
}

// Behind a string, a character or a comment that begins at `at`; `at` where none does.
size_t behind_quoted(const std::string& s, size_t at) {
  if (s.compare(at, 2, "//") == 0) return std::min(s.find('\n', at), s.size());
  if (s.compare(at, 2, "/*") == 0) {
    size_t end = s.find("*/", at + 2);
    return end == std::string::npos ? s.size() : end + 2;
  }
  if (s[at] != '"' && s[at] != '\'') return at;
  if (s[at] == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(s[at - 1]))) return at;  // 1'000
  size_t end = at + 1;
  while (end < s.size() && s[end] != s[at] && s[end] != '\n') end += s[end] == '\\' ? 2 : 1;
  return std::min(end + 1, s.size());
}

// What an instruction computes, in terms of its operands %0, %1, ...
const std::map<std::string, std::string> kInstructions = {
    {"add.rn.f32 %0, %1, 0f80000000;", "%0 = %1 + -0.0f"},
    {"add.rn.f64 %0, %1, 0d8000000000000000;", "%0 = %1 + -0.0"},
    {"cvt.f32.f16 %0, %1;", "%0 = cuda_emulator::float_of_half(%1)"},
    {"cvt.rn.f16.f32 %0, %1;", "%0 = cuda_emulator::half_of_float(%1)"},
    {"cvt.f32.bf16 %0, %1;", "%0 = cuda_emulator::float_of_bfloat16(%1)"},
    {"cvt.rn.bf16.f32 %0, %1;", "%0 = cuda_emulator::bfloat16_of_float(%1)"},
};

// asm statements as calls; lines stay where they are. An instruction that is not emulated becomes an error of the
// compiler.
std::string without_asm(const std::string& s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    if (size_t end = behind_quoted(s, at); end > at) {
      out.append(s, at, end - at);
      at = end;
      continue;
    }
    static const std::regex begins("^(?:__)?asm(?:__)?\\s*(?:(?:__)?volatile(?:__)?\\s*)?\\(");
    std::smatch found;
    std::string ahead = s.substr(at, 64);
    bool fresh = at == 0 || !(std::isalnum(static_cast<unsigned char>(s[at - 1])) || s[at - 1] == '_');
    if (!fresh || !std::regex_search(ahead, found, begins)) {
      out += s[at++];
      continue;
    }
    std::string instruction;
    std::vector<std::string> parts(1), operands;  // parts between colons
    size_t i = at + size_t(found.length());
    for (int depth = 1; i < s.size(); ++i) {
      if (size_t end = behind_quoted(s, i); end > i) {
        if (s[i] == '"' && parts.size() == 1) instruction += s.substr(i + 1, end - i - 2);
        else if (s[i] != '/') parts.back().append(s, i, end - i);
        i = end - 1;
        continue;
      }
      depth += (s[i] == '(') - (s[i] == ')');
      if (depth == 0) break;
      if (s[i] == ':' && depth == 1 && s.compare(i, 2, "::") != 0) parts.emplace_back();
      else if (s.compare(i, 2, "::") == 0 && depth == 1) parts.resize(parts.size() + 2), ++i;
      else parts.back() += s[i];
    }
    for (size_t p = 1; p < std::min<size_t>(parts.size(), 3); ++p) {  // "=f"(x), "f"(y)
      for (size_t c = parts[p].find('"'); c != std::string::npos;) {
        size_t open = parts[p].find('(', parts[p].find('"', c + 1)), close = open;
        for (int depth = 0; close < parts[p].size(); ++close) {
          depth += (parts[p][close] == '(') - (parts[p][close] == ')');
          if (depth == 0) break;
        }
        operands.push_back(parts[p].substr(open, close - open + 1));
        c = parts[p].find('"', close);
      }
    }
    auto known = kInstructions.find(instruction);
    std::string text = "static_assert(false, \"the emulator does not know the instruction `" + instruction + "`\")";
    if (known != kInstructions.end()) text = known->second;
    for (size_t k = 0; k < operands.size() && known != kInstructions.end(); ++k)
      if (size_t place = text.find("%" + std::to_string(k)); place != std::string::npos)
        text.replace(place, 2, operands[k]);
    out += text;
    at = i + 1;
  }
  return out;
}

// extern __shared__ T name[]: an object that turns into a pointer to the block's dynamic shared memory.
std::string with_dynamic_shared(const std::string& s) {
  static const std::regex form(R"(extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\(\s*\d+\s*\)\s*)?)"
                               R"(([A-Za-z_][\w:<>, ]*?)\s+(\w+)\s*\[\s*\]\s*;)");
  return std::regex_replace(s, form, "cuda_emulator::DynamicShared<$1> $2;");
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// g++ and clang++: "kernel.cu:3:14: error: 'b' was not declared in this scope"; NVRTC: "kernel.cu(3): error:
// identifier "b" is undefined".
std::string as_nvrtc_writes(const std::string& log) {
  static const std::regex place(R"(^([^\s:]+):(\d+):(?:\d+:)? (?:fatal )?(error|warning): (.*)$)"),
      undeclared(R"('(\w+)' was not declared in this scope.*)"), unknown(R"(use of undeclared identifier '(\w+)'.*)"),
      missing(R"((\S+): No such file or directory)"), lost(R"('(\S+)' file not found)");
  std::istringstream lines(log);
  std::string line, out;
  int errors = 0;
  while (std::getline(lines, line)) {
    std::smatch found;
    if (!std::regex_match(line, found, place)) continue;
    std::string text = found[4];
    for (auto* form : {&undeclared, &unknown}) text = std::regex_replace(text, *form, "identifier \"$1\" is undefined");
    for (auto* form : {&missing, &lost})
      text = std::regex_replace(text, *form, "could not open source file \"$1\" (no directories in search list)");
    out += found[1].str() + "(" + found[2].str() + "): " + found[3].str() + ": " + text + "\n\n";
    errors += found[3] == "error";
  }
  if (errors == 0) return log;  // of the linker, say
  return out + std::to_string(errors) + (errors == 1 ? " error" : " errors") +
         " detected in the compilation of \"kernel.cu\".\n";
}

int run(const std::vector<std::string>& command, const fs::path& folder, std::string& output) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  pid_t child = fork();
  if (child == 0) {
    setenv("LC_ALL", "C", 1);
    if (chdir(folder.c_str()) != 0) _exit(127);
    dup2(ends[1], 1), dup2(ends[1], 2), close(ends[0]), close(ends[1]);
    std::vector<char*> arguments;
    for (auto& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "%s cannot be started: %s\n", arguments[0], std::strerror(errno));
    _exit(127);
  }
  close(ends[1]);
  char bytes[4096];
  for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) output.append(bytes, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Program* program_of(void* p) { return static_cast<Program*>(p); }

std::vector<std::string> words_of(const char* text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

}  // namespace

SF_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = 999;  // no release of NVIDIA's: the caches of binaries are kept by version
  return kSuccess;
}

SF_EXPORT const char* nvrtcGetErrorString(int status) {
  switch (status) {
    case kSuccess: return "NVRTC_SUCCESS";
    case kProgramCreationFailed: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case kInvalidInput: return "NVRTC_ERROR_INVALID_INPUT";
    case kInvalidProgram: return "NVRTC_ERROR_INVALID_PROGRAM";
    case kInvalidOption: return "NVRTC_ERROR_INVALID_OPTION";
    case kCompilation: return "NVRTC_ERROR_COMPILATION";
    case kNoNamesAfterCompilation: return "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
    case kNoLoweredNamesBeforeCompilation: return "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
    case kNameNotValid: return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    default: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

SF_EXPORT int nvrtcCreateProgram(void** p, const char* source, const char* name, int headers, const char* const*,
                                 const char* const*) {
  if (!p || !source || headers != 0) return kInvalidInput;  // headers as text are not emulated
  *p = new Program{source, name ? name : "default_program", {}, {}, {}, {}};
  return kSuccess;
}
SF_EXPORT int nvrtcDestroyProgram(void** p) {
  if (!p || !*p) return kInvalidProgram;
  delete program_of(*p);
  *p = nullptr;
  return kSuccess;
}
SF_EXPORT int nvrtcAddNameExpression(void* p, const char* expression) {
  if (!p) return kInvalidProgram;
  if (!expression) return kInvalidInput;
  if (program_of(p)->compiled) return kNoNamesAfterCompilation;
  program_of(p)->expressions.emplace_back(expression);
  return kSuccess;
}

SF_EXPORT int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
  if (!handle) return kInvalidProgram;
  Program& p = *program_of(handle);
  std::vector<std::string> given(options, options + count), arguments;
  p.compiled = true;
  p.binary.clear();
  if (!translate(given, arguments)) {
    p.log = "nvrtc: error: invalid option\n";
    return kInvalidOption;
  }
  Dl_info emulator;
  dladdr(reinterpret_cast<void*>(&sf_cuda_emulator_compile_options), &emulator);
  std::string pattern = (fs::temp_directory_path() / "sf_nvrtc_XXXXXX").string();
  if (!mkdtemp(pattern.data())) return kProgramCreationFailed;
  fs::path folder = pattern, file = folder / "kernel.cpp", made = folder / "kernel.so";
  std::string text = "#include \"builtins.h\"\n#line 1 \"" + p.name + "\"\n" +
                     with_dynamic_shared(without_asm(p.source)) + "\n#line 1 \"name_expressions\"\n";
  text += "extern \"C\" SF_EMULATOR_API const int sf_emulated_arch = SF_EMULATED_ARCH;\n";
  text += "extern \"C\" SF_EMULATOR_API const cuda_emulator::ModuleKernel sf_emulated_kernels[] = {\n";
  for (size_t i = 0; i < p.expressions.size(); ++i)
    text += "cuda_emulator::KernelOf<(" + p.expressions[i] + ")>::as(\"_sf_emulated_" + std::to_string(i) + "\"),\n";
  text += "{}};\n";
  std::ofstream(file) << text;
  const char* compiler = std::getenv("CXX");
  std::vector<std::string> command = words_of(compiler && *compiler ? compiler : "c++");
  const char* no_headers_but[] = {"-nostdinc", "-nostdinc++", "-I" SF_EMULATOR_SOURCE "/kernel_include",
                                  "-I" SF_EMULATOR_SOURCE "/include"};
  for (const char* a : {"-shared", "-fPIC", "-O1", "-ffp-contract=off", "-fno-exceptions", "-fno-strict-aliasing",
                        "-fvisibility=hidden", "-w", "-fdiagnostics-color=never"})
    command.emplace_back(a);
  command.insert(command.end(), std::begin(no_headers_but), std::end(no_headers_but));
  for (auto& a : words_of(sf_cuda_emulator_compile_options())) command.push_back(a);
  command.insert(command.end(), arguments.begin(), arguments.end());
  // Relative names: the same source gives the same bytes.
  for (const std::string& a : {file.filename().string(), std::string("-o"), made.filename().string()})
    command.push_back(a);
  command.push_back(fs::absolute(emulator.dli_fname).string());
  command.emplace_back("-lm");
  std::string output;
  int status = run(command, folder, output);
  p.log = status == 0 ? std::string() : as_nvrtc_writes(output);
  if (status == 0) p.binary = read_file(made);
  std::error_code none;
  fs::remove_all(folder, none);
  if (status != 0) return kCompilation;
  p.lowered.clear();
  for (size_t i = 0; i < p.expressions.size(); ++i) p.lowered.push_back("_sf_emulated_" + std::to_string(i));
  return kSuccess;
}

SF_EXPORT int nvrtcGetProgramLogSize(void* p, size_t* size) {
  if (!p) return kInvalidProgram;
  *size = program_of(p)->log.size() + 1;
  return kSuccess;
}
SF_EXPORT int nvrtcGetProgramLog(void* p, char* log) {
  if (!p) return kInvalidProgram;
  std::memcpy(log, program_of(p)->log.c_str(), program_of(p)->log.size() + 1);
  return kSuccess;
}
SF_EXPORT int nvrtcGetLoweredName(void* handle, const char* expression, const char** name) {
  if (!handle) return kInvalidProgram;
  Program& p = *program_of(handle);
  if (p.binary.empty()) return kNoLoweredNamesBeforeCompilation;
  for (size_t i = 0; i < p.expressions.size(); ++i)
    if (p.expressions[i] == expression) return *name = p.lowered[i].c_str(), kSuccess;
  return kNameNotValid;
}
SF_EXPORT int nvrtcGetCUBINSize(void* p, size_t* size) {
  if (!p || program_of(p)->binary.empty()) return kInvalidProgram;
  *size = program_of(p)->binary.size();
  return kSuccess;
}
SF_EXPORT int nvrtcGetCUBIN(void* p, char* binary) {
  if (!p || program_of(p)->binary.empty()) return kInvalidProgram;
  std::memcpy(binary, program_of(p)->binary.data(), program_of(p)->binary.size());
  return kSuccess;
}
