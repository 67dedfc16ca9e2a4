// What the host code of a CUDA extension uses of CUDA, for a GPU that is simulated: kernels are
// never run, copies do nothing, streams and events are all there at once. It stands in for the
// headers of CUDA and for those of torch that need them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__
#define __constant__ static
#define __managed__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define VRAMCAST_VECTORS(type, name)                                                      \
  struct name##1 { type x; };                                                             \
  struct name##2 { type x, y; };                                                          \
  struct name##3 { type x, y, z; };                                                       \
  struct alignas(sizeof(type) * 4 > 16 ? 16 : sizeof(type) * 4) name##4 { type x, y, z, w; }; \
  inline name##1 make_##name##1(type x) { return {x}; }                                   \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }             \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VRAMCAST_VECTORS(char, char)
VRAMCAST_VECTORS(unsigned char, uchar)
VRAMCAST_VECTORS(short, short)
VRAMCAST_VECTORS(unsigned short, ushort)
VRAMCAST_VECTORS(int, int)
VRAMCAST_VECTORS(unsigned, uint)
VRAMCAST_VECTORS(long, long)
VRAMCAST_VECTORS(unsigned long, ulong)
VRAMCAST_VECTORS(long long, longlong)
VRAMCAST_VECTORS(unsigned long long, ulonglong)
VRAMCAST_VECTORS(float, float)
VRAMCAST_VECTORS(double, double)

struct __half { unsigned short bits; };
struct __half2 { __half x, y; };
struct __nv_bfloat16 { unsigned short bits; };
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
struct __nv_fp8_e4m3 { unsigned char bits; };
struct __nv_fp8_e5m2 { unsigned char bits; };
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600 };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using CUstream = cudaStream_t;
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, maxDynamicSharedSizeBytes;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor, maxThreadsDim[3], maxGridSize[3];
  int multiProcessorCount, major, minor, l2CacheSize;
};

// The simulated GPU: vramcast says which one it is after the extension is loaded.
inline cudaDeviceProp vramcast_gpu_of_extension = {
    "", 0, 48 << 10, 227 << 10, 228 << 10, 1 << 16, 1 << 16, 32, 1024, 2048,
    {1024, 1024, 64}, {2147483647, 65535, 65535}, 0, 0, 0, 50 << 20};

extern "C" __attribute__((weak, used)) void vramcast_describe_gpu(
    int multiprocessors, int major, int minor, int64_t num_bytes, int threads, int l2_bytes) {
  auto& gpu = vramcast_gpu_of_extension;
  gpu.multiProcessorCount = multiprocessors;
  gpu.major = major;
  gpu.minor = minor;
  gpu.totalGlobalMem = num_bytes;
  gpu.maxThreadsPerMultiProcessor = threads;
  gpu.l2CacheSize = l2_bytes;
}

#define VRAMCAST_DOES_NOTHING(name)            \
  template <typename... Any>                   \
  inline cudaError_t name(Any&&... arguments) { \
    return cudaSuccess;                        \
  }
VRAMCAST_DOES_NOTHING(cudaGetLastError)
VRAMCAST_DOES_NOTHING(cudaPeekAtLastError)
VRAMCAST_DOES_NOTHING(cudaDeviceSynchronize)
VRAMCAST_DOES_NOTHING(cudaSetDevice)
VRAMCAST_DOES_NOTHING(cudaStreamSynchronize)
VRAMCAST_DOES_NOTHING(cudaStreamWaitEvent)
VRAMCAST_DOES_NOTHING(cudaStreamQuery)
VRAMCAST_DOES_NOTHING(cudaStreamDestroy)
VRAMCAST_DOES_NOTHING(cudaEventRecord)
VRAMCAST_DOES_NOTHING(cudaEventQuery)
VRAMCAST_DOES_NOTHING(cudaEventSynchronize)
VRAMCAST_DOES_NOTHING(cudaEventDestroy)
VRAMCAST_DOES_NOTHING(cudaMemcpyToSymbol)
VRAMCAST_DOES_NOTHING(cudaMemcpyToSymbolAsync)
VRAMCAST_DOES_NOTHING(cudaMemset)
VRAMCAST_DOES_NOTHING(cudaMemsetAsync)
VRAMCAST_DOES_NOTHING(cudaFuncSetAttribute)
VRAMCAST_DOES_NOTHING(cudaFuncSetCacheConfig)
VRAMCAST_DOES_NOTHING(cudaLaunchKernel)

// What comes back from the GPU is not known: zeros.
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDeviceToHost) std::memset(to, 0, num_bytes);
  if (kind == cudaMemcpyHostToHost) std::memcpy(to, from, num_bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes,
                                   cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, num_bytes, kind);
}
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }
inline cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  *found = vramcast_gpu_of_extension;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const auto& gpu = vramcast_gpu_of_extension;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = gpu.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = gpu.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = gpu.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = gpu.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = gpu.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = gpu.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = gpu.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.sharedMemPerBlockOptin; break;
  }
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
template <typename Kernel>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, Kernel&&) {
  *found = {0, 0, 0, 1024, 64, 0};
  return cudaSuccess;
}
template <typename... Any>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, Any&&...) {
  *blocks = 2 * vramcast_gpu_of_extension.multiProcessorCount;
  *threads = 1024;
  return cudaSuccess;
}
template <typename... Any>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Any&&...) {
  *blocks = 2;
  return cudaSuccess;
}

namespace at {  // torch has it for nvcc alone
template <typename T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
}  // namespace at

// In namespaces of their own: torch's CUDA builds have functions of the same names.
namespace c10::cuda {
inline namespace vramcast {
class CUDAStream {
 public:
  CUDAStream() = default;
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  operator cudaStream_t() const { return nullptr; }
  operator Stream() const { return stream_; }
  cudaStream_t stream() const { return nullptr; }
  Stream unwrap() const { return stream_; }
  StreamId id() const { return stream_.id(); }
  DeviceIndex device_index() const { return stream_.device_index(); }
  Device device() const { return stream_.device(); }
  void synchronize() const {}
  bool query() const { return true; }

 private:
  Stream stream_{Stream::DEFAULT, Device(kCUDA, 0)};
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }

struct CUDAGuard : DeviceGuard {
  explicit CUDAGuard(DeviceIndex index) : DeviceGuard(Device(kCUDA, index)) {}
  explicit CUDAGuard(Device device) : DeviceGuard(device) {}
};
struct OptionalCUDAGuard : OptionalDeviceGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) : OptionalDeviceGuard(device) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index) reset_device(Device(kCUDA, *index));
  }
};
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream) {}
  explicit CUDAStreamGuard(CUDAStream) {}
};
inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() {}
}  // namespace vramcast
}  // namespace c10::cuda

namespace at::cuda {
inline namespace vramcast {
using namespace c10::cuda;
inline cudaDeviceProp* getCurrentDeviceProperties() { return &vramcast_gpu_of_extension; }
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) { return &vramcast_gpu_of_extension; }
inline int warp_size() { return vramcast_gpu_of_extension.warpSize; }
inline bool is_available() { return true; }
template <typename T>
inline T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}
}  // namespace vramcast
}  // namespace at::cuda

#define C10_CUDA_CHECK(EXPR) (void)(EXPR)
#define C10_CUDA_CHECK_WARN(EXPR) (void)(EXPR)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR) (void)(EXPR)
#define C10_CUDA_CLEAR_ERROR()
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
#define AT_CUDA_CHECK(EXPR) (void)(EXPR)
#define TORCH_CUDA_CPP_API
#define TORCH_CUDA_CU_API
