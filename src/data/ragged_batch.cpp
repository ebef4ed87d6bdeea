// Batches of elements that stay as they are, side by side in lists.

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

class RaggedBatchPlan : public PassPlan {
 public:
  RaggedBatchPlan(PlanPtr input, int64_t size, bool drop_remainder)
      : PassPlan(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}
  std::string name() const override { return "ragged_batch"; }
  std::string arguments() const override { return cat(size_, drop_text(drop_remainder_)); }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return elements / size_ + (!drop_remainder_ && elements % size_ != 0 ? 1 : 0);
  }
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<RaggedBatchPlan>(std::move(inputs[0]), size_, drop_remainder_);
  }
  // As TensorFlow prints what it has in their place.
  SpecNest element_spec() const override {
    return input().element_spec().map_parts<SpecNest>([this](const SpecNest& part) -> SpecNest {
      if (!part.is_leaf()) return part;
      std::vector<std::string> sizes{drop_remainder_ ? cat(size_) : "None"};
      // The spec of an input may be that of its first element only.
      for (std::size_t d = 0; d < part.leaf().shape.size(); ++d) sizes.push_back("None");
      return text_spec(cat("RaggedTensorSpec(TensorShape([", join(sizes, ", "), "]), ",
                           dtype_name(part.leaf().dtype), ", 1, int64)"));
    });
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), size_, drop_remainder_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t size, bool drop)
        : input(std::move(input)), size(size), drop(drop) {}
    std::optional<Nest> next() override {
      const ElementColumns elements = take_columns("ragged_batch", *input, size);
      if (elements.count == 0 || (drop && elements.count < size)) return std::nullopt;
      std::size_t column = 0, text = 0;
      return elements.structure.map_parts<Nest>([&](const Nest& part) {
        if (part.is_leaf()) return listed(elements.columns[column++]);
        if (part.is_strings()) return listed(elements.strings[text++]);
        return part;
      });
    }
    template <class Item>
    static Nest listed(const std::vector<Item>& items) {
      return Nest::list({items.begin(), items.end()});
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& saved) override { input->restore(saved); }
    std::unique_ptr<Iterator> input;
    int64_t size;
    bool drop;
  };
  int64_t size_;
  bool drop_remainder_;
};

}  // namespace

PlanPtr plans::ragged_batch(PlanPtr input, int64_t size, const BatchOptions& options) {
  if (size < 1)
    throw InvalidArgument(cat("ragged_batch: ", size, " elements, expected at least 1"));
  return std::make_shared<RaggedBatchPlan>(std::move(input), size, options.drop_remainder);
}

}  // namespace tutti::data
