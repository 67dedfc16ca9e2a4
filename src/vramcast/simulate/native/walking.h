// How torch's kernel goes through the elements of a pointwise operator (TensorIterator): in the
// order of what it writes, dimensions joined where all its tensors allow it. One that is left means
// vectors; with more, the place of each element is divided out of its number.
#pragma once
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <vector>

namespace vramcast {

static constexpr int64_t sector_bytes = 32;

struct Walk {
  int64_t elements = 1;
  int64_t dims = 0;   // that cannot be joined
  bool leaps = false;  // some tensor's neighbours are not neighbours in memory
  int64_t apart = 0;   // tensors of which they are not even in one sector of the cache
  int64_t reach = 0;  // elements until such a tensor's next one in memory is read

  bool in_vectors() const { return dims <= 1 && !leaps; }
};

// 0 where it is the same element for the whole dimension of one with `dims` dimensions
static int64_t stride_in(const c10::TensorImpl* tensor, int64_t dim, int64_t dims) {
  const auto own = dim - (dims - tensor->dim());
  return own < 0 || tensor->sizes()[own] == 1 ? 0 : tensor->strides()[own];
}

static Walk walk_through(const c10::TensorImpl* written,
                         const std::vector<const c10::TensorImpl*>& tensors) {
  Walk walk;
  const auto dims = written->dim();
  std::vector<int64_t> order;
  for (int64_t dim = dims - 1; dim >= 0; --dim) {
    walk.elements *= written->sizes()[dim];
    if (written->sizes()[dim] > 1) order.push_back(dim);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return written->strides()[a] < written->strides()[b];
  });
  for (size_t i = 0; i < order.size(); ++i)
    walk.dims += i == 0 || !std::all_of(tensors.begin(), tensors.end(), [&](const auto* tensor) {
      const auto inner = stride_in(tensor, order[i - 1], dims) * written->sizes()[order[i - 1]];
      return stride_in(tensor, order[i], dims) == inner;
    });
  for (const auto* tensor : tensors) {
    const auto stride = order.empty() ? 0 : stride_in(tensor, order[0], dims);
    walk.leaps = walk.leaps || stride > 1;
    if (stride * static_cast<int64_t>(tensor->itemsize()) < sector_bytes) continue;
    ++walk.apart;
    int64_t before = 1;
    for (const auto dim : order) {
      if (stride_in(tensor, dim, dims) == 1) break;
      before *= written->sizes()[dim];
    }
    walk.reach = std::max(walk.reach, before);
  }
  return walk;
}

}  // namespace vramcast
