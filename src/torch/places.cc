#include "torch/places.h"

#include <c10/core/CPUAllocator.h>
#include <pliant/types.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/version.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "net/shared_memory.h"

namespace pliant::adapter {
namespace {

constexpr int kMisses = 3;  // evictions in a row after which a place is withdrawn

[[noreturn]] void fail(const char* what) { throw Failure(Code::io, std::string(what) + ": " + std::strerror(errno)); }

bool in_backward() { return torch::autograd::get_current_graph_task_exec_info() != nullptr; }

}  // namespace

/// A second mapping of a place's memory. It belongs to the place, or, after an eviction, to the tensor in it.
struct Places::Window {
  std::byte* memory = nullptr;  // the place, as its user sees it
  std::size_t bytes = 0;        // of the tensor
  std::byte* at = nullptr;
  std::thread::id thread = std::this_thread::get_id();
  bool taken = false;
  bool offered = true;
  bool left = false;  // to the tensor in it
  int misses = 0;

  std::size_t mapped() const { return net::round_up(bytes, net::kPage); }

  void map() {
    // An old size of nought asks for a second mapping of shared pages. A new mmap of a sealed segment is refused.
    void* got = mremap(memory, 0, mapped(), MREMAP_MAYMOVE);
    if (got == MAP_FAILED) fail("a second mapping of registered memory");
    madvise(got, mapped(), MADV_POPULATE_WRITE);  // now and not in the first backward; older kernels know no such thing
    at = static_cast<std::byte*>(got);
  }
};

/// Stands in front of LibTorch's allocator for the rest of the process: tensors hold on to its deleter.
class Places::Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static auto* allocator = new Allocator;
    return *allocator;
  }

#if TORCH_VERSION_MAJOR < 2
  c10::DataPtr allocate(std::size_t bytes) const override { return const_cast<Allocator*>(this)->give(bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) override { return give(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void offer(std::shared_ptr<Window> window) {
    std::lock_guard lock(mutex_);
    windows_.emplace(window->at, window);
    offers_.push_back(std::move(window));
    offered_ = true;
  }

  void withdraw(const std::shared_ptr<Window>& window) {
    std::lock_guard lock(mutex_);
    std::erase(offers_, window);
    window->left = true;
    if (!window->taken) unmap(window->at);
  }

  void confirm(Window& window) {
    std::lock_guard lock(mutex_);
    window.misses = 0;
  }

  std::byte* take(Window& window) {
    std::lock_guard lock(mutex_);
    if (window.taken) vacate(window);
    window.taken = true;
    return window.at;
  }

  static void give_back(void* at) {
    auto& self = instance();
    {
      std::lock_guard lock(self.mutex_);
      if (auto found = self.windows_.find(at); found != self.windows_.end()) {
        found->second->taken = false;
        if (found->second->left) self.unmap(static_cast<std::byte*>(at));
        return;
      }
    }
    self.before_->raw_deleter()(at);  // raw_allocate() gave it
  }

 private:
  Allocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 255); }

  /// Leaves the window to the tensor that lives in it, with memory of its own behind the same addresses.
  void vacate(Window& window) {
    void* fresh = mmap(nullptr, window.mapped(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) fail("memory for a tensor");
    std::memcpy(fresh, window.at, window.bytes);
    if (mremap(fresh, window.mapped(), window.mapped(), MREMAP_MAYMOVE | MREMAP_FIXED, window.at) == MAP_FAILED)
      fail("moving a tensor");
    auto& known = windows_.at(window.at);
    auto self = known;
    known = std::make_shared<Window>(window);
    known->left = true;
    window.map();
    window.offered = window.offered && ++window.misses < kMisses;
    windows_.emplace(window.at, std::move(self));
  }

  c10::DataPtr give(std::size_t bytes) {
    if (bytes < kLeast || !offered_.load(std::memory_order_relaxed) || !in_backward()) return before_->allocate(bytes);
    {
      std::lock_guard lock(mutex_);
      for (auto& window : offers_) {
        bool fits = window->bytes == bytes && window->thread == std::this_thread::get_id();
        if (!fits || window->taken || !window->offered) continue;
        window->taken = true;
        return {window->at, window->at, &give_back, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return before_->allocate(bytes);
  }

  void unmap(std::byte* at) {
    auto found = windows_.find(at);
    munmap(at, found->second->mapped());
    windows_.erase(found);
  }

  c10::Allocator* const before_;
  std::atomic<bool> offered_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Window>> offers_;
  std::unordered_map<void*, std::shared_ptr<Window>> windows_;  // by address, those left to tensors included
};

Places::~Places() {
  for (auto& window : windows_) Allocator::instance().withdraw(window);
}

std::size_t Places::add(std::byte* memory, std::size_t bytes) {
  auto window = std::make_shared<Window>();
  window->memory = memory;
  window->bytes = bytes;
  window->map();
  Allocator::instance().offer(window);
  windows_.push_back(std::move(window));
  return windows_.size() - 1;
}

std::byte* Places::address(std::size_t place) const { return windows_[place]->at; }
void Places::confirm(std::size_t place) { Allocator::instance().confirm(*windows_[place]); }
std::byte* Places::take(std::size_t place) { return Allocator::instance().take(*windows_[place]); }
void Places::give_back(void* address) { Allocator::give_back(address); }

}  // namespace pliant::adapter
