// Datasets of datasets, and batches by groups.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "data/elements_plan.h"
#include "data/iterator_state.h"
#include "data/nested.h"

namespace tutti::data {
namespace {

struct WindowShape {
  int64_t size, shift, stride;
  bool drop_remainder;
  int64_t span;  // elements from the first to the last one of a window
};

class WindowPlan : public UnaryPlan {
 public:
  WindowPlan(PlanPtr input, const WindowShape& shape)
      : UnaryPlan(std::move(input)), shape_(shape) {}
  std::string name() const override { return "window"; }
  std::string arguments() const override {
    return cat(shape_.size, shape_.shift == shape_.size ? "" : cat(", shift=", shape_.shift),
               shape_.stride == 1 ? "" : cat(", stride=", shape_.stride),
               drop_text(shape_.drop_remainder));
  }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    if (!shape_.drop_remainder) return elements / shape_.shift + (elements % shape_.shift != 0);
    return elements < shape_.span ? 0 : (elements - shape_.span) / shape_.shift + 1;
  }
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<WindowPlan>(std::move(inputs[0]), shape_);
  }
  SpecNest element_spec() const override {
    return input().element_spec().map_parts<SpecNest>(
        [](const SpecNest& part) { return SpecNest(dataset_spec(part)); });
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), inputs()[0], shape_);
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), inputs()[0], shape_);
  }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, PlanPtr plan, const WindowShape& shape)
        : input(std::move(input)), plan(std::move(plan)), shape(shape) {}
    std::optional<Nest> next() override {
      for (; to_skip > 0 && !ended; --to_skip) ended = !input->next();
      while (!ended && static_cast<int64_t>(buffer.size()) < shape.span) {
        auto element = input->next();
        ended = !element;
        if (element) buffer.push_back(std::move(*element));
      }
      const auto have = static_cast<int64_t>(buffer.size());
      if (have == 0 || (shape.drop_remainder && have < shape.span)) return std::nullopt;
      auto window = std::make_shared<std::vector<Nest>>();
      for (int64_t i = 0; i < have; i += shape.stride)
        window->push_back(buffer[static_cast<std::size_t>(i)]);
      const int64_t dropped = std::min(have, shape.shift);
      buffer.erase(buffer.begin(), buffer.begin() + dropped);
      to_skip = shape.shift - dropped;
      return window_of(window, plan);
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()},
                        {"buffer", state::elements({buffer.begin(), buffer.end()})},
                        {"to_skip", state::number(to_skip)},
                        {"ended", state::number(ended)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      const auto elements = state::elements_in(saved, "buffer");
      buffer.assign(elements.begin(), elements.end());
      to_skip = state::number_in(saved, "to_skip", 0);
      ended = state::number_in(saved, "ended") != 0;
    }
    std::unique_ptr<Iterator> input;
    PlanPtr plan;
    WindowShape shape;
    std::deque<Nest> buffer;
    int64_t to_skip = 0;
    bool ended = false;
  };
  WindowShape shape_;
};

using Elements = std::shared_ptr<const std::vector<Nest>>;

class GroupByWindowPlan : public UnaryPlan {
 public:
  GroupByWindowPlan(PlanPtr input, Grouping grouping, const char* name, std::string arguments,
                    std::shared_ptr<PassSeeds> seeds = PassSeeds::of_function())
      : UnaryPlan(std::move(input)),
        grouping_(std::move(grouping)),
        name_(name),
        arguments_(std::move(arguments)),
        seeds_(std::move(seeds)),
        of_first_([this](const Nest& first) {
          return grouping_.reduce(grouping_.key(first), group({first}, inputs()[0]));
        }) {}
  std::string name() const override { return name_; }
  std::string arguments() const override { return arguments_; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  std::optional<int64_t> batch_size() const override {
    return first_.batch_size(input(), of_first_);
  }
  SpecNest element_spec() const override { return first_.spec(name_, input(), of_first_); }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<GroupByWindowPlan>(std::move(inputs[0]), grouping_, name_, arguments_,
                                               seeds_);
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), grouping_, inputs()[0], seeds_.get());
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), grouping_, inputs()[0], nullptr);
  }

 private:
  static PlanPtr group(std::vector<Nest> elements, const PlanPtr& like) {
    return std::make_shared<ElementsPlan>(
        std::make_shared<const std::vector<Nest>>(std::move(elements)), like);
  }

  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, Grouping given, PlanPtr like, PassSeeds* seeds)
        : input(std::move(input)),
          grouping(std::move(given)),
          like(std::move(like)),
          opener(seeds ? InnerOpener(reduction(), *seeds) : InnerOpener(reduction())) {}
    std::optional<Nest> next() override {
      for (;;) {
        if (current) {
          if (auto element = current->pass->next()) return element;
          current.reset();
        }
        if (!ended) {
          auto element = input->next();
          ended = !element;
          if (element) add(std::move(*element));
        } else if (!groups.empty()) {
          auto group = groups.extract(groups.begin());
          open(group.key(), std::move(group.mapped()));
        } else {
          return std::nullopt;
        }
      }
    }
    void add(Nest element) {
      at::NoGradGuard no_grad;
      const int64_t key = grouping.key(element);
      const int64_t size = grouping.window_size(key);
      if (size < 1)
        throw InvalidArgument(cat("group_by_window: a window of ", size, " elements for the key ",
                                  key, ", expected at least 1"));
      std::vector<Nest>& group = groups[key];
      group.push_back(std::move(element));
      if (static_cast<int64_t>(group.size()) < size) return;
      std::vector<Nest> full = std::move(group);
      groups.erase(key);
      open(key, std::move(full));
    }
    void open(int64_t key, std::vector<Nest> elements) {
      // The argument of the reduction as an element, which can be saved.
      Nest argument =
          Nest::tuple({state::number(key), Nest(NestObjectPtr(group(std::move(elements), like)))});
      current = opener.open_next(std::move(argument));
    }
    PlanFunction reduction() const {
      return [this](const Nest& argument) {
        return grouping.reduce(argument[0].leaf().item<int64_t>(),
                               std::dynamic_pointer_cast<const Plan>(argument[1].object()));
      };
    }
    Nest save() const override {
      std::vector<Nest> keys, contents;
      for (const auto& [key, group] : groups) {
        keys.push_back(state::number(key));
        contents.push_back(state::elements(group));
      }
      return Nest::map({{"input", input->save()},
                        {"keys", Nest::list(std::move(keys))},
                        {"groups", Nest::list(std::move(contents))},
                        {"calls", opener.save()},
                        {"current", current ? current->save() : Nest()},
                        {"ended", state::number(ended)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      ended = state::number_in(saved, "ended") != 0;
      groups.clear();
      const Nest& keys = state::part(saved, "keys");
      const Nest& contents = state::part(saved, "groups");
      if (keys.size() != contents.size())
        throw DataLoss(cat("restore iterator: ", keys.size(), " keys of ", contents.size(),
                           " groups, expected as many"));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const Nest group = Nest::map({{"key", keys.items()[i]}, {"group", contents.items()[i]}});
        groups[state::number_in(group, "key")] = state::elements_in(group, "group");
      }
      opener.restore(state::part(saved, "calls"));
      current.reset();
      const Nest& open = state::part(saved, "current");
      if (open.kind() != NestKind::kNone) current = opener.reopen(open);
    }
    std::unique_ptr<Iterator> input;
    Grouping grouping;
    PlanPtr like;
    InnerOpener opener;
    std::map<int64_t, std::vector<Nest>> groups;  // in the order in which they end
    std::optional<OpenInner> current;
    bool ended = false;
  };
  Grouping grouping_;
  const char* name_;
  std::string arguments_;
  std::shared_ptr<PassSeeds> seeds_;
  PlanFunction of_first_;
  FirstInner first_;
};

std::size_t bucket_of(const Buckets& buckets, int64_t length, bool last_is_closed) {
  const auto& boundaries = buckets.boundaries;
  if (last_is_closed && length >= boundaries.back()) {
    throw InvalidArgument(cat("bucket_by_sequence_length: an element of length ", length,
                              " with pad_to_bucket_boundary, expected lengths below ",
                              boundaries.back(), "; drop it with filter, or add a boundary"));
  }
  return static_cast<std::size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), length) -
                                  boundaries.begin());
}

/// The padded shape in which every unknown size is `size`; without padded_shapes the first axis of
/// each component is.
ShapeNest shapes_up_to(int64_t size, const PlanPtr& group, const BucketOptions& options) {
  if (options.padded_shapes) {
    return options.padded_shapes->map_leaves([size](std::vector<int64_t> shape) {
      std::replace(shape.begin(), shape.end(), int64_t{-1}, size);
      return shape;
    });
  }
  return group->element_spec().map_leaves([size](const TensorSpec& leaf) {
    std::vector<int64_t> shape(leaf.shape.size(), -1);
    if (!shape.empty()) shape[0] = size;
    return shape;
  });
}

void check_buckets(const Buckets& buckets) {
  const auto& boundaries = buckets.boundaries;
  const auto disorder =
      std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>());
  if (boundaries.empty() || disorder != boundaries.end()) {
    throw InvalidArgument(cat("bucket_by_sequence_length: boundaries ", join(boundaries, ", "),
                              ", expected at least one, each above the one before"));
  }
  if (buckets.batch_sizes.size() != boundaries.size() + 1) {
    throw InvalidArgument(cat("bucket_by_sequence_length: ", buckets.batch_sizes.size(),
                              " batch sizes for ", boundaries.size() + 1,
                              " buckets, expected one for each"));
  }
  for (int64_t size : buckets.batch_sizes) {
    if (size < 1)
      throw InvalidArgument(
          cat("bucket_by_sequence_length: batches of ", size, " elements, expected at least 1"));
  }
}

}  // namespace

PlanPtr plans::window(PlanPtr input, int64_t size, const WindowOptions& options) {
  WindowShape shape{size, options.shift.value_or(size), options.stride, options.drop_remainder, 0};
  if (shape.size < 1 || shape.shift < 1 || shape.stride < 1) {
    throw InvalidArgument(cat("window: size ", shape.size, ", shift ", shape.shift, ", stride ",
                              shape.stride, ", expected at least 1"));
  }
  if (__builtin_mul_overflow(shape.size - 1, shape.stride, &shape.span) ||
      __builtin_add_overflow(shape.span, 1, &shape.span)) {
    throw InvalidArgument(cat("window: ", shape.size, " elements, each the ", shape.stride,
                              "th, expected a number that 64 bits hold"));
  }
  return std::make_shared<WindowPlan>(std::move(input), shape);
}

PlanPtr plans::group_by_window(PlanPtr input, Grouping grouping) {
  return std::make_shared<GroupByWindowPlan>(std::move(input), std::move(grouping),
                                             "group_by_window", "function, function, function");
}

PlanPtr plans::bucket_by_sequence_length(PlanPtr input, Buckets buckets,
                                         const BucketOptions& options) {
  check_buckets(buckets);
  const std::string arguments =
      cat("function, [", join(buckets.boundaries, ", "), "], [", join(buckets.batch_sizes, ", "),
          "]", options.pad_to_bucket_boundary ? ", pad_to_bucket_boundary=true" : "",
          options.no_padding ? ", no_padding=true" : "", drop_text(options.drop_remainder));
  Grouping grouping;
  grouping.key = [buckets, closed = options.pad_to_bucket_boundary](const Nest& element) {
    return static_cast<int64_t>(bucket_of(buckets, buckets.element_length(element), closed));
  };
  const auto batch_size = [sizes = buckets.batch_sizes](int64_t bucket) {
    return sizes[static_cast<std::size_t>(bucket)];
  };
  grouping.window_size = batch_size;
  grouping.reduce = [boundaries = buckets.boundaries, batch_size, options](
                        int64_t bucket, const PlanPtr& group) -> PlanPtr {
    const int64_t size = batch_size(bucket);
    if (options.no_padding) return batch(group, size, {options.drop_remainder});
    PaddedBatchOptions padded{options.padded_shapes, options.padding_values,
                              options.drop_remainder};
    if (options.pad_to_bucket_boundary) {
      const int64_t longest = boundaries[static_cast<std::size_t>(bucket)] - 1;
      padded.padded_shapes = shapes_up_to(longest, group, options);
    }
    return padded_batch(group, size, padded);
  };
  return std::make_shared<GroupByWindowPlan>(std::move(input), std::move(grouping),
                                             "bucket_by_sequence_length", arguments);
}

}  // namespace tutti::data
