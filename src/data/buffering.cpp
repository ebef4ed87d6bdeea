// Transformations that keep elements for a while: shuffle, prefetch.

#include <algorithm>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "data/pass_seeds.h"
#include "data/produced_ahead.h"
#include "data/worker_pool.h"
#include "tutti/base/seed.h"
#include "tutti/data/plans.h"

namespace tutti::data::plans {
namespace {

/// A reservoir: `fetch(buffer, missing)` appends what is missing as far as there is more; then a
/// random slot is handed out. At the end it drains.
template <class Item, class Fetch>
std::optional<Item> draw(std::vector<Item>& buffer, std::size_t capacity, RandomBits& random,
                         Fetch fetch) {
  if (buffer.size() < capacity) fetch(capacity - buffer.size());
  if (buffer.empty()) return std::nullopt;
  Item& slot = buffer[random.below(buffer.size())];
  std::swap(slot, buffer.back());
  Item drawn = std::move(buffer.back());
  buffer.pop_back();
  return drawn;
}

class ShufflePlan : public UnaryPlan {
 public:
  ShufflePlan(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options)
      : UnaryPlan(std::move(input)),
        capacity_(static_cast<std::size_t>(buffer_size)),
        options_(options),
        seeds_(std::make_shared<PassSeeds>(options)) {}
  ShufflePlan(PlanPtr input, const ShufflePlan& like)
      : UnaryPlan(std::move(input)),
        capacity_(like.capacity_),
        options_(like.options_),
        seeds_(like.seeds_) {}
  std::string name() const override { return "shuffle"; }
  std::string arguments() const override {
    return cat(capacity_, optional_text("seed", options_.seed),
               options_.reshuffle_each_iteration ? "" : ", reshuffle_each_iteration=false");
  }
  bool reshuffles() const override { return options_.reshuffle_each_iteration; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ShufflePlan>(std::move(inputs[0]), *this);
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), capacity_, seeds_->next());
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 private:
  struct Pass : ForwardingIterator {
    Pass(std::unique_ptr<Iterator> input, std::size_t capacity, uint64_t seed)
        : ForwardingIterator(std::move(input)),
          capacity(capacity),
          random(seed),
          source(this->input().table()) {}
    // As it was at the start: the buffer holds elements or rows, not both.
    const RowTable* table() const override { return source; }
    std::optional<Nest> next() override {
      if (source != nullptr) {
        auto row = next_row();
        if (!row) return std::nullopt;
        return source->row(*row);
      }
      return draw(elements, capacity, random, [this](std::size_t missing) {
        for (; missing > 0; --missing) {
          auto element = input().next();
          if (!element) return;
          elements.push_back(std::move(*element));
        }
      });
    }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      for (; count > 0; --count) {
        auto row = next_row();
        if (!row) return;
        indices.push_back(*row);
      }
    }
    Nest save() const override {
      return Nest::map({{"input", input().save()},
                        {"random", state::random_bits(random)},
                        {"buffer", source ? state::numbers(rows) : state::elements(elements)}});
    }
    void restore(const Nest& saved) override {
      input().restore(state::part(saved, "input"));
      state::set_random_bits(saved, "random", random);
      elements.clear();
      rows.clear();
      if (state::part(saved, "buffer").kind() == NestKind::kList) {
        source = nullptr;
        elements = state::elements_in(saved, "buffer");
        return;
      }
      source = input().table();
      rows = state::numbers_in(saved, "buffer");
      if (source == nullptr)
        throw DataLoss(
            "restore iterator: rows in a shuffle of elements, expected an equal pipeline");
    }
    // Not more than needed: a row may be made when it is read, by a function of the user.
    std::optional<int64_t> next_row() {
      return draw(rows, capacity, random, [this](std::size_t missing) {
        input().next_rows(static_cast<int64_t>(missing), rows);
      });
    }
    std::size_t capacity;
    RandomBits random;
    const RowTable* source;
    std::vector<Nest> elements;
    std::vector<int64_t> rows;
  };
  std::size_t capacity_;
  ShuffleOptions options_;
  std::shared_ptr<PassSeeds> seeds_;
};

/// Of tensors; strings and datasets count little.
std::size_t bytes_of(const Nest& element) {
  std::size_t bytes = 0;
  const auto of_tensor = [](const Tensor& leaf) {
    return static_cast<std::size_t>(leaf.numel()) *
           leaf.element_size();  // of sparse ones, the most
  };
  element.for_each([&](const Tensor& leaf) { bytes += of_tensor(leaf); },
                   [&](const StringTensor& strings) {
                     for (const std::string& text : strings.values()) bytes += text.size();
                   });
  return bytes;
}

class PrefetchPlan : public UnaryPlan {
 public:
  PrefetchPlan(PlanPtr input, int64_t buffer_size)
      : UnaryPlan(std::move(input)), buffer_size_(buffer_size) {}
  std::string name() const override { return "prefetch"; }
  std::string arguments() const override { return cat(buffer_size_); }
  bool runs_functions() const override { return false; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<PrefetchPlan>(std::move(inputs[0]), buffer_size_);
  }
  int64_t num_rows() const override { return input().num_rows(); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), buffer_size_);
  }
  Nest element_at(int64_t index) const override { return plans::element_at(input(), index); }

 private:
  static constexpr std::size_t kFirstCapacity = 2;
  static constexpr std::size_t kMostCapacity = 512;

  class Pass : public Iterator {
   public:
    Pass(std::unique_ptr<Iterator> input, int64_t buffer_size)
        : grows_(buffer_size < 0 && settings_.autotune),
          capacity_(buffer_size < 0 ? kFirstCapacity : static_cast<std::size_t>(buffer_size)),
          input_(std::move(input)),
          elements_(
              capacity_,
              [cores = settings_.cores_per_thread](const std::function<void()>& work) {
                on_cores(cores, work);
              },
              [this] { return input_->next(); }) {
      if (settings_.warm_start) elements_.start();
    }
    std::optional<Nest> next() override {
      if (!grows_) return elements_.next();
      std::size_t waiting = 0;
      auto element = elements_.next(&waiting);
      if (element) look_at(waiting, *element);
      return element;
    }
    Nest save() const override {
      Nest state;
      elements_.look([&](const ProducedAhead<Nest>::Slots& slots) {
        std::vector<Nest> buffer;
        for (const auto& slot : slots) buffer.push_back(state::item(slot.item, slot.error));
        state = Nest::map({{"input", input_->save()},
                           {"buffer", Nest::list(std::move(buffer))},
                           {"capacity", state::number(static_cast<int64_t>(capacity_))}});
      });
      return state;
    }
    void restore(const Nest& saved) override {
      const auto most = static_cast<int64_t>(grows_ ? kMostCapacity : capacity_);
      capacity_ = static_cast<std::size_t>(state::number_in(saved, "capacity", 1, most));
      elements_.replace([&] {
        input_->restore(state::part(saved, "input"));
        ProducedAhead<Nest>::Slots slots;
        for (const Nest& item : state::list_in(saved, "buffer")) {
          auto& slot = slots.emplace_back();
          state::item_in(item, slot.item, slot.error);
        }
        return slots;
      });
      elements_.set_capacity(capacity_);
    }

   private:
    /// It grows when it has been full and then runs dry: what fills it is fast enough, but not at
    /// all times.
    void look_at(std::size_t waiting, const Nest& element) {
      was_full_ = was_full_ || waiting >= capacity_;
      if (!was_full_ || waiting > 0) return;
      was_full_ = false;
      const std::size_t bytes = std::max<std::size_t>(1, bytes_of(element));
      const std::size_t most =
          std::min(kMostCapacity, static_cast<std::size_t>(settings_.ram_budget) / bytes);
      if (2 * capacity_ > most) return;
      capacity_ *= 2;
      elements_.set_capacity(capacity_);
    }

    PassSettings settings_;
    bool grows_;
    bool was_full_ = false;
    std::size_t capacity_;
    std::unique_ptr<Iterator> input_;
    mutable ProducedAhead<Nest> elements_;
  };
  int64_t buffer_size_;
};

}  // namespace

PlanPtr shuffle(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options) {
  if (buffer_size < 1)
    throw InvalidArgument(
        cat("shuffle: a buffer of ", buffer_size, " elements, expected at least 1"));
  return std::make_shared<ShufflePlan>(std::move(input), buffer_size, options);
}

PlanPtr prefetch(PlanPtr input, int64_t buffer_size) {
  if (buffer_size < -1)
    throw InvalidArgument(
        cat("prefetch: a buffer of ", buffer_size, ", expected -1 (automatic), 0 (none) or more"));
  if (buffer_size == 0) return input;
  return std::make_shared<PrefetchPlan>(std::move(input), buffer_size);
}

}  // namespace tutti::data::plans
