// data_bench --work data_main --data DIR: one pipeline, one JSON line; --prepare DIR writes the
// files that it and peers/tf_data.py read. benchmarks/run.py interleaves it with the peer.

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using data::kAutotune;

// Beside peers/tf_data.py, which has the same numbers.
constexpr int64_t kImages = 60000;
constexpr int64_t kBatch = 128;
constexpr int64_t kRecordBytes = 10000;
constexpr int64_t kRecordFiles = 4;
constexpr int64_t kVectors = 2000;
constexpr int64_t kVectorSize = 16384;
constexpr int64_t kJpegs = 500;

struct Files {
  std::string folder;
  int64_t records;  // in each file
  std::string records_file(int64_t i) const { return cat(folder, "/records_", i, ".tfrecord"); }
  std::string jpegs() const { return folder + "/jpegs.tfrecord"; }
};

/// Smooth, as photographs are: noise would make decoding slower than it is.
Tensor picture(int64_t number) {
  const Tensor y = at::arange(256).to(at::kFloat).reshape({256, 1, 1});
  const Tensor x = at::arange(256).to(at::kFloat).reshape({1, 256, 1});
  const Tensor c = at::arange(3).to(at::kFloat).reshape({1, 1, 3});
  const auto phase = static_cast<double>(number);
  const Tensor wave = at::sin(x / 17 + phase) + at::cos(y / 23 + c + phase) + at::sin(x * y / 9000);
  return ((wave + 3) * 42).clamp(0, 255).to(at::kByte);
}

void prepare(const Files& files, int64_t jpegs) {
  std::filesystem::create_directories(files.folder);
  RandomBits random(1);
  std::string record(kRecordBytes, '\0');
  for (int64_t i = 0; i < kRecordFiles; ++i) {
    io::TFRecordWriter writer(files.records_file(i));
    for (int64_t r = 0; r < files.records; ++r) {
      for (char& byte : record) byte = static_cast<char>(random.next());
      writer.write(record);
    }
    writer.close();
  }
  io::TFRecordWriter writer(files.jpegs());
  for (int64_t i = 0; i < jpegs; ++i) writer.write(io::encode_jpeg(picture(i)));
  writer.close();
}

struct Pipeline {
  data::Dataset<Nest> dataset;
  int passes;
  int64_t samples;  // of one pass
  /// What an element adds to the check sum.
  std::function<double(const Nest&)> check;
};

Pipeline slices(const Tensor& images, const Tensor& labels, bool mapped) {
  auto rows = data::from_tensor_slices(images, labels);
  const auto check = [](const Nest& batch) {
    return static_cast<double>(batch[1].leaf().sum().item<int64_t>());
  };
  if (!mapped) return {rows.batch(kBatch), 20, images.size(0), check};
  const auto scaled = rows.map([](const Tensor& image, const Tensor& label) {
    return std::tuple(image.to(at::kFloat).div_(255), label);
  });
  return {scaled.batch(kBatch), 3, images.size(0), check};
}

Pipeline pipeline(const std::string& work, const Files& files, double scale) {
  const auto scaled = [scale](int64_t count) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * scale));
  };
  if (work == "data_slices" || work == "data_main") {
    const int64_t count = scaled(kImages);
    const Tensor images = at::arange(count * 784).remainder(251).to(at::kByte);
    return slices(images.reshape({count, 28, 28, 1}), at::arange(count).remainder(10),
                  work == "data_main");
  }
  if (work == "data_tfrecord") {
    std::vector<std::string> names;
    for (int64_t i = 0; i < kRecordFiles; ++i) names.push_back(files.records_file(i));
    return {data::TFRecordDataset(names), 3, kRecordFiles * files.records,
            [](const Nest& record) { return static_cast<double>(record.strings().item().size()); }};
  }
  if (work == "data_parallel_map") {
    const int64_t count = scaled(kVectors);
    const auto rows = data::from_tensor_slices(
        at::linspace(0, 1, count * kVectorSize).reshape({count, kVectorSize}));
    const auto mapped = rows.map([](const Tensor& x) { return at::exp(at::sin(x)).sqrt().mean(); },
                                 {.num_parallel_calls = kAutotune});
    return {mapped.batch(32), 3, count,
            [](const Nest& batch) { return batch.leaf().sum().item<double>(); }};
  }
  const auto decoded = data::TFRecordDataset({files.jpegs()})
                           .map(
                               [](const StringTensor& bytes) {
                                 return io::decode_jpeg(bytes.item(), {.channels = 3});
                               },
                               {.num_parallel_calls = kAutotune});
  return {decoded, 3, scaled(kJpegs),
          [](const Nest& image) { return static_cast<double>(image.leaf().size(1)); }};
}

nlohmann::json measured(const std::string& work, const Pipeline& pipeline) {
  double sum = 0;
  const auto pass = [&] {
    auto iterator = pipeline.dataset.iterator();
    while (auto element = iterator.next()) sum += pipeline.check(*element);
  };
  pass();  // warm
  sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < pipeline.passes; ++i) pass();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto samples = static_cast<double>(pipeline.samples * pipeline.passes);
  return {{"contender", "tutti_data"},
          {"workload", work},
          {"samples_per_s", samples / seconds},
          {"seconds", seconds},
          {"check", sum}};
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  namespace bench = tutti::bench;
  CLI::App app("Input pipelines");
  std::string work, folder;
  double scale = 1;
  bool prepare = false;
  app.add_option("--work", work,
                 "data_slices, data_main, data_tfrecord, data_parallel_map or data_jpeg")
      ->check(CLI::IsMember(
          {"data_slices", "data_main", "data_tfrecord", "data_parallel_map", "data_jpeg"}));
  app.add_option("--data", folder, "folder of the files")->required();
  app.add_option("--scale", scale, "factor on the numbers of elements, to try the benchmark");
  app.add_flag("--prepare", prepare, "write the files and end");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto scaled = [scale](int64_t count) {
      return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * scale));
    };
    const bench::Files files{folder,
                             scaled(100'000'000 / bench::kRecordBytes / bench::kRecordFiles)};
    if (prepare) {
      bench::prepare(files, scaled(bench::kJpegs));
    } else {
      std::cout << bench::measured(work, bench::pipeline(work, files, scale)).dump() << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << "data_bench: " << error.what() << "\n";
    return 1;
  }
}
