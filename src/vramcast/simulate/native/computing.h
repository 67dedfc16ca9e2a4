// A second run in which all that the GPU would compute is computed on the host, because what the
// first had to guess decides sizes. So much memory and so much time may go into it.
#pragma once
#include <atomic>
#include <ctime>

namespace vramcast {

constexpr int64_t max_held_bytes = 512 << 20;
constexpr double max_computing_seconds = 40;

struct Computing {
  std::atomic<bool> is_on = false;
  std::atomic<bool> has_ended = false;  // what it may take was not enough
  std::atomic<int64_t> held_bytes = 0;  // of all contents
  std::atomic<double> seconds = 0;

  void begin(bool on) {
    is_on = on;
    has_ended = false;
    seconds = 0;
  }
  bool has_room(int64_t num_bytes) {
    if (held_bytes + num_bytes > max_held_bytes || seconds > max_computing_seconds) {
      is_on = false;
      has_ended = true;
    }
    return is_on;
  }
};
inline Computing computing;

// How long this thread computes.
class Timed {
 public:
  ~Timed() {
    if (begin_ >= 0) computing.seconds = computing.seconds + now() - begin_;
  }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double begin_ = computing.is_on ? now() : -1;
};

// How many kernels written in Python are running inside each other.
inline int& kernel_depth() {
  static thread_local int depth = 0;
  return depth;
}

// Somebody asked for what was guessed: a size, a branch, what goes to the host.
inline std::atomic<bool> guess_was_read = false;
// Within a kernel written in Python: it has read a guess, so what it makes is one.
inline thread_local bool kernel_has_guessed = false;

}  // namespace vramcast
