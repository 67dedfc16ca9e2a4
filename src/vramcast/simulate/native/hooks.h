// What torch asks of a CUDA device besides kernels: is there one, which stream, which generator.
// One device, always ready.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>

#include "generator.h"

namespace vramcast {

// The numbers of the GPUs that the program has named, as bits. Larger numbers than 30 share one.
static std::atomic<int64_t> used_gpus = 0;

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  long versionCUDART() const override { return 13000; }
  std::string showConfig() const override { return "  - CUDA Runtime 13.0\n  - CuDNN 91.9\n"; }
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
  void deviceSynchronize(c10::DeviceIndex) const override {
    streams.finish_all();
    streams.wait_on_host();
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* pointer) const override { return PinnedAllocator::owns(pointer); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &device_allocator; }
  c10::Device getDeviceFromPtr(void*) const override { return device_zero; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<GpuGenerator>(makes_default_generators
                                                ? default_random
                                                : std::make_shared<GpuRandom>());
  }
};

static c10::Registerer<std::string, std::unique_ptr<at::CUDAHooksInterface>, at::CUDAHooksArgs>
    hooks_registration("CUDAHooks", c10::REGISTRY_PREFERRED, at::CUDAHooksRegistry(),
                       c10::Registerer<std::string, std::unique_ptr<at::CUDAHooksInterface>,
                                       at::CUDAHooksArgs>::DefaultCreator<Hooks>);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return device_zero; }
  c10::Device getDevice() const override { return device_zero; }
  c10::Stream getStream(c10::Device) const noexcept override { return as_stream(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return as_stream(0); }
  c10::Stream getNewStream(c10::Device, int priority) const override {
    return as_stream(streams.from_pool(priority));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool has_high_priority) const override {
    return as_stream(streams.from_pool(has_high_priority ? -1 : 0));
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return as_stream(std::exchange(current_stream(), stream.id()));
  }
  // older versions of torch do not ask for it
  void* getStreamNativeHandle(const c10::Stream stream) const {
    return reinterpret_cast<void*>(stream.id());
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Event();
    streams.record(*static_cast<Event*>(*event), stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    streams.wait(stream.id(), *static_cast<Event*>(event));
  }
  // it has finished, and the host knows it
  bool queryEvent(void* event) const override {
    streams.finish(*static_cast<Event*>(event));
    return true;
  }
  bool queryStream(const c10::Stream& stream) const override {
    streams.finish(stream.id());
    return true;
  }
  void synchronizeEvent(void* event) const override {
    streams.finish(*static_cast<Event*>(event));
    streams.wait_on_host(*static_cast<Event*>(event));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    streams.finish(stream.id());
    streams.wait_on_host(stream.id());
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    streams.finish_all();
    streams.wait_on_host();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return elapsed_milliseconds(*static_cast<Event*>(from), *static_cast<Event*>(to));
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    note_use(pointer, stream.id());
  }
};
static c10::impl::DeviceGuardImplRegistrar guard_registration(c10::kCUDA, new Guard());

}  // namespace vramcast
