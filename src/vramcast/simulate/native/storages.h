// Simulated storages: the recording allocator, host memory that costs nothing until touched, and
// tensors made of them.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/flat_hash_map.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "computing.h"
#include "recorder.h"
#include "reduction_scratch.h"
#include "typical.h"

namespace vramcast {
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

Recorder recorder;
Gpu gpu;

// What a storage really contains. What is written to one block does not change what others are to
// be made of: they share it until then.
struct Contents {
  at::Tensor bytes;             // of the CPU
  std::function<void()> write;  // writes random numbers, or what is made of them, once it is asked
  // The first two elements in each dimension of a tensor of this layout, where they can be worked
  // out alone.
  std::function<at::Tensor(at::IntArrayRef sizes, at::IntArrayRef strides)> corner;
  int64_t depth = 0;            // how many of these have to be written one after the other

  explicit Contents(at::Tensor of) : bytes(std::move(of)) {
    computing.held_bytes += bytes.nbytes();
  }
  Contents(const Contents&) = delete;
  ~Contents() { computing.held_bytes -= bytes.nbytes(); }
  const at::Tensor& read() {
    if (const auto now = std::exchange(write, nullptr)) now();
    corner = nullptr;
    depth = 0;
    return bytes;
  }
};

inline std::atomic<int64_t> num_writes = 0;

// What is known about a simulated storage. Every tensor has it, as its storage's context pointer.
struct Block {
  int64_t id;
  int64_t epoch;  // of the recorder, when it was allocated
  uintptr_t address;
  int64_t num_bytes;
  int64_t stream = 0;         // that was current
  std::set<int64_t> used_on = {};  // other streams
  std::shared_ptr<Contents> values = nullptr;  // where they are known and small
  bool drawn = false;   // they are random numbers, or made of them
  bool ranked = false;  // likewise, but none of them is the largest where a mask left it out
  bool guessed = false;  // they are made of what was not computed
  Typical typical = healthy_now();  // of the contents, where they are not known
  bool stays = false;               // it is part of every recording
  int64_t last_write = ++num_writes;  // the same of a copy: then they are equal
};

static ShortMutex& blocks_mutex = recorder.mutex;
// by address; addresses are never used twice
static ska::flat_hash_map<uintptr_t, Block*> blocks;

static void release_block(void* context) {
  auto* block = static_cast<Block*>(context);
  {
    const std::lock_guard lock(blocks_mutex);
    recorder.free_locked(block->id, block->epoch, block->used_on);
    blocks.erase(block->address);
  }
  delete block;
}

struct RecordingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override { return allocate(num_bytes, {}); }
  c10::DataPtr allocate(size_t num_bytes, const Recorder::Described& as) {
    const c10::Device device(c10::kCUDA, 0);
    if (num_bytes == 0) return {nullptr, nullptr, &release_block_never, device};
    auto block = std::make_unique<Block>(Block{0, 0, 0, static_cast<int64_t>(num_bytes)});
    block->stream = current_stream();
    recorder.alloc(num_bytes, as, [&](int64_t id) {
      block->id = id;
      block->epoch = recorder.epoch;
      // The address is unique and aligned; nobody reads or writes there.
      block->address = next_address_;
      next_address_ += (num_bytes + 511) / 512 * 512;
      blocks[block->address] = block.get();
    });
    const auto address = reinterpret_cast<void*>(block->address);
    return {address, block.release(), &release_block, device};
  }
  c10::DataPtr allocate_for(c10::IntArrayRef sizes, caffe2::TypeMeta type, size_t num_bytes) {
    return allocate(num_bytes, {sizes, static_cast<int16_t>(type.toScalarType())});
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static void release_block_never(void*) {}
  uintptr_t next_address_ = uintptr_t{1} << 45;
};
static RecordingAllocator device_allocator;

// Host memory that is zero, and costs nothing until somebody touches it: a model built on the CPU
// before .cuda() is never filled in.
static std::mutex pinned_mutex;
static std::map<uintptr_t, size_t> pinned;  // address and bytes of pinned memory of the host

struct LazyHostAllocator final : c10::Allocator {
  struct Mapping {
    void* address;
    size_t num_bytes;
    bool filled = false;  // with values that the program computed
  };
  // Nothing for memory that is not of this kind.
  static Mapping* mapping_of(const c10::DataPtr& pointer) {
    return pointer.get_deleter() == &unmap ? static_cast<Mapping*>(pointer.get_context()) : nullptr;
  }
  static void unmap(void* context) {
    auto* mapping = static_cast<Mapping*>(context);
    {
      const std::lock_guard lock(pinned_mutex);
      pinned.erase(reinterpret_cast<uintptr_t>(mapping->address));
    }
    munmap(mapping->address, mapping->num_bytes);
    delete mapping;
  }
  c10::DataPtr allocate(size_t num_bytes) override {
    void* address = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "vramcast: cannot map ", num_bytes,
                " bytes of host address space");
    return {address, new Mapping{address, num_bytes}, &unmap, c10::Device(c10::kCPU)};
  }
  // Zeros again, without touching the memory; false for memory that is not of this kind.
  static bool clear(const c10::DataPtr& pointer) {
    auto* mapping = mapping_of(pointer);
    if (!mapping) return false;
    mapping->filled = false;
    return madvise(mapping->address, mapping->num_bytes, MADV_DONTNEED) == 0;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    memcpy(to, from, count);
  }
};
static LazyHostAllocator lazy_host_allocator;

static LazyHostAllocator::Mapping* mapping_of(const at::Tensor& tensor) {
  const bool is_dense = tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.has_storage();
  return is_dense ? LazyHostAllocator::mapping_of(tensor.storage().data_ptr()) : nullptr;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    auto pointer = lazy_host_allocator.allocate(num_bytes);
    const std::lock_guard lock(pinned_mutex);
    pinned[reinterpret_cast<uintptr_t>(pointer.get())] = num_bytes;
    return pointer;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    memcpy(to, from, count);
  }
  static bool owns(const void* pointer) {
    const std::lock_guard lock(pinned_mutex);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const auto after = pinned.upper_bound(address);
    return after != pinned.begin() && address < std::prev(after)->first + std::prev(after)->second;
  }
};
static PinnedAllocator pinned_allocator;

// At the beginning of a recording.
static void record_what_stays() {
  std::vector<Block*> staying;
  {
    const std::lock_guard lock(blocks_mutex);
    for (const auto& [address, block] : blocks)
      if (block->stays) staying.push_back(block);
  }
  std::sort(staying.begin(), staying.end(),
            [](const Block* one, const Block* other) { return one->address < other->address; });
  for (auto* block : staying) {
    block->id = recorder.alloc(block->num_bytes);
    block->epoch = recorder.epoch;
  }
}

static Block* block_at(uintptr_t address) {
  const std::lock_guard lock(blocks_mutex);
  const auto found = blocks.find(address);
  return found == blocks.end() ? nullptr : found->second;
}

static Block* block_of(const c10::DataPtr& pointer) {
  if (pointer.get_deleter() == &release_block) return static_cast<Block*>(pointer.get_context());
  // a second storage for the same memory, as DLPack and pickling make
  return pointer.device().is_cuda() ? block_at(reinterpret_cast<uintptr_t>(pointer.get()))
                                    : nullptr;
}

static Block* block_of(const at::Tensor& tensor) {
  return block_of(tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr());
}

// Before this memory is used again, the stream must have come as far as it will be at its free.
static void note_use(const c10::DataPtr& pointer, int64_t stream) {
  auto* block = block_of(pointer);
  if (!block || block->stream == stream) return;
  const std::lock_guard lock(blocks_mutex);
  block->used_on.insert(stream);
}

static at::Tensor make_tensor(c10::Storage storage, c10::IntArrayRef sizes,
                              c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype,
                              bool on_gpu) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(on_gpu ? DispatchKey::CUDA : DispatchKey::CPU), dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

static at::Tensor new_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                             caffe2::TypeMeta dtype, bool on_gpu) {
  const auto num_bytes = at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
  c10::Allocator* allocator = &device_allocator;
  if (!on_gpu)
    allocator = num_bytes >= (64 << 10) ? static_cast<c10::Allocator*>(&lazy_host_allocator)
                                        : c10::GetCPUAllocator();
  auto pointer = on_gpu ? device_allocator.allocate_for(sizes, dtype, num_bytes)
                        : allocator->allocate(num_bytes);
  if (allocator == c10::GetCPUAllocator() && num_bytes) memset(pointer.get(), 0, num_bytes);
  auto storage = c10::Storage(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), num_bytes,
                                            std::move(pointer), allocator, /*resizable=*/true));
  return make_tensor(std::move(storage), sizes, strides, 0, dtype, on_gpu);
}

static std::vector<int64_t> dense_strides(c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (int64_t i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// It has the keys of its base: a view that inference mode makes of an ordinary tensor is ordinary.
static at::Tensor view_of(const at::Tensor& base, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                          c10::IntArrayRef strides, int64_t offset) {
  auto storage = base.storage();
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage),
                                                       base.key_set(), dtype);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}
static at::Tensor view_of(const at::Tensor& base, const at::Tensor& meta) {
  return view_of(base, meta.dtype(), meta.sizes(), meta.strides(), meta.storage_offset());
}

static at::Tensor meta_of(const at::Tensor& tensor) {
  auto* from = tensor.unsafeGetTensorImpl();
  if (from->is_wrapped_number() && tensor.device().is_cpu())
    return tensor;  // a Python number stays one
  const auto num_bytes = from->unsafe_storage().nbytes();
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), num_bytes,
      c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta), true));
  auto meta = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(DispatchKey::Meta), from->dtype());
  meta.unsafeGetTensorImpl()->set_sizes_and_strides(from->sizes(), from->strides(),
                                                    from->storage_offset());
  if (from->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

static void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, impl->dtype().itemsize(),
                                                       impl->storage_offset());
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    // The new memory is taken before the old is given back, as on the device.
    auto pointer = tensor.is_cuda() ? device_allocator.allocate_for(sizes, impl->dtype(), needed)
                                    : c10::GetCPUAllocator()->allocate(needed);
    storage->set_data_ptr_noswap(std::move(pointer));
    storage->set_nbytes(needed);
  }
  impl->set_sizes_and_strides(sizes, strides);
}

}  // namespace vramcast
