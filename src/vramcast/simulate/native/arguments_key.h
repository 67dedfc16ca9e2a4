// The arguments of an operator as bytes, by which its results are found again.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace vramcast {
using c10::IValue;

constexpr size_t max_known_results = 10000;

struct ArgumentsKey {
  std::string bytes;
  bool is_complete = true;  // false where an argument is of a rare kind
  template <typename Value>
  void add(char kind, Value value) {
    bytes.push_back(kind);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add(const IValue& argument) {
    if (argument.isNone())
      bytes.push_back('n');
    else if (argument.isBool())
      add('b', argument.toBool());
    else if (argument.isInt())
      add('i', argument.toInt());
    else if (argument.isDouble())
      add('d', argument.toDouble());
    else if (argument.isIntList()) {
      add('l', argument.toIntList().size());
      for (const int64_t item : argument.toIntList()) add('i', item);
    } else if (argument.isString()) {
      add('s', argument.toStringRef().size());
      bytes += argument.toStringRef();
    } else if (!argument.isDevice())
      is_complete = false;
  }
  // All of a tensor but its contents.
  void add_shape(const at::Tensor& tensor) {
    if (!tensor.defined()) return bytes.push_back('u');
    const auto* impl = tensor.unsafeGetTensorImpl();
    if (impl->layout() != at::kStrided || impl->has_symbolic_sizes_strides()) {
      is_complete = false;
      return;
    }
    const char flags = impl->is_wrapped_number() | tensor.is_conj() << 1 | tensor.is_neg() << 2 |
                       tensor.is_cpu() << 3;
    add(flags, tensor.scalar_type());
    add('o', impl->storage_offset());
    add('x', impl->unsafe_storage().nbytes());
    add('d', impl->dim());
    append(impl->sizes());
    append(impl->strides());
  }

 private:
  void append(c10::IntArrayRef numbers) {
    bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
  }
};

}  // namespace vramcast
