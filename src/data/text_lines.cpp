// Lines of text files. A line is the vector of its bytes.

#include <cstring>

#include "data/iteration.h"
#include "io/file.h"
#include "tutti/data/dataset.h"

namespace tutti {

Nest NestTraits<std::string>::to_nest(const std::string& text) {
  Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string NestTraits<std::string>::from_nest(const Nest& nest) {
  const Tensor& leaf = nest.leaf();
  if (leaf.dim() != 1 || leaf.scalar_type() != at::kByte) {
    throw InvalidArgument(cat("element: ", TensorSpec::of(leaf),
                              ", expected the bytes of one string; strings have no batches, turn "
                              "them into tensors of numbers with map before batch"));
  }
  const Tensor bytes = leaf.cpu().contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

namespace data {
namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 30;

class TextLinesPlan : public Plan {
 public:
  explicit TextLinesPlan(std::vector<std::string> files)
      : Plan({}), files_(std::make_shared<std::vector<std::string>>(std::move(files))) {}
  std::string name() const override { return "text_lines"; }
  int64_t cardinality() const override { return files_->empty() ? 0 : kUnknown; }
  SpecNest element_spec() const override { return TensorSpec{{-1}, at::kByte}; }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(files_); }
  const std::vector<std::string>* files() const override { return files_.get(); }
  PlanPtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<TextLinesPlan>(std::move(files));
  }

 private:
  struct Pass : Iterator {
    explicit Pass(std::shared_ptr<const std::vector<std::string>> files)
        : files(std::move(files)) {}
    std::optional<Nest> next() override {
      while (at == text.size()) {
        if (file == files->size()) return std::nullopt;
        text.clear();
        at = 0;
        text = io::read_file((*files)[file++], kLargestFile);
      }
      const uint8_t* begin = text.data() + at;
      const std::size_t left = text.size() - at;
      const auto* end = static_cast<const uint8_t*>(std::memchr(begin, '\n', left));
      std::size_t size = end == nullptr ? left : static_cast<std::size_t>(end - begin);
      at += end == nullptr ? left : size + 1;
      if (size > 0 && end != nullptr && begin[size - 1] == '\r') --size;
      Tensor line = ::at::empty({static_cast<int64_t>(size)}, ::at::kByte);
      if (size > 0) std::memcpy(line.data_ptr(), begin, size);
      return Nest(line);
    }
    std::shared_ptr<const std::vector<std::string>> files;
    std::size_t file = 0;
    std::vector<uint8_t> text;
    std::size_t at = 0;
  };
  std::shared_ptr<const std::vector<std::string>> files_;
};

}  // namespace

PlanPtr plans::text_lines(std::vector<std::string> files) {
  return std::make_shared<TextLinesPlan>(std::move(files));
}

}  // namespace data
}  // namespace tutti
