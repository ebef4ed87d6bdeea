// interop_files write FOLDER: one file of each format that other programs read
// (tests/interop/peers.py checks them). interop_files read FOLDER: the files that peers.py wrote,
// compared with what they must hold.

#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/events.h"
#include "tutti/io/example.h"
#include "tutti/io/image.h"
#include "tutti/io/npy.h"
#include "tutti/io/parsing.h"
#include "tutti/io/tensor_file.h"
#include "tutti/io/tf_record.h"

namespace {

using tutti::cat;
using tutti::Tensor;
namespace fs = std::filesystem;
namespace io = tutti::io;
namespace train = tutti::train;

constexpr int kRecords = 5;
const char* const kPackings[] = {"", "GZIP", "ZLIB"};

train::Example example_of(int64_t i) {
  return train::Example(
      {{"id", train::Int64List{{i, -i}}},
       {"x", train::FloatList{{0.5f * static_cast<float>(i), 1e-30f}}},
       {"name", train::BytesList{{cat("record ", i), std::string("\0\xff", 2)}}}});
}

/// Of values that every program computes alike.
Tensor pattern(at::IntArrayRef sizes, at::ScalarType dtype) {
  return (at::arange(c10::multiply_integers(sizes)) % 251).view(sizes).to(dtype);
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw tutti::NotFound(cat("read [", path.string(), "]: no such file"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_all(const fs::path& folder) {
  for (const char* packing : kPackings) {
    io::TFRecordWriter writer((folder / cat("records", packing, ".tfrecord")).string(),
                              {.compression_type = packing});
    for (int i = 0; i < kRecords; ++i) writer.write(example_of(i).serialize());
  }
  io::TFRecordWriter sequences((folder / "sequence.tfrecord").string());
  train::SequenceExample sequence;
  sequence.context.feature["length"] = train::Int64List{{2}};
  sequence.feature_lists.feature_list["words"].feature = {train::BytesList{{"ab"}},
                                                          train::BytesList{{"c"}}};
  sequences.write(sequence.serialize());
  sequences.close();

  io::EventFileWriter events((folder / "events").string());
  for (int step = 0; step < 3; ++step) events.scalar("loss", 1.0 / (step + 1), step);
  events.histogram("weights", pattern({100}, at::kFloat), 2);
  events.image("picture", pattern({1, 4, 5, 3}, at::kByte), 1);
  events.text("note", "a *text*", 0);
  events.close();

  io::TensorFile tensors{R"({"kind":"weights"})", {}};
  for (at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool}) {
    tensors.tensors.emplace_back(cat("t/", c10::toString(dtype)), pattern({2, 3}, dtype));
  }
  io::write_tensor_file((folder / "weights.safetensors").string(), tensors);

  io::save_npy((folder / "array.npy").string(), pattern({3, 4}, at::kDouble));
  io::save_npz((folder / "arrays.npz").string(),
               {{"a", pattern({7}, at::kInt)}, {"b", pattern({2, 2}, at::kBool)}});
  write_bytes(folder / "image.png", io::encode_png(pattern({9, 8, 3}, at::kByte)));
  write_bytes(folder / "image.jpg",
              io::encode_jpeg(at::full({16, 16, 3}, 120, at::kByte), {.quality = 95}));
}

int failures = 0;

void check(const std::string& what, const std::function<bool()>& holds) {
  std::string reason = "another value";
  bool good = false;
  try {
    good = holds();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  std::cout << (good ? "ok   " : "FAIL ") << what << (good ? "" : ": " + reason) << "\n";
  failures += good ? 0 : 1;
}

void read_all(const fs::path& folder) {
  for (const char* packing : kPackings) {
    check(cat("TFRecord of Example by TensorFlow, packed \"", packing, "\""), [&] {
      io::TFRecordReader reader((folder / cat("records", packing, ".tfrecord")).string(),
                                {.compression_type = packing});
      for (int i = 0; i < kRecords; ++i) {
        const auto record = reader.next();
        if (!record || !(train::Example::parse(*record) == example_of(i))) return false;
      }
      return !reader.next();
    });
  }
  check("SequenceExample by TensorFlow", [&] {
    io::TFRecordReader reader((folder / "sequence.tfrecord").string());
    const auto sequence = train::SequenceExample::parse(*reader.next());
    const auto& words = sequence.feature_lists.feature_list.at("words").feature;
    return words.size() == 2 && words[1].bytes_list().value.at(0) == "c";
  });
  check("event file by TensorFlow", [&] {
    std::map<std::string, int> seen;
    double last = 0;
    for (const std::string& file : io::event_files((folder / "events").string())) {
      io::EventFileReader reader(file);
      while (const auto event = reader.next()) {
        for (const auto& value : event->values) {
          ++seen[value.tag];
          if (value.tag == "loss") last = *value.scalar();
        }
      }
    }
    return seen["loss"] == 3 && seen["weights"] == 1 && seen["picture"] == 1 && seen["note"] == 1 &&
           std::abs(last - 1.0 / 3) < 1e-6;
  });
  check("safetensors by Python's library", [&] {
    const io::TensorFile file = io::read_tensor_file((folder / "weights.safetensors").string());
    for (const auto& [name, tensor] : file.tensors) {
      if (!at::equal(tensor, pattern({2, 3}, tensor.scalar_type()))) return false;
    }
    return file.tensors.size() == 7;
  });
  check("npy by NumPy", [&] {
    return at::equal(io::load_npy((folder / "array.npy").string()), pattern({3, 4}, at::kDouble));
  });
  check("npz by NumPy", [&] {
    const auto arrays = io::load_npz((folder / "arrays.npz").string());
    return at::equal(arrays.at("a"), pattern({7}, at::kInt)) &&
           at::equal(arrays.at("b"), pattern({2, 2}, at::kBool));
  });
  check("PNG by TensorFlow", [&] {
    return at::equal(io::decode_png(read_bytes(folder / "image.png")),
                     pattern({9, 8, 3}, at::kByte));
  });
  check("JPEG by TensorFlow", [&] {
    const Tensor image = io::decode_jpeg(read_bytes(folder / "image.jpg"));
    return (image.to(at::kInt) - 120).abs().max().item<int>() <= 2;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 3 ? argv[1] : "";
  if (verb != "write" && verb != "read") {
    std::cerr << "usage: interop_files write|read FOLDER\n";
    return 2;
  }
  try {
    if (verb == "write") {
      fs::create_directories(argv[2]);
      write_all(argv[2]);
    } else {
      read_all(argv[2]);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
