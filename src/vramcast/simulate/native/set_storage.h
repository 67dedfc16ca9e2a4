// Storages as such: set_() gives a tensor another one, resize_() moves one, and record_stream()
// says that another stream uses it.
#pragma once
#include <ATen/ops/set_ops.h>
#include <torch/library.h>

#include "values.h"

namespace vramcast {

// As resize_bytes_cuda() of torch: the new memory is taken before the old is given back.
static void resize_storage(c10::StorageImpl* storage, int64_t num_bytes) {
  if (num_bytes == 0) {
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCUDA, 0)));
    storage->set_nbytes(0);
    return;
  }
  auto pointer = device_allocator.allocate(num_bytes);
  auto* before = block_of(storage->data_ptr());
  if (before && before->values) {
    auto* block = static_cast<Block*>(pointer.get_context());
    hold_values(*block);
    memcpy(block->values->bytes.mutable_data_ptr(), before->values->read().const_data_ptr(),
           std::min<size_t>(num_bytes, storage->nbytes()));
  }
  storage->set_data_ptr_noswap(std::move(pointer));
  storage->set_nbytes(num_bytes);
}

static DispatchKeySet below_simulation(DispatchKeySet keys) {
  return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
}

static at::Tensor& set_strided(DispatchKeySet keys, at::Tensor& self, at::Storage source,
                               c10::SymInt offset, c10::SymIntArrayRef sizes,
                               c10::SymIntArrayRef strides) {
  if (!self.is_cuda()) {
    c10::impl::ExcludeDispatchKeyGuard guard(DispatchKeySet(DispatchKey::Fake));
    return at::_ops::set__source_Storage_storage_offset::redispatch(below_simulation(keys), self,
                                                                    source, offset, sizes, strides);
  }
  TORCH_CHECK(source.device().is_cuda(), "Attempted to set the storage of a tensor on device \"",
              self.device(), "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  const auto dims = C10_AS_INTARRAYREF_SLOW(sizes);
  resize(self, dims,
         strides.empty() ? dense_strides(dims) : C10_AS_INTARRAYREF_SLOW(strides).vec());
  return self;
}

static at::Tensor& set_whole(DispatchKeySet keys, at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_strided(keys, self, std::move(source), 0, {c10::SymInt(count)}, {});
}

static at::Tensor& set_like(DispatchKeySet keys, at::Tensor& self, const at::Tensor& source) {
  return set_strided(keys, self, source.storage(), source.sym_storage_offset(), source.sym_sizes(),
                     source.sym_strides());
}

static at::Tensor& set_empty(DispatchKeySet keys, at::Tensor& self) {
  auto* allocator = self.unsafeGetTensorImpl()->unsafe_storage().allocator();
  return set_whole(keys, self,
                   c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator, /*resizable=*/true));
}

static void record_stream(at::Tensor& self, at::Stream stream) {
  note_use(self.unsafeGetTensorImpl()->unsafe_storage().data_ptr(), stream.id());
}

TORCH_LIBRARY_IMPL(aten, Fake, library) {
  library.impl("record_stream", &record_stream);
  library.impl("set_.source_Storage_storage_offset", &set_strided);
  library.impl("set_.source_Storage", &set_whole);
  library.impl("set_.source_Tensor", &set_like);
  library.impl("set_", &set_empty);
}

}  // namespace vramcast
