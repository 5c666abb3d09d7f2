#include "apps/cli/scarce_memory.h"

#include <alloca.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "scaffolding/core/memory_room.h"

namespace sf::cli {

namespace {

constexpr size_t kReserve = size_t(4) << 20;  // the JSON of a vocabulary is taken apart with less than 1 MiB
constexpr size_t kStack = size_t(1) << 20;
std::atomic<void*> reserve{nullptr};
std::terminate_handler abort_with_words = nullptr;

void give_reserve() {
  std::free(reserve.exchange(nullptr));
  throw std::bad_alloc();
}

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

[[noreturn]] void end_with_a_line() {
  try {
    if (auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    say("scaffolding: ");
    say(kMemoryRanOut);
    say("\n");
    _exit(2);
  } catch (...) {}
  abort_with_words();
  std::abort();
}

// The stack grows as it is used; where the address space is full by then, that is a fault that nobody can catch.
[[gnu::noinline]] void grow_stack() {
  rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 2 * kStack || !room_for(2 * kStack)) return;
  volatile char* lowest = static_cast<char*>(alloca(kStack));
  *lowest = 0;
}

}  // namespace

void prepare_for_scarce_memory() {
  abort_with_words = std::set_terminate(end_with_a_line);
  if (!memory_is_limited()) return;
  grow_stack();
  reserve = std::malloc(kReserve);
  std::set_new_handler(give_reserve);
}

}  // namespace sf::cli
