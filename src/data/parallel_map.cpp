// map with several calls at once.

#include <chrono>
#include <list>

#include "data/element_scope.h"
#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "data/pass_seeds.h"
#include "data/worker_pool.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

/// A call under way, what it gave, or the exception that stands in its place.
struct Slot {
  std::optional<Nest> result;
  std::exception_ptr error;
  bool finished = false;
};

std::size_t bytes_of(const Nest& element) {
  std::size_t bytes = 0;
  element.for_each([&](const Tensor& leaf) {
    if (leaf.defined() && !leaf.is_sparse()) bytes += leaf.nbytes();
  });
  return bytes;
}

/// Each thread reads an element of the input, one thread at a time, and calls the function for it.
/// Reading and calling go on as long as there is room for results.
class ParallelMapPass : public Iterator {
 public:
  ParallelMapPass(std::unique_ptr<Iterator> input, NestFunction function, const CallSeeds& seeds,
                  const MapOptions& options)
      : input_(std::move(input)),
        function_(std::move(function)),
        seeds_(seeds),
        calls_(settings_.calls(*options.num_parallel_calls)),
        most_slots_(kSlotsPerCall * static_cast<std::size_t>(calls_)),
        in_order_(options.deterministic.value_or(settings_.deterministic)) {
    if (settings_.warm_start) start();
  }
  ~ParallelMapPass() override {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
  }

  std::optional<Nest> next() override {
    if (taken_.empty()) take();
    if (taken_.empty()) return std::nullopt;
    Slot slot = std::move(taken_.front());
    taken_.pop_front();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.result);
  }

  Nest save() const override {
    std::unique_lock<Mutex> lock(mutex_);
    pause(lock);
    std::vector<Nest> results;
    for (const auto* slots : {&taken_, &slots_}) {
      for (const Slot& slot : *slots) results.push_back(state::item(slot.result, slot.error));
    }
    return Nest::map({{"input", input_->save()},
                      {"calls", seeds_.save()},
                      {"results", Nest::list(std::move(results))},
                      {"ended", state::number(ended_)}});
  }
  void restore(const Nest& saved) override {
    std::unique_lock<Mutex> lock(mutex_);
    pause(lock);
    taken_.clear();
    slots_.clear();
    num_finished_ = 0;
    input_->restore(state::part(saved, "input"));
    seeds_.restore(state::part(saved, "calls"));
    for (const Nest& result : state::list_in(saved, "results")) {
      Slot& slot = slots_.emplace_back();
      slot.finished = true;
      ++num_finished_;
      state::item_in(result, slot.result, slot.error);
    }
    ended_ = state::number_in(saved, "ended") != 0;
  }

 private:
  // Room for results behind one that takes longer. Of small ones there is more, and they are taken
  // several at a time: to wake a thread for each would take longer than many a call.
  static constexpr std::size_t kSlotsPerCall = 2;
  static constexpr std::size_t kSmallSlotsPerCall = 8;
  static constexpr std::size_t kBytesOfSmall = 128 << 10;
  /// What the thread that takes sleeps for.
  enum class Sleep { kNot, kHalf, kFirst, kPause };
  /// How long it sleeps for half of the slots before the first result will do.
  static constexpr std::chrono::microseconds kPatience{200};

  /// From here to next() no element is read and no call is under way: the seeds of the plans
  /// below stay as they are too.
  void pause(std::unique_lock<Mutex>& lock) const {
    pausing_ = true;
    sleep_ = Sleep::kPause;
    ready_.wait(lock, [this] { return busy_ == 0; });
    sleep_ = Sleep::kNot;
  }
  void start() {
    if (pool_) return;
    pool_.emplace(calls_, settings_.cores_per_thread);
    for (int i = 0; i < calls_; ++i) pool_->submit([this] { work(); });
  }
  /// Everything that may be given out next, at least one slot unless the data are at their end.
  void take() {
    start();
    std::unique_lock<Mutex> lock(mutex_);
    if (pausing_) {
      pausing_ = false;
      room_.notify_all();
    }
    if (!has_first()) {
      sleep_ = Sleep::kHalf;
      if (small_.value_or(false)) ready_.wait_for(lock, kPatience, [this] { return has_half(); });
      sleep_ = Sleep::kFirst;
      ready_.wait(lock, [this] { return has_first() || is_over(); });
      sleep_ = Sleep::kNot;
    }
    for (auto slot = slots_.begin(); slot != slots_.end();) {
      const auto next = std::next(slot);
      if (slot->finished) {
        taken_.splice(taken_.end(), slots_, slot);
        --num_finished_;
        if (!small_.value_or(false)) break;
      } else if (in_order_) {
        break;
      }
      slot = next;
    }
    const bool wake = waiting_for_room_ > 0;
    lock.unlock();
    if (wake) room_.notify_all();
  }
  bool is_over() const { return ended_ && slots_.empty(); }
  bool has_first() const {
    return in_order_ ? !slots_.empty() && slots_.front().finished : num_finished_ > 0;
  }
  bool has_half() const {
    return num_finished_ >= most_slots_ / 2 || (ended_ && num_finished_ == slots_.size());
  }
  bool is_awaited() const {
    switch (sleep_) {
      case Sleep::kNot:
        return false;
      case Sleep::kHalf:
        return has_half();
      case Sleep::kFirst:
        return has_first() || is_over();
      case Sleep::kPause:
        return busy_ == 0;
    }
    return true;
  }
  void work() {
    at::NoGradGuard no_grad;
    std::unique_lock<Mutex> lock(mutex_);
    for (;;) {
      ++waiting_for_room_;
      room_.wait(lock, [this] {
        return stop_ || (!reading_ && !pausing_ && !ended_ && slots_.size() < most_slots_);
      });
      --waiting_for_room_;
      if (stop_) return;
      ++busy_;
      if (Slot* slot = read(lock)) finish(*slot, lock);
      --busy_;
      if (is_awaited()) ready_.notify_one();
    }
  }
  /// The slot of the next element, which stands in element_; null at the end, or when it threw.
  Slot* read(std::unique_lock<Mutex>& lock) {
    reading_ = true;
    lock.unlock();
    std::optional<Nest> element;
    std::exception_ptr error;
    try {
      element = input_->next();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    reading_ = false;
    room_.notify_one();
    ended_ = !element && !error;
    if (ended_) return nullptr;
    Slot& slot = slots_.emplace_back();
    if (error) {
      slot.error = error;
      slot.finished = true;
      ++num_finished_;
      return nullptr;
    }
    slot.result = std::move(element);  // the argument, until there is a result
    return &slot;
  }
  void finish(Slot& slot, std::unique_lock<Mutex>& lock) {
    const Nest element = std::move(*slot.result);
    slot.result.reset();
    const ElementCall call = seeds_.next();
    lock.unlock();
    std::optional<Nest> result;
    std::exception_ptr error;
    try {
      ElementScope scope(call);
      result = function_(element);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (result && !small_) {
      small_ = bytes_of(*result) <= kBytesOfSmall;
      if (*small_) most_slots_ = kSmallSlotsPerCall * static_cast<std::size_t>(calls_);
    }
    slot.result = std::move(result);
    slot.error = error;
    slot.finished = true;
    ++num_finished_;
  }

  PassSettings settings_;
  std::unique_ptr<Iterator> input_;  // of the thread that reads
  NestFunction function_;
  CallSeeds seeds_;
  int calls_;
  std::size_t most_slots_;
  std::optional<bool> small_;  // the first result
  bool in_order_;
  mutable Mutex mutex_;
  mutable ConditionVariable room_;   // for the threads
  mutable ConditionVariable ready_;  // for who takes
  std::list<Slot> slots_;            // in the order of the elements
  std::size_t num_finished_ = 0;     // of them
  std::list<Slot> taken_;            // of the thread that takes: finished, in front of slots_
  int waiting_for_room_ = 0;
  int busy_ = 0;
  bool reading_ = false;
  mutable bool pausing_ = false;
  mutable Sleep sleep_ = Sleep::kNot;
  bool ended_ = false;
  bool stop_ = false;
  std::optional<WorkerPool> pool_;  // ends before what its tasks use
};

class ParallelMapPlan : public UnaryPlan {
 public:
  ParallelMapPlan(PlanPtr input, NestFunction function, const MapOptions& options,
                  std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)),
        function_(std::move(function)),
        options_(options),
        seeds_(std::move(seeds)),
        one_by_one_(map_one_by_one(inputs()[0], function_, seeds_)) {}
  std::string name() const override { return "map"; }
  std::string arguments() const override {
    return cat(
        "function", optional_text("num_parallel_calls", options_.num_parallel_calls),
        options_.deterministic ? cat(", deterministic=", bool_text(*options_.deterministic)) : "");
  }
  bool runs_functions() const override { return true; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ParallelMapPlan>(std::move(inputs[0]), function_, options_, seeds_);
  }
  SpecNest element_spec() const override { return one_by_one_->element_spec(); }
  Nest element_at(int64_t index) const override { return one_by_one_->element_at(index); }
  std::unique_ptr<Iterator> preview() const override { return one_by_one_->preview(); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<ParallelMapPass>(input().iterator(), function_, CallSeeds(*seeds_),
                                             options_);
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 private:
  NestFunction function_;
  MapOptions options_;
  std::shared_ptr<PassSeeds> seeds_;
  PlanPtr one_by_one_;
};

}  // namespace

PlanPtr plans::parallel_map(PlanPtr input, NestFunction function, const MapOptions& options) {
  check_parallel_calls("map", *options.num_parallel_calls);
  return std::make_shared<ParallelMapPlan>(std::move(input), std::move(function), options,
                                           PassSeeds::of_function());
}

}  // namespace tutti::data
