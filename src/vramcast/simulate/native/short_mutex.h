// A mutex that is held for a moment, and taken several times by every operator: to give it back is
// one store, where std::mutex asks whether anybody waits.
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

namespace vramcast {

class ShortMutex {
 public:
  void lock() {
    while (is_taken_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { is_taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_taken_ = false;
};

}  // namespace vramcast
