#include "tools/inspect.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/expect.h"
#include "tutti/io/events.h"
#include "tutti/io/example.h"
#include "tutti/io/tensor_file.h"
#include "tutti/io/tf_record.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

class Inspect : public ::testing::Test {
 protected:
  Inspect() : folder_(fs::temp_directory_path() / cat("tutti_inspect_", getpid())) {
    fs::create_directories(folder_);
  }
  ~Inspect() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string described(const std::string& path) {
    std::ostringstream out;
    describe(path, out);
    return out.str().substr(out.str().find(": ") + 2);
  }
  fs::path folder_;
};

TEST_F(Inspect, ListsTensorsWithTheirRanges) {
  io::write_tensor_file(path("m"), {R"({"kind":"sequential","name":"net","layers":[{"class_name":)"
                                    R"("Dense"}],"compiled":{"optimizer":{"class_name":"Adam"},)"
                                    R"("iterations":7}})",
                                    {{"dense/kernel", at::arange(6, at::kFloat).view({2, 3})},
                                     {"empty", at::zeros({0, 2}, at::kLong)}}});
  EXPECT_EQ(described(path("m")),
            "safetensors, kind sequential\n"
            "model \"net\": Dense\n"
            "optimizer Adam after 7 steps\n"
            "  tensor          dtype   shape  min  mean  max\n"
            "  dense/kernel  float32  (2, 3)    0   2.5    5\n"
            "  empty           int64  (0, 2)\n"
            "2 tensors, 6 values, 24 B\n");
}

TEST_F(Inspect, ListsRecordsAndTheFeaturesOfTheFirst) {
  for (const char* packing : {"", "GZIP", "ZLIB"}) {
    {
      io::TFRecordWriter writer(path("r"), {.compression_type = packing});
      writer.write(train::Example({{"label", train::Int64List{{3}}},
                                   {"name", train::BytesList{{"cat"}}},
                                   {"x", train::FloatList{{1, 2, 3, 4.5}}}})
                       .serialize());
      writer.write("abc");
    }
    const std::string text = described(path("r"));
    EXPECT_NE(text.find(std::string(packing).empty() ? "TFRecord, 2 records"
                                                     : cat("TFRecord, ", packing, ", 2 records")),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("label                        int64"), std::string::npos) << text;
    EXPECT_NE(text.find("\"cat\""), std::string::npos) << text;
    EXPECT_NE(text.find("1, 2, 3, …"), std::string::npos) << text;
  }
}

TEST_F(Inspect, ADamagedRecordIsNamedAndTheRestIsRead) {
  {
    io::TFRecordWriter writer(path("r"));
    for (const char* record : {"one", "two", "three"}) writer.write(record);
  }
  std::fstream file(path("r"), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(19 + 12);
  file.put('X');
  file.close();
  const std::string text = described(path("r"));
  EXPECT_NE(text.find("2 records"), std::string::npos) << text;
  EXPECT_NE(text.find("1 records are damaged"), std::string::npos) << text;
}

TEST_F(Inspect, ListsTagsOfEventFilesAndOfTheFoldersBelow) {
  for (const char* run : {"logs/train", "logs/validation"}) {
    io::EventFileWriter writer(path(run));
    for (int step = 0; step < 3; ++step) writer.scalar("epoch_loss", 3 - step, step);
    writer.text("note", "hello", 0);
  }
  const std::string text = described(path("logs"));
  EXPECT_NE(text.find("2 event files"), std::string::npos) << text;
  EXPECT_NE(text.find("train/epoch_loss       scalars       3  0 to 2    1    3     1"),
            std::string::npos)
      << text;
  const auto curves = curves_of(path("logs"));
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[1].name, "validation/epoch_loss");
  EXPECT_EQ(curves[1].y, (std::vector<double>{3, 2, 1}));
  EXPECT_EQ(kind_of(io::event_files(path("logs/train")).at(0)), FileKind::kEvents);
}

TEST_F(Inspect, CsvLogsHaveCurvesOfTheEpochsThatHaveNumbers) {
  std::ofstream(path("log.csv"))
      << "epoch,loss,val_loss,note\n0,2.5,NA,x\n1,nan,1.75,y\n2,1.5,NA,z\n";
  const auto curves = curves_of(path("log.csv"));
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].name, "loss");
  EXPECT_EQ(curves[0].x, (std::vector<double>{0, 1, 2}));
  EXPECT_TRUE(std::isnan(curves[0].y[1]));
  EXPECT_EQ(curves[1].x, (std::vector<double>{1}));
  EXPECT_NE(described(path("log.csv")).find("CSV, 3 rows"), std::string::npos);
}

TEST_F(Inspect, WhatHasNoKindOrNoCurvesIsRefused) {
  std::ofstream(path("text")) << "hello";
  EXPECT_ERROR(describe(path("text"), std::cout), InvalidArgument, "of no kind");
  EXPECT_ERROR(describe(path("none"), std::cout), NotFound, "no such file");
  io::write_tensor_file(path("m"), {"{}", {{"a", at::zeros({1})}}});
  EXPECT_ERROR(curves_of(path("m")), InvalidArgument, "no curves");
  fs::create_directories(path("empty"));
  EXPECT_ERROR(curves_of(path("empty")), InvalidArgument, "no curves");
}

TEST_F(Inspect, ShowsWhatATerminalWouldObeyAsBytes) {
  io::write_tensor_file(path("m"), {R"({"kind":"\u001b]2;title\u0007","name":"\u009b2J"})",
                                    {{"a\x1b[31m\r", at::ones({1})}}});
  const std::string shown = described(path("m"));
  EXPECT_NE(shown.find("kind \\x1b]2;title\\x07\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("model \"\\x9b2J\""), std::string::npos) << shown;
  EXPECT_NE(shown.find("a\\x1b[31m\\x0d"), std::string::npos) << shown;
  EXPECT_EQ(printable("caf\xc3\xa9\n\x7f"), "caf\xc3\xa9\n\\x7f");
}

TEST_F(Inspect, TakesAnyDescription) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  for (const std::string& description :
       {std::string(R"({"kind":7,"name":[],"layers":[{"class_name":1},2],"compiled":3})"),
        std::string(R"({"kind":"x","compiled":{"optimizer":{"class_name":[]},"iterations":"y"}})"),
        cat(R"({"kind":"x","layers":[)", deep, R"(],"compiled":{"optimizer":)", deep, "}}"),
        cat(R"({"compiled":)", deep, "}")}) {
    io::write_tensor_file(path("m"), {description, {{"w", at::ones({1})}}});
    EXPECT_NE(described(path("m")).find("1 tensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::tools
