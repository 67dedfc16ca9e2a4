// The GPU's generator of random numbers: a seed, and how many numbers were drawn from it.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <memory>

#include "storages.h"

namespace vramcast {

struct GpuRandom {
  std::atomic<uint64_t> seed = c10::default_rng_seed_val, offset = 0;
  // false once something was drawn of which nobody knows how many numbers it took
  std::atomic<bool> is_known = true;

  void start(uint64_t new_seed, uint64_t new_offset) {
    seed = new_seed;
    offset = new_offset;
    is_known = true;
  }
  // Kernels take numbers by fours (CUDAGeneratorImpl::philox_cuda_state).
  uint64_t take(uint64_t count) { return offset.fetch_add((count + 3) / 4 * 4); }
};
inline const std::shared_ptr<GpuRandom> default_random = std::make_shared<GpuRandom>();
inline GpuRandom& gpu_random = *default_random;

// One of torch.cuda.default_generators, which all stand for the one device, or one that a program
// made.
struct GpuGenerator final : c10::GeneratorImpl {
  explicit GpuGenerator(std::shared_ptr<GpuRandom> numbers)
      : GeneratorImpl(device_zero, DispatchKeySet(DispatchKey::CUDA)), random(std::move(numbers)) {}
  void set_current_seed(uint64_t seed) override { random->start(seed, 0); }
  void set_offset(uint64_t offset) override { random->offset = offset; }
  uint64_t get_offset() const override { return random->offset; }
  uint64_t current_seed() const override { return random->seed; }
  // a seed that nobody can know
  uint64_t seed() override {
    random->is_known = false;
    return random->seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 || state.numel() == 8, "RNG state is wrong size");
    const auto* words = static_cast<const uint64_t*>(state.data());
    random->start(words[0], state.numel() == 16 ? words[1] : 0);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = random->seed;
    words[1] = random->offset;
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>&) override {}
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<GpuGenerator>(random);
  }

  const std::shared_ptr<GpuRandom> random;

 private:
  GpuGenerator* clone_impl() const override {
    auto copy = std::make_shared<GpuRandom>();
    copy->start(random->seed, random->offset);
    copy->is_known = random->is_known.load();
    return new GpuGenerator(std::move(copy));
  }
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
    const std::lock_guard lock(host->mutex_);
    const auto engine = host->engine();
    host->set_engine(gpu_engine);
    gpu_engine = engine;
  }
};

// Whether torch.Generator("cuda") is a default one.
inline bool makes_default_generators = false;

}  // namespace vramcast
