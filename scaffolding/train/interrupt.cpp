#include "scaffolding/train/interrupt.h"

namespace sf::train {

static volatile std::sig_atomic_t interrupted = 0;
static struct sigaction before {};

static void note_interrupt(int) {
  interrupted = 1;
  sigaction(SIGINT, &before, nullptr);
}

StopOnInterrupt::StopOnInterrupt(bool enabled) : enabled_(enabled) {
  interrupted = 0;
  if (!enabled) return;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before);
}

StopOnInterrupt::~StopOnInterrupt() {
  if (enabled_) sigaction(SIGINT, &before, nullptr);
}

bool StopOnInterrupt::asked() const { return enabled_ && interrupted; }

}  // namespace sf::train
