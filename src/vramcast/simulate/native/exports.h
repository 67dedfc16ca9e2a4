// The functions that Python calls through ctypes (vramcast/simulate/device.py).
#pragma once
#include "locations.h"
#include "replay.h"
#include "work.h"

#include <limits>
#include <malloc.h>

namespace vramcast {
template <typename Items>
int64_t copy_list(ShortMutex& mutex, const Items& list, typename Items::value_type* to,
                  int64_t start, int64_t room) {
  const std::lock_guard lock(mutex);
  const auto count = static_cast<int64_t>(list.size());
  if (start < count) std::copy_n(list.begin() + start, std::min(count - start, room), to);
  return count;
}
template <typename Item, typename Get>
int64_t copy_work(Item* to, int64_t start, int64_t room, const Get& get) {
  const std::lock_guard lock(work_log.mutex);
  const auto count = static_cast<int64_t>(work_log.list.size());
  for (int64_t i = start; i < std::min(count, start + room); ++i) to[i - start] = get(i);
  return count;
}
// Its memory too: of a long step these are hundreds of megabytes.
template <typename Items>
void give_back(Items& list) {
  Items().swap(list);
}

// DistributedDataParallel of a torch for CUDA times its passes with CUDA events, which want a
// driver. Without a timer it times nothing.
static void remove_ddp_timer() {
  static const bool done = [] {
    c10d::TimerRegistry()->Register(
        c10::kCUDA, [](c10::Device) { return std::unique_ptr<c10d::Timer>(); },
        c10::REGISTRY_PREFERRED);
    return true;
  }();
  (void)done;
}
}  // namespace vramcast

extern "C" {
using namespace vramcast;

int64_t vramcast_used_gpus() { return used_gpus.exchange(0); }

void vramcast_install() {
  remove_ddp_timer();
  c10::SetAllocator(c10::kCUDA, &device_allocator, 255);
  register_device_kernels();
  install_rnn_stubs();
  install_sparse_stubs();
  install_matrix_stub();
  install_fused_operators();
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&sdp_choice);
}
void vramcast_reset() {
  {
    const std::lock_guard lock(recorder.mutex);
    give_back(recorder.events);
    give_back(recorder.allocations);
    give_back(recorder.shapes);
    recorder.node_locations.clear();
    recorder.workspaces.clear();
    recorder.used_after.clear();
    streams.clear();
    give_back(work_log.list);
    work_log.begins.clear();
    num_works = 0;
    communicated.clear();
    gpu_engine = at::mt19937(0);
    recorder.epoch += 1;
    host_bytes_left = most_host_bytes;
    deferred_bytes_left = most_deferred_bytes;
    recorder.allocated_bytes = recorder.peak_allocated_bytes = 0;
  }
  record_what_stays();
}
// Large arrays take what was freed before: the kernel would clear new memory for every one.
void vramcast_keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}
void vramcast_keep_all() {
  const std::lock_guard lock(blocks_mutex);
  for (const auto& [address, block] : blocks) block->stays = true;
}
void vramcast_set_gpu(int32_t num_multiprocessors, int32_t max_threads,
                      int64_t gemm_workspace_bytes, int64_t gemm_lt_workspace_bytes,
                      bool keeps_gemm_workspaces) {
  gpu = {num_multiprocessors, max_threads};
  recorder.gemm_workspace_bytes = gemm_workspace_bytes;
  recorder.gemm_lt_workspace_bytes = gemm_lt_workspace_bytes;
  recorder.keeps_gemm_workspaces = keeps_gemm_workspaces;
}
// With Python's global lock held.
void vramcast_set_location_callbacks(int64_t (*number_new)(_object*, int32_t),
                                     int32_t (*is_of_user)(_object*), int64_t minimum_bytes) {
  recorder.location_callback = number_new ? &locate_here : nullptr;
  recorder.location_minimum_bytes = minimum_bytes;
  locations.forget();
  locations.number_new = number_new;
  locations.is_of_user = is_of_user;
}
void vramcast_set_running_modules(_object* list) {
  Py_IncRef(list);
  if (Locations::running()) Py_DecRef(Locations::running());
  Locations::running() = list;
}
void vramcast_begin_values(bool computes) {
  computing.begin(computes);
  guess_was_read = false;
}
bool vramcast_computes() { return computing.is_on; }
bool vramcast_computing_ended() { return computing.has_ended; }
double vramcast_computing_seconds() { return computing.seconds; }
// A kernel written in Python guesses, or the host waits for its result.
void vramcast_guess() { kernel_has_guessed = true; }
// Copies the contents of a tensor to the host. False where they are not known. It is no read of the
// program.
bool vramcast_copy_known(int64_t tensor, int64_t host) {
  auto* address = reinterpret_cast<c10::TensorImpl*>(tensor);
  const at::Tensor given(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(address));
  const auto values = is_guess(given) ? at::Tensor() : known_values(given);
  if (!values.defined()) return false;
  BelowSimulation below;
  const auto whole = values.contiguous();
  memcpy(reinterpret_cast<void*>(host), whole.const_data_ptr(), whole.nbytes());
  return true;
}
void vramcast_read_result() { guess_was_read = guess_was_read || kernel_has_guessed; }
bool vramcast_has_guessed() { return guess_was_read; }
void vramcast_begin_reads(int64_t num) { num_reads_left = num; }
void vramcast_begin_overlaps(double share) { overlaps = {share, false}; }
bool vramcast_overlaps_were_asked() { return overlaps.were_asked; }
void vramcast_set_healthy(double value, double gradient) { healthy = {value, gradient}; }
void vramcast_set_limit_callback(int32_t (*callback)(int64_t, int64_t)) {
  recorder.limit_callback = callback;
}
void vramcast_set_out_of_memory_message(const char* message) {
  recorder.out_of_memory_message = message;
}
void vramcast_set_finished_callback(int64_t (*callback)(int64_t)) { finished_callback = callback; }
void vramcast_set_meta_loader(int32_t (*loader)()) { load_more_meta_kernels = loader; }
int32_t vramcast_begin_kernel(const char* name) {
  if (WorkLog::depth()++ == 0) kernel_has_guessed = false;
  return recorder.begin_kernel(name);
}
void vramcast_end_kernel(int32_t before) {
  WorkLog::depth() -= 1;
  recorder.end_kernel(before);
}
void vramcast_mark(int64_t event) {
  {
    const std::lock_guard lock(recorder.mutex);
    recorder.events.push_back(event);
  }
  if (event == 0) work_log.add({0, 0, {0, 0, 0, 0}, -1, -1, forward, 0});
}
int64_t vramcast_allocated() { return recorder.allocated_bytes; }
int64_t vramcast_peak_allocated() { return recorder.peak_allocated_bytes; }
// Each returns how long its list is, and copies as much of it from `start` on as there is room for.
// The lists may grow meanwhile, and then move: other threads of the program may be running.
int64_t vramcast_events(int64_t* to, int64_t start, int64_t room) {
  return copy_list(recorder.mutex, recorder.events, to, start, room);
}
int64_t vramcast_allocations(Allocation* to, int64_t start, int64_t room) {
  return copy_list(recorder.mutex, recorder.allocations, to, start, room);
}
int64_t vramcast_shapes(int64_t* to, int64_t start, int64_t room) {
  return copy_list(recorder.mutex, recorder.shapes, to, start, room);
}
int64_t vramcast_work(Work* to, int64_t start, int64_t room) {
  return copy_work(to, start, room, [](int64_t i) { return work_log.list[i]; });
}
int64_t vramcast_done(Done* to, int64_t start, int64_t room) {
  return copy_work(to, start, room, [](int64_t i) { return work_log.list.done(i); });
}
void vramcast_kind_of_work(Work* to, int64_t number) {
  const std::lock_guard lock(work_log.mutex);
  *to = work_log.list.kind(number);
}
// For each row which of the distinct ones it is, and where each of these is first. Returns how many
// are distinct.
int64_t vramcast_distinct(int64_t count, int64_t row_bytes, const char* rows, int64_t* places,
                          int64_t* firsts) {
  std::unordered_map<std::string_view, int64_t> known;
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view row(rows + i * row_bytes, row_bytes);
    const auto [found, is_new] = known.try_emplace(row, static_cast<int64_t>(known.size()));
    if (is_new) firsts[found->second] = i;
    places[i] = found->second;
  }
  return static_cast<int64_t>(known.size());
}
int64_t vramcast_work_begins(int64_t* to, int64_t start, int64_t room) {
  return copy_list(work_log.mutex, work_log.begins, to, start, room);
}
void vramcast_add_work(const char* name, int32_t dtype, double flops, double num_bytes,
                       const int64_t* sizes, int32_t access) {
  work_log.add({flops,
                num_bytes,
                {sizes[0], sizes[1], sizes[2], sizes[3]},
                recorder.intern(name),
                dtype,
                forward,
                access});
}
void vramcast_add_extension_operator(const char* name) { extension_names.insert(name); }
const char* vramcast_name(int64_t index) { return recorder.names.at(index).c_str(); }
int64_t vramcast_block_id(int64_t address) {
  const auto* block = block_at(address);
  return block ? block->id : 0;
}
int64_t vramcast_block_bytes(int64_t address) {
  const auto* block = block_at(address);
  return block ? block->num_bytes : 0;
}
void vramcast_block_ids(const int64_t* addresses, int64_t count, int64_t* ids) {
  for (int64_t i = 0; i < count; ++i) ids[i] = vramcast_block_id(addresses[i]);
}
void vramcast_make_default_generators(bool makes) { makes_default_generators = makes; }
void vramcast_draw_elements(int64_t count, int64_t per_thread) {
  if (count) draw_elements(count, per_thread);
}
void vramcast_take_random(int64_t count) { gpu_random.take(count); }
void vramcast_begin_pool(int64_t pool, int64_t stream, bool of_thread) {
  private_pools.begin(pool, stream, of_thread);
}
void vramcast_end_pool(int64_t pool) { private_pools.end(pool); }
void vramcast_begin_capture(int64_t stream) {
  captured_stream = stream;
  is_capturing = true;
}
void vramcast_end_capture() { is_capturing = false; }
void vramcast_take_gemm_workspace(bool lt) { recorder.take_gemm_workspace(lt); }
void vramcast_drop_gemm_workspaces() { recorder.drop_gemm_workspaces(); }
// One more or one less is going on.
void vramcast_count_compilations(int64_t change) { recorder.num_compiling += change; }
// Of a workspace that a compilation took first: the last allocation before the program used it. 0
// if it never did, -1 for any other allocation.
int64_t vramcast_used_after(int64_t allocation) {
  const std::lock_guard lock(recorder.mutex);
  const auto found = recorder.used_after.find(allocation);
  return found == recorder.used_after.end() ? -1 : found->second;
}
// A graph is replayed: the work from `begin` to `end` is done again, and the host launches nothing.
int64_t vramcast_num_work() { return work_log.size(); }
void vramcast_note_group(const char* name, int64_t in_machine) {
  gpus_in_machine[name] = in_machine;
}
void vramcast_wait_for_groups() { note_wait_for_groups(); }
void vramcast_wait_for_collective(int64_t number) { note_wait_for(number); }
// What was done since was a replay, or was only captured.
void vramcast_replayed_since(int64_t begin) { work_log.mark_since(begin, replayed); }
void vramcast_captured_since(int64_t begin) { work_log.mark_since(begin, captured); }
void vramcast_repeat_work(int64_t begin, int64_t end) { work_log.repeat(begin, end); }
void vramcast_append_work(int64_t begin, int64_t end) { work_log.append(begin, end); }
int64_t vramcast_stream() { return current_stream(); }
void vramcast_set_stream(int64_t stream) { current_stream() = stream; }
int32_t vramcast_stream_priority(int64_t stream) { return Streams::priority_of(stream); }
double vramcast_elapsed_milliseconds(int64_t from, int64_t to) {
  return elapsed_milliseconds(*reinterpret_cast<Event*>(from), *reinterpret_cast<Event*>(to));
}
// The host waits for the current stream, or for all.
int64_t vramcast_num_held() { return streams.num_held(); }
void vramcast_finish_stream() {
  ++num_host_reads;
  streams.finish(current_stream());
}
int64_t vramcast_num_host_reads() { return num_host_reads; }
void vramcast_finish_all() {
  streams.finish_all();
  streams.wait_on_host();
}
// For torch.UntypedStorage(size, allocator=...).
int64_t vramcast_device_allocator() { return reinterpret_cast<int64_t>(&device_allocator); }
int64_t vramcast_host_allocator() { return reinterpret_cast<int64_t>(&lazy_host_allocator); }
void vramcast_resize_storage(int64_t storage, int64_t num_bytes) {
  resize_storage(reinterpret_cast<c10::StorageImpl*>(storage), num_bytes);
}
bool vramcast_wants_one_device(const char* name) { return wants_one_device(name); }
// Lets one operator through to its real kernel; returns what to restore.
bool vramcast_set_excluded(bool excluded) {
  const bool before = c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Fake);
  c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, excluded);
  return before;
}
// A thread ends: a later one may have its handle of cuBLAS. The system would say so too late.
void vramcast_end_thread() { Recorder::blas_handle().reset(); }
void vramcast_set_recording(bool recording) { is_recording = recording; }
// For this thread.
void vramcast_enable(bool enabled) {
  c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, enabled);
}
// In the calling thread, as sys.setprofile(profiler) would: sys.getprofile() returns `profiler`.
void vramcast_count_python_calls(_object* profiler, int32_t (*kind_of)(_object*)) {
  python_calls.kind_of = kind_of;
  python_calls.profiler = profiler;
  python_calls.is_counting = is_counted_thread = true;
  python_calls.skipped_depth() = 0;
  PyEval_SetProfile(&see_python_call, profiler);
}
// Inside of a function of the simulation, which is not counted: Python is slower while it tells.
void vramcast_pause_python_calls(bool paused) {
  PyEval_SetProfile(paused ? nullptr : &see_python_call, paused ? nullptr : python_calls.profiler);
}
void vramcast_restart_python_calls() { python_calls.of_step = python_calls.skipped_depth() = 0; }
void vramcast_stop_python_calls() {
  python_calls.is_counting = false;
  PyEval_SetProfile(nullptr, nullptr);
  python_calls.forget();
}
int64_t vramcast_num_python_calls() { return python_calls.of_step; }
// Of functions that something of the simulation stands for.
void vramcast_add_python_calls(int64_t count) {
  if (python_calls.is_counting) python_calls.of_step += count;
}
}
