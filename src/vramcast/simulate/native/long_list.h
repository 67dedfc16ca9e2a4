// A list that may have hundreds of megabytes, as those of what a long step did.
#pragma once
#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace vramcast {

// In pages of 2 MiB: to get as much memory in pages of 4 KiB takes longer than to fill it.
template <typename Item>
struct LargePages {
  using value_type = Item;
  static constexpr size_t page_bytes = 2 << 20;

  Item* allocate(size_t count) {
    const auto num_bytes = count * sizeof(Item);
    if (num_bytes < 2 * page_bytes) return static_cast<Item*>(::operator new(num_bytes));
    const auto rounded = (num_bytes + page_bytes - 1) / page_bytes * page_bytes;
    auto* memory = std::aligned_alloc(page_bytes, rounded);
    if (!memory) throw std::bad_alloc();
    madvise(memory, rounded, MADV_HUGEPAGE);
    return static_cast<Item*>(memory);
  }
  void deallocate(Item* memory, size_t count) {
    if (count * sizeof(Item) < 2 * page_bytes)
      ::operator delete(memory);
    else
      std::free(memory);
  }
  bool operator==(const LargePages&) const { return true; }
};

// Memory that is not written to costs nothing, to copy what there is does.
template <typename Item>
struct LongList : std::vector<Item, LargePages<Item>> {
  void push_back(const Item& item) {
    const auto count = this->size();
    if (count == this->capacity()) this->reserve(count < (4 << 20) ? 4 * count + 16 : 2 * count);
    std::vector<Item, LargePages<Item>>::push_back(item);
  }
};

}  // namespace vramcast
