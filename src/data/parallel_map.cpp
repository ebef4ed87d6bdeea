// map with several calls at once.

#include <algorithm>
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
    start();
    std::unique_lock<Mutex> lock(mutex_);
    if (pausing_) {
      pausing_ = false;
      room_.notify_all();
    }
    auto found = slots_.end();
    ready_.wait(lock, [&] {
      found = first_finished();
      return found != slots_.end() || (ended_ && slots_.empty());
    });
    if (found == slots_.end()) return std::nullopt;
    Slot slot = std::move(*found);
    slots_.erase(found);
    const bool wake = waiting_for_room_ > 0;
    lock.unlock();
    if (wake) room_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.result);
  }

  Nest save() const override {
    std::unique_lock<Mutex> lock(mutex_);
    pause(lock);
    std::vector<Nest> results;
    for (const Slot& slot : slots_) results.push_back(state::item(slot.result, slot.error));
    return Nest::map({{"input", input_->save()},
                      {"calls", seeds_.save()},
                      {"results", Nest::list(std::move(results))},
                      {"ended", state::number(ended_)}});
  }
  void restore(const Nest& saved) override {
    std::unique_lock<Mutex> lock(mutex_);
    pause(lock);
    slots_.clear();
    input_->restore(state::part(saved, "input"));
    seeds_.restore(state::part(saved, "calls"));
    for (const Nest& result : state::list_in(saved, "results")) {
      Slot& slot = slots_.emplace_back();
      slot.finished = true;
      state::item_in(result, slot.result, slot.error);
    }
    ended_ = state::number_in(saved, "ended") != 0;
  }

 private:
  // Room for results behind one that takes longer.
  static constexpr std::size_t kSlotsPerCall = 2;

  /// From here to next() no element is read and no call is under way: the seeds of the plans
  /// below stay as they are too.
  void pause(std::unique_lock<Mutex>& lock) const {
    pausing_ = true;
    ready_.wait(lock, [this] { return busy_ == 0; });
  }
  void start() {
    if (pool_) return;
    pool_.emplace(calls_, settings_.cores_per_thread);
    for (int i = 0; i < calls_; ++i) pool_->submit([this] { work(); });
  }
  std::list<Slot>::iterator first_finished() {
    if (!in_order_)
      return std::find_if(slots_.begin(), slots_.end(),
                          [](const Slot& slot) { return slot.finished; });
    return !slots_.empty() && slots_.front().finished ? slots_.begin() : slots_.end();
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
      ready_.notify_one();
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
    slot.result = std::move(result);
    slot.error = error;
    slot.finished = true;
  }

  PassSettings settings_;
  std::unique_ptr<Iterator> input_;  // of the thread that reads
  NestFunction function_;
  CallSeeds seeds_;
  int calls_;
  std::size_t most_slots_;
  bool in_order_;
  mutable Mutex mutex_;
  mutable ConditionVariable room_;   // for the threads
  mutable ConditionVariable ready_;  // for who takes
  std::list<Slot> slots_;            // in the order of the elements
  int waiting_for_room_ = 0;
  int busy_ = 0;
  bool reading_ = false;
  mutable bool pausing_ = false;
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
