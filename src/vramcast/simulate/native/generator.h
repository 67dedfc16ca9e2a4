// The GPU's generator of random numbers, as programs see it: a seed and an offset.
// torch.compile passes it around; nothing is drawn from it.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include "storages.h"

namespace vramcast {

struct GpuGenerator final : c10::GeneratorImpl {
  GpuGenerator() : GeneratorImpl(device_zero, DispatchKeySet(DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>&) override {}
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override { return clone(); }

 private:
  GpuGenerator* clone_impl() const override { return new GpuGenerator(); }
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

// Numbers that the simulated GPU draws on the host leave the host's own generator as it is: a
// program that asks it which layers to drop gets the answers of a real run.
inline at::mt19937 gpu_engine;
class DrawnByGpu {
 public:
  DrawnByGpu() { exchange_engines(); }
  ~DrawnByGpu() { exchange_engines(); }

 private:
  static void exchange_engines() {
    auto* host = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
    const std::lock_guard<std::mutex> lock(host->mutex_);
    const auto engine = host->engine();
    host->set_engine(gpu_engine);
    gpu_engine = engine;
  }
};

// Whether torch.Generator("cuda") is one. Else it is one of the CPU's, which operators that run on
// the host can draw from.
inline bool makes_gpu_generators = false;

}  // namespace vramcast
