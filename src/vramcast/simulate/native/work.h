// What every operator on the device computes and moves: floating-point operations by shape, bytes
// read and written. Time is predicted from these. Operators without a kernel (views, empty) are
// noted too: the host has to go through them.
#pragma once
#include "meta.h"
#include "operators.h"
#include "walking.h"
#include "work_log.h"

namespace vramcast {

// What is really touched: an expanded tensor is read once.
static double moved_bytes(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return 0;
  return std::min(static_cast<double>(tensor.numel()) * static_cast<double>(tensor.itemsize()),
                  static_cast<double>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes()));
}

// How far apart the rows of a matrix are, or its columns where it is transposed.
static int64_t leading(const at::Tensor& matrix) {
  if (matrix.dim() < 2) return 0;
  return matrix.stride(-1) == 1 ? matrix.stride(-2) : matrix.stride(-1);
}

// Whether the elements that a product sums over are neighbours in memory.
static bool sums_neighbours(const at::Tensor& matrix, int64_t dim) {
  return matrix.dim() < 2 || matrix.size(dim) == 1 || matrix.stride(dim) == 1;
}

// [.., m, k] x [.., k, n] is 2 m k n operations.
static void describe_product(const Operator& info, c10::ArrayRef<IValue> arguments, Work& work) {
  const size_t first = info.first_matrix;
  if (arguments.size() < first + 2 || !arguments[first].isTensor() ||
      !arguments[first + 1].isTensor())
    return;
  const auto& left = arguments[first].toTensor();
  const auto& right = arguments[first + 1].toTensor();
  if (left.dim() == 0 || right.dim() == 0 || left.numel() == 0) return;
  const auto inner = left.size(-1), rows = left.dim() > 1 ? left.size(-2) : 1,
             columns = right.dim() > 1 ? right.size(-1) : 1;
  const auto batch = left.numel() / std::max<int64_t>(1, rows * inner);
  work.flops = 2.0 * static_cast<double>(left.numel()) * static_cast<double>(columns);
  const int64_t sizes[] = {batch, rows, columns, inner};
  std::copy(sizes, sizes + 4, work.sizes);
  // tensor cores read 16 bytes at a time: a slower kernel is used for rows that do not begin at
  // such a boundary
  const auto unit = std::max<int64_t>(1, 16 / static_cast<int64_t>(left.itemsize()));
  const bool aligned =
      columns % unit == 0 && leading(left) % unit == 0 && leading(right) % unit == 0;
  work.access = aligned ? plain : strided;
  // tensor cores take fp32 only with these neighbours: others are turned on their way
  const int num_turned = !sums_neighbours(left, -1) + !sums_neighbours(right, -2);
  if (aligned && num_turned > 0 && work.dtype == tf32)
    work.access = num_turned == 2 && batch == 1 ? turned : converting;
}

// The access of an operator, from all its tensors of more than one element.
struct AccessOf {
  const c10::TensorImpl *first = nullptr, *read = nullptr;
  Access access = plain;
  bool converts = false, casts = false;  // casts: what it reads has several types
  std::vector<const c10::TensorImpl*> tensors;

  void look(const at::Tensor& tensor, bool is_read = true) {
    if (!tensor.is_cuda() || tensor.numel() <= 1) return;
    tensors.push_back(tensor.unsafeGetTensorImpl());
    if (!first) first = tensors[0];
    converts = converts || tensor.dtype() != first->dtype();
    if (is_read && !read) read = tensors.back();
    casts = casts || (is_read && tensor.dtype() != read->dtype());
    if (access == plain && converts) access = converting;
    if (tensor.sizes() != first->sizes() || tensor.strides() != first->strides() ||
        !tensor.is_non_overlapping_and_dense())
      access = strided;
  }
};

// What follows strides, or only seems to: sizes[0] is -1, [1] has the elements, [2] the dimensions
// that cannot be joined, 16 more for each tensor whose neighbours lie apart and 256 more where
// types are cast; [3] how far apart in time such neighbours are read.
static void note_walk(const AccessOf& access, const at::Tensor& written, Work& work) {
  if (access.access != strided || !written.defined() || !written.is_cuda()) return;
  const auto walk = walk_through(written.unsafeGetTensorImpl(), access.tensors);
  if (walk.in_vectors()) {
    work.access = access.converts ? converting : plain;
  } else {
    work.sizes[0] = -1;
    work.sizes[1] = walk.elements;
    work.sizes[2] = walk.dims + 16 * walk.apart + 256 * access.casts;
    work.sizes[3] = walk.reach;
  }
}

static bool products_in_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

// The dimension whose elements are neighbours in memory, -1 where there is none.
static int64_t innermost(const at::Tensor& tensor) {
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim)
    if (tensor.stride(dim) == 1 && tensor.size(dim) > 1) return dim;
  return -1;
}

// Elements of a tensor that another one names; `most` is how many. Rows, which lie behind the
// dimension that is named, are read as a whole where they begin at multiples of 16 bytes.
static void count_named(const Operator& info, c10::ArrayRef<IValue> arguments, int64_t most,
                        Work& work) {
  const auto& tensor = arguments[0].toTensor();
  const auto size = static_cast<int64_t>(tensor.itemsize());
  work.num_bytes += static_cast<double>(most * size * info.passes_by_name);
  int64_t row = 1;
  const auto dim = arguments[1].isInt() ? arguments[1].toInt() : 0;
  for (auto i = dim < 0 ? dim + tensor.dim() + 1 : dim + 1; i < tensor.dim(); ++i)
    row *= tensor.size(i);
  if (info.passes_by_name > 1 || row * size % 16 == 0)
    work.sizes[3] = most / std::max<int64_t>(1, row);
  if (info.adds_up) work.sizes[1] = most, work.sizes[2] = tensor.numel();
}

// How many elements that lie beside each other are in those dimensions; none given: in all.
static int64_t neighbours_in(const at::Tensor& tensor, const std::vector<int64_t>& dims) {
  std::vector<bool> is_in(tensor.dim(), dims.empty());
  for (const auto dim : dims) is_in[dim < 0 ? dim + tensor.dim() : dim] = true;
  int64_t run = 1;
  for (bool grows = true; grows;) {
    grows = false;
    for (int64_t dim = 0; dim < tensor.dim() && !grows; ++dim) {
      grows = is_in[dim] && tensor.size(dim) > 1 && tensor.stride(dim) == run;
      if (grows) run *= tensor.size(dim);
    }
  }
  return run;
}

// Rows, channels or results that a kernel goes through side by side.
static void count_units(const Operator& info, c10::ArrayRef<IValue> arguments, Work& work) {
  if (info.units_dimension >= 0) {
    auto largest = [&](const at::Tensor& tensor) {
      if (tensor.dim() > info.units_dimension)
        work.sizes[3] = std::max(work.sizes[3], tensor.size(info.units_dimension));
    };
    for (const auto& argument : arguments) for_each_tensor(argument, largest);
  }
  if (info.goes_along < 0 || !arguments[0].isTensor()) return;
  const auto& tensor = arguments[0].toTensor();
  const auto& given = arguments[info.goes_along];
  std::vector<int64_t> dims;
  if (given.isInt()) dims = {given.toInt()};
  if (given.isIntList()) dims = given.toIntVector();
  const auto inner = innermost(tensor);
  int64_t along = dims.empty() ? tensor.numel() : 1;
  bool takes_inner = dims.empty() || inner < 0;
  for (const auto dim : dims) {
    const auto wrapped = dim < 0 ? dim + tensor.dim() : dim;
    if (wrapped < 0 || wrapped >= tensor.dim()) return;
    along *= tensor.size(wrapped);
    takes_inner = takes_inner || wrapped == inner;
  }
  work.sizes[0] = takes_inner ? 0 : 1;
  work.sizes[3] = tensor.numel() / std::max<int64_t>(1, along);
  if (info.reduction) {
    work.sizes[1] = along;
    work.sizes[2] = neighbours_in(tensor, dims);
  }
}

// sizes[1], [2]: elements of both; [3]: pixels of the larger. Channels last have another kernel.
static void count_pixels(const Operator& info, const at::Tensor& given, const at::Tensor& found,
                         Work& work) {
  work.sizes[1] = given.numel();
  work.sizes[2] = found.numel();
  const auto& large = given.numel() > found.numel() ? given : found;
  if (large.dim() > 2 && large.is_contiguous())
    work.sizes[3] = large.numel() / std::max<int64_t>(1, large.size(0) * large.size(1));
  else if (info.by_element) {
    work.sizes[0] = 1;
    work.sizes[3] = large.numel();
  }
}

// A triangular system: how many, their rows, and the columns of what is solved for.
static void describe_system(const at::Tensor& matrix, const at::Tensor& wanted, Work& work) {
  const auto rows = std::max<int64_t>(1, matrix.size(-1));
  work.sizes[0] = matrix.numel() / (rows * rows);
  work.sizes[1] = rows;
  work.sizes[2] = wanted.numel() / std::max<int64_t>(1, work.sizes[0] * rows);
}

// Shape.cu has a kernel for tensors that lie densely and are joined 16 bytes at a time (1), for
// others that lie densely (2), and for those that do not (3); the rest is copied one by one (4).
static int64_t kind_of_join(c10::ArrayRef<IValue> arguments, const at::Tensor& joined) {
  bool is_dense = true, is_last = true, is_dense_last = true, is_aligned = true;
  const auto given = arguments[1].toInt();
  const auto tensors = arguments[0].toTensorVector();
  if (joined.dim() > 4 || tensors.size() < 2) return 4;
  for (const auto& tensor : tensors) {
    if (tensor.dim() == 0 || tensor.numel() == 0) continue;
    if (tensor.scalar_type() != joined.scalar_type()) return 4;
    is_dense = is_dense && tensor.is_contiguous();
    is_last = is_last && tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
    is_dense_last = is_dense_last && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
    auto inner = static_cast<int64_t>(tensor.itemsize());
    for (auto i = given < 0 ? given + tensor.dim() : given; i < tensor.dim(); ++i)
      inner *= tensor.size(i);
    is_aligned = is_aligned && inner % 16 == 0;
  }
  if (is_dense) return is_aligned ? 1 : 2;
  if (is_last) return is_dense_last ? 2 : 4;
  return 3;
}

// How many elements that lie beside each other come from one tensor, in the mean.
static int64_t run_of_join(c10::ArrayRef<IValue> arguments, const at::Tensor& joined) {
  const auto given = arguments[1].toInt();
  int64_t run = 1;
  for (auto i = given < 0 ? given + joined.dim() : given; i < joined.dim(); ++i)
    run *= joined.size(i);
  return std::max<int64_t>(1, run / static_cast<int64_t>(arguments[0].toListRef().size()));
}

// sizes[1]: elements, [2]: the mean run, [3]: the kind
static void note_joined(c10::ArrayRef<IValue> arguments, const at::Tensor& joined, Work& work) {
  work.sizes[1] = joined.numel();
  work.sizes[2] = run_of_join(arguments, joined);
  work.sizes[3] = kind_of_join(arguments, joined);
  work.access = work.sizes[3] == 1 ? plain : strided;
}

// The results, the elements of a window, and what windows are taken of; [0]: whether channels are
// neighbours in memory.
static void note_pool(c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results,
                      bool is_backward, Work& work) {
  const auto& found = is_backward ? arguments[0].toTensor() : results[0].toTensor();
  const auto& given = arguments[is_backward].toTensor();
  const auto window = arguments[1 + is_backward].toIntVector();
  work.sizes[0] = given.dim() > 3 && !given.is_contiguous() && given.stride(-given.dim() + 1) == 1;
  work.sizes[1] = found.numel();
  work.sizes[2] = 1;
  for (size_t i = 0; i + 2 < static_cast<size_t>(std::max<int64_t>(4, given.dim())); ++i)
    work.sizes[2] *= window[std::min(i, window.size() - 1)];
  work.sizes[3] = given.numel();
}

// sizes[0]: 0, or 2 where the nearest element is taken; points, channels, elements of the whole
static void note_sampled(c10::ArrayRef<IValue> arguments, bool is_backward, Work& work) {
  const auto& whole = arguments[is_backward].toTensor();
  const auto& grid = arguments[1 + is_backward].toTensor();
  work.sizes[0] = arguments[2 + is_backward].toInt() == 0 ? 0 : 2;
  work.sizes[1] = grid.numel() / std::max<int64_t>(1, grid.size(-1));
  work.sizes[2] = whole.size(1);
  work.sizes[3] = whole.numel();
}

// sizes[0]: whether the norms are of another dimension than the first; [1]: the elements that each
// is made of, [3]: how many
static void note_weight_norm(c10::ArrayRef<IValue> arguments, bool is_backward, Work& work) {
  const auto& weight = arguments[is_backward].toTensor();
  work.sizes[0] = arguments[is_backward ? 4 : 2].toInt() == 0 ? 0 : 1;
  work.sizes[3] = arguments[1 + is_backward].toTensor().numel();
  work.sizes[1] = weight.numel() / std::max<int64_t>(1, work.sizes[3]);
}

static Work work_of(const Operator& info, c10::ArrayRef<IValue> arguments,
                    const std::vector<IValue>& results) {
  Work work{0, 0, {0, 0, 0, 0}, info.name, -1, forward, no_kernel};
  if (info.uninitialised || only_views(info)) return work;
  AccessOf access;
  // the tensor that has elements which another names: all of it is copied where it is not changed
  const at::Tensor* whole =
      info.passes_by_name && arguments[0].isTensor() ? &arguments[0].toTensor() : nullptr;
  const bool copies = info.passes_by_name > 1 && info.written_arguments.empty();
  int64_t most = 0;
  bool is_result = false;
  auto count = [&](const at::Tensor& tensor) {
    const bool is_whole = whole && (tensor.is_same(*whole) || (copies && is_result));
    if (!is_whole || copies) work.num_bytes += moved_bytes(tensor);
    if (!is_whole) most = std::max(most, tensor.numel());
    // a mask is no number that would be cast
    access.look(tensor, !is_result && !(info.masks && tensor.scalar_type() == at::kBool));
    if (work.dtype < 0 && tensor.is_floating_point())
      work.dtype = static_cast<int32_t>(tensor.scalar_type());
  };
  const bool has_out = info.overwrites && !info.fills;  // which is a result as well
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!has_out || !info.writes_to(i)) for_each_tensor(arguments[i], count);
  is_result = true;
  for (const auto& result : results) for_each_tensor(result, count);
  if (whole) count_named(info, arguments, most, work);
  count_units(info, arguments, work);
  if (info.by_pixel && !results.empty() && results[0].isTensor())
    count_pixels(info, arguments[0].toTensor(), results[0].toTensor(), work);
  if (info.solves) describe_system(arguments[0].toTensor(), arguments[1].toTensor(), work);
  work.access = access.access;
  if (info.pointwise && !results.empty() && results[0].isTensor())
    note_walk(access, results[0].toTensor(), work);
  if (info.joins && arguments.size() > 1 && arguments[0].isTensorList())
    note_joined(arguments, results[0].toTensor(), work);
  if (info.pools) note_pool(arguments, results, info.is_backward, work);
  if (info.looks_up_points) note_sampled(arguments, info.is_backward, work);
  if (!arguments.empty() && arguments[0].isTensorList())
    work.sizes[0] = static_cast<int64_t>(arguments[0].toListRef().size());
  if (info.is_gemm && work.dtype == static_cast<int32_t>(at::kFloat) && products_in_tf32())
    work.dtype = tf32;
  if (info.is_gemm) describe_product(info, arguments, work);
  if (info.norms_weights) note_weight_norm(arguments, info.is_backward, work);
  return work;
}

static void note_work(const Operator& info, c10::ArrayRef<IValue> arguments,
                      const std::vector<IValue>& results) {
  work_log.add(work_of(info, arguments, results));
}

// As the same operator did with such arguments, where all that it depends on is described. Other
// things are the precision of products, and whether a tensor is given twice.
static void note_work(const Operator& info, c10::ArrayRef<IValue> arguments,
                      const std::vector<IValue>& results, const Described& described) {
  if (const auto* work = described.work.load(std::memory_order_acquire))
    return work_log.add(*work);
  const auto work = work_of(info, arguments, results);
  work_log.add(work);
  if (described.is_kept && !info.is_gemm && !info.passes_by_name) described.remember(work);
}

static void note_copy(const Operator& info, const at::Tensor& destination, const at::Tensor& source,
                      bool non_blocking) {
  AccessOf access;
  access.look(source);
  access.look(destination);
  // sizes[0]: whether it crosses from the host (1) or to it (2)
  const int64_t crosses = destination.is_cuda() == source.is_cuda() ? 0
                          : destination.is_cuda()                   ? 1
                                                                    : 2;
  const auto num_bytes = moved_bytes(destination) + moved_bytes(source);
  // sizes[1]: whether the host's memory is pinned; sizes[2]: whether the host goes on meanwhile
  const auto& on_host = destination.is_cuda() ? source : destination;
  const int64_t is_pinned = crosses && PinnedAllocator::owns(on_host.storage().data()) ? 1 : 0;
  const int64_t goes_on = is_pinned && non_blocking ? 1 : 0;
  // sizes[3]: whether neighbours in one are not neighbours in the other
  const int64_t is_transposed =
      !crosses && access.access == strided && innermost(source) != innermost(destination) ? 1 : 0;
  Work work{0,
            num_bytes,
            {crosses, is_pinned, goes_on, is_transposed},
            info.name,
            static_cast<int32_t>(destination.scalar_type()),
            forward,
            access.access};
  if (!crosses) note_walk(access, destination, work);
  if (work.access != strided) work.sizes[3] = 0;
  work_log.add(work, is_transposed);  // what a kernel copies into another layout takes long
}

}  // namespace vramcast
