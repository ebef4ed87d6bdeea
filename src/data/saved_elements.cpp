// save, load, and how complete files are read.

#include "data/saved_elements.h"

#include <filesystem>

#include "data/elements_plan.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "io/byte_stream.h"

namespace tutti::data {
namespace {

/// By turns: of elements that a counter gave to the shards, the order in which they were written.
class ShardsPass : public Iterator {
 public:
  ShardsPass(const ElementFiles& files, const ElementIndex& index) {
    for (int64_t shard = 0; shard < index.num_shards(); ++shard)
      shards_.push_back({ElementReader(files, index, shard)});
  }
  std::optional<Nest> next() override {
    for (std::size_t tried = 0; tried < shards_.size(); ++tried) {
      Shard& shard = shards_[turn_];
      turn_ = (turn_ + 1) % shards_.size();  // also when it throws
      if (shard.done) continue;
      if (auto element = shard.reader.next()) return element;
      shard.done = true;
    }
    return std::nullopt;
  }
  Nest save() const override {
    std::vector<int64_t> offsets, numbers, done;
    for (const Shard& shard : shards_) {
      offsets.push_back(shard.reader.offset());
      numbers.push_back(shard.reader.number());
      done.push_back(shard.done);
    }
    return Nest::map({{"turn", state::number(static_cast<int64_t>(turn_))},
                      {"offsets", state::numbers(offsets)},
                      {"numbers", state::numbers(numbers)},
                      {"done", state::numbers(done)}});
  }
  void restore(const Nest& saved) override {
    const auto last = static_cast<int64_t>(shards_.size()) - 1;
    turn_ = static_cast<std::size_t>(state::number_in(saved, "turn", 0, last));
    const auto offsets = state::numbers_in(saved, "offsets");
    const auto numbers = state::numbers_in(saved, "numbers");
    const auto done = state::numbers_in(saved, "done");
    if (offsets.size() != shards_.size() || numbers.size() != shards_.size() ||
        done.size() != shards_.size()) {
      throw DataLoss(cat("restore iterator: the places of ", offsets.size(), " shards, expected ",
                         shards_.size(), "; restore it on the files that were read before"));
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].done = done[i] != 0;
      if (!shards_[i].done) shards_[i].reader.seek(offsets[i], numbers[i]);
    }
  }

 private:
  struct Shard {
    ElementReader reader;
    bool done = false;
  };
  std::vector<Shard> shards_;
  std::size_t turn_ = 0;
};

/// One shard, for a reader function.
class ShardPlan : public Plan {
 public:
  ShardPlan(ElementFiles files, std::shared_ptr<const ElementIndex> index, int64_t shard)
      : Plan({}), files_(std::move(files)), index_(std::move(index)), shard_(shard) {}
  std::string name() const override { return "saved_shard"; }
  std::string arguments() const override { return cat(shard_); }
  int64_t cardinality() const override {
    return index_->elements[static_cast<std::size_t>(shard_)];
  }
  SpecNest element_spec() const override { return spec_.of(*this); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(ElementReader(files_, *index_, shard_));
  }

 private:
  struct Pass : Iterator {
    explicit Pass(ElementReader given) : reader(std::move(given)) {}
    std::optional<Nest> next() override { return reader.next(); }
    Nest save() const override {
      return Nest::map(
          {{"offset", state::number(reader.offset())}, {"number", state::number(reader.number())}});
    }
    void restore(const Nest& saved) override {
      const int64_t offset = state::number_in(saved, "offset");
      reader.seek(offset, state::number_in(saved, "number", 0));
    }
    ElementReader reader;
  };
  ElementFiles files_;
  std::shared_ptr<const ElementIndex> index_;
  int64_t shard_;
  SeenSpec spec_;
};

class LoadPlan : public Plan {
 public:
  LoadPlan(std::string path, ElementFiles files, ShardReader reader)
      : Plan({}),
        path_(std::move(path)),
        files_(std::move(files)),
        index_(ElementIndex::read(files_)),
        reader_(std::move(reader)) {}
  std::string name() const override { return "load"; }
  std::string arguments() const override {
    return cat(path_, saving_text({.compression = "", .reader = reader_, .shard = nullptr}));
  }
  int64_t cardinality() const override { return reader_ ? kUnknown : index_.size(); }
  bool runs_functions() const override { return reader_ != nullptr; }
  SpecNest element_spec() const override { return spec_.of(*this); }
  std::unique_ptr<Iterator> iterator() const override {
    return read_elements(files_, index_, reader_);
  }

 private:
  std::string path_;
  ElementFiles files_;
  ElementIndex index_;
  ShardReader reader_;
  SeenSpec spec_;
};

}  // namespace

std::unique_ptr<Iterator> read_elements(const ElementFiles& files, const ElementIndex& index,
                                        const ShardReader& reader) {
  if (!reader) return std::make_unique<ShardsPass>(files, index);
  const auto shared = std::make_shared<const ElementIndex>(index);
  std::vector<Nest> shards;
  for (int64_t shard = 0; shard < index.num_shards(); ++shard)
    shards.emplace_back(NestObjectPtr(std::make_shared<ShardPlan>(files, shared, shard)));
  const auto all = std::make_shared<const std::vector<Nest>>(std::move(shards));
  return reader(std::make_shared<ElementsPlan>(all))->iterator();
}

std::string saving_text(const Saving& saving) {
  std::string text;
  if (!saving.compression.empty()) text += cat(", compression=", saving.compression);
  if (saving.reader) text += ", reader_func=function";
  if (saving.shard) text += ", shard_func=function";
  return text;
}

ElementFiles files_in_folder(const char* operation, const std::string& path,
                             const std::string& compression) {
  if (path.empty()) throw InvalidArgument(cat(operation, ": an empty path, expected a folder"));
  io::compression_from_name(operation, compression);
  return {path + "/elements", compression};
}

void make_folder(const char* operation, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw NotFound(
        cat(operation, " [", path, "]: ", error.message(), ", expected a folder that can be made"));
}

void plans::save(const Plan& plan, const std::string& path, const Saving& saving) {
  const ElementFiles files = files_in_folder("save", path, saving.compression);
  make_folder("save", path);
  auto lock = WriterLock::take(files);
  if (!lock)
    throw AlreadyExists(cat("save [", path,
                            "]: another pass writes these files, expected one at a time; let it "
                            "end first, or use another folder"));
  ElementWriter writer(files, std::move(lock));
  for_each(plan, [&](const Nest& element) {
    writer.add(element, saving.shard ? saving.shard(element) : 0);
  });
  writer.finish();
}

PlanPtr plans::load(const std::string& path, const ShardReader& reader) {
  const ElementFiles files = files_in_folder("load", path, "");
  if (!files.complete())
    throw NotFound(cat("load [", path, "]: no ", files.index(),
                       ", expected a folder that Dataset::save wrote"));
  return std::make_shared<LoadPlan>(path, files, reader);
}

}  // namespace tutti::data
