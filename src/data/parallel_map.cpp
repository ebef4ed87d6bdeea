// map with several calls at once.

#include <algorithm>
#include <deque>

#include "data/iteration.h"
#include "data/worker_pool.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

class ParallelMapPlan : public UnaryPlan {
 public:
  ParallelMapPlan(PlanPtr input, NestFunction function, const MapOptions& options)
      : UnaryPlan(std::move(input)),
        function_(std::move(function)),
        options_(options),
        calls_(parallel_calls("map", *options.num_parallel_calls)),
        one_by_one_(plans::map(inputs()[0], function_)) {}
  std::string name() const override { return "map"; }
  std::string arguments() const override {
    return cat(
        "function", optional_text("num_parallel_calls", options_.num_parallel_calls),
        options_.deterministic ? cat(", deterministic=", bool_text(*options_.deterministic)) : "");
  }
  bool runs_functions() const override { return true; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ParallelMapPlan>(std::move(inputs[0]), function_, options_);
  }
  SpecNest element_spec() const override { return one_by_one_->element_spec(); }
  std::unique_ptr<Iterator> preview() const override { return one_by_one_->preview(); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), function_, calls_,
                                  options_.deterministic.value_or(true));
  }

 private:
  class Pass : public Iterator {
   public:
    Pass(std::unique_ptr<Iterator> input, NestFunction function, int calls, bool in_order)
        : input_(std::move(input)),
          function_(std::move(function)),
          calls_(static_cast<std::size_t>(calls)),
          in_order_(in_order),
          pool_(calls) {}

    std::optional<Nest> next() override {
      while (!ended_ && slots_.size() < calls_) begin_one();
      if (slots_.empty()) return std::nullopt;
      const std::shared_ptr<Slot> slot = take_finished();
      if (slot->error) std::rethrow_exception(slot->error);
      return std::move(slot->result);
    }

   private:
    /// A call under way, or the exception that stands in its place.
    struct Slot {
      std::optional<Nest> result;
      std::exception_ptr error;
      bool finished = false;
    };

    void begin_one() {
      auto slot = std::make_shared<Slot>();
      std::optional<Nest> element;
      try {
        element = input_->next();
      } catch (...) {
        slot->error = std::current_exception();
        slot->finished = true;
      }
      ended_ = !element && !slot->error;
      if (ended_) return;
      slots_.push_back(slot);
      if (element)
        pool_.submit([this, slot, element = std::move(*element)] { run(*slot, element); });
    }
    void run(Slot& slot, const Nest& element) {
      std::optional<Nest> result;
      std::exception_ptr error;
      try {
        at::NoGradGuard no_grad;
        result = function_(element);
      } catch (...) {
        error = std::current_exception();
      }
      {
        MutexLock lock(mutex_);
        slot.result = std::move(result);
        slot.error = error;
        slot.finished = true;
      }
      changed_.notify_one();
    }
    std::shared_ptr<Slot> take_finished() {
      std::unique_lock<Mutex> lock(mutex_);
      auto found = slots_.end();
      changed_.wait(lock, [&] {
        found = in_order_ ? slots_.begin()
                          : std::find_if(slots_.begin(), slots_.end(),
                                         [](const auto& slot) { return slot->finished; });
        return found != slots_.end() && (*found)->finished;
      });
      std::shared_ptr<Slot> slot = std::move(*found);
      slots_.erase(found);
      return slot;
    }

    std::unique_ptr<Iterator> input_;
    NestFunction function_;
    std::size_t calls_;
    bool in_order_;
    bool ended_ = false;
    Mutex mutex_;  // what a slot holds until it has finished
    ConditionVariable changed_;
    std::deque<std::shared_ptr<Slot>> slots_;  // of the pass's own thread
    WorkerPool pool_;                          // ends before what its tasks use
  };

  NestFunction function_;
  MapOptions options_;
  int calls_;
  PlanPtr one_by_one_;
};

}  // namespace

PlanPtr plans::parallel_map(PlanPtr input, NestFunction function, const MapOptions& options) {
  return std::make_shared<ParallelMapPlan>(std::move(input), std::move(function), options);
}

}  // namespace tutti::data
