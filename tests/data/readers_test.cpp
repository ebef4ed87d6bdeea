#include "tutti/data/readers.h"

#include <ATen/ATen.h>

#include "support/expect.h"
#include "support/temporary_folder.h"
#include "tutti/io/example.h"
#include "tutti/io/parsing.h"
#include "tutti/io/tf_record.h"

namespace tutti::data {
namespace {

using Records = std::vector<std::string>;

class Readers : public testing::TemporaryFolder {
 protected:
  std::string record_file(const std::string& name, const Records& records,
                          const std::string& compression = "") const {
    io::TFRecordWriter writer(path(name), {.compression_type = compression});
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path(name);
  }
  /// Three files of five records: a0 … a4, b0 … b4, c0 … c4.
  std::vector<std::string> three_files() const {
    std::vector<std::string> files;
    for (const std::string& name : {"a", "b", "c"}) {
      Records records;
      for (int i = 0; i < 5; ++i) records.push_back(cat(name, i));
      files.push_back(record_file(name, records));
    }
    return files;
  }
  static Records all(const Dataset<StringTensor>& dataset) {
    Records records;
    for (const StringTensor& record : dataset) records.push_back(record.item());
    return records;
  }
  struct Pass {
    Records records;
    std::vector<std::string> errors;
  };
  /// A whole pass, which goes on behind each error. It ends: at most `limit` calls.
  static Pass whole_pass(const PlanPtr& plan, int limit = 1000) {
    Pass pass;
    const auto iterator = plan->iterator();
    for (; limit > 0; --limit) {
      try {
        const auto element = iterator->next();
        if (!element) return pass;
        pass.records.push_back(element->is_strings() ? element->strings().item() : "");
      } catch (const Error& error) {
        pass.errors.emplace_back(error.what());
      }
    }
    ADD_FAILURE() << "the pass does not end";
    return pass;
  }
  /// Saved before each element, and restored: each pass goes on with exactly what came next.
  static void expect_restored_everywhere(const PlanPtr& plan) {
    const Records whole = whole_pass(plan).records;
    const auto pass = plan->iterator();
    for (std::size_t done = 0;; ++done) {
      const auto again = plan->iterator();
      again->restore(pass->save());
      Records rest;
      while (auto element = again->next()) rest.push_back(element->strings().item());
      EXPECT_EQ(rest, Records(whole.begin() + static_cast<int64_t>(done), whole.end()))
          << "after " << done;
      if (!pass->next()) return;
    }
  }
};

using TFRecordDatasets = Readers;

TEST_F(TFRecordDatasets, GiveTheRecordsOfFileAfterFile) {
  const TFRecordDataset dataset(three_files());
  const Records expected{"a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2",
                         "b3", "b4", "c0", "c1", "c2", "c3", "c4"};
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(all(dataset), expected);
  EXPECT_EQ(dataset.cardinality(), kUnknown);
  EXPECT_EQ(all(TFRecordDataset({})), Records{});
}

TEST_F(TFRecordDatasets, ReadSeveralFilesByTurns) {
  const std::vector<std::string> files{record_file("a", {"a0"}),
                                       record_file("b", {"b0", "b1", "b2"}),
                                       record_file("c", {"c0", "c1"}), record_file("d", {})};
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(all(TFRecordDataset(files, {.num_parallel_reads = 2})),
              (Records{"a0", "b0", "b1", "c0", "b2", "c1"}));
  }
  EXPECT_EQ(all(TFRecordDataset(files, {.num_parallel_reads = 10})),
            (Records{"a0", "b0", "c0", "b1", "c1", "b2"}));
}

TEST_F(TFRecordDatasets, AreUnpacked) {
  for (const char* type : {"GZIP", "ZLIB"}) {
    EXPECT_EQ(
        all(TFRecordDataset({record_file("x", {"one", "two"}, type)}, {.compression_type = type})),
        (Records{"one", "two"}));
  }
}

TEST_F(TFRecordDatasets, UserIssue61_WithADamagedPayloadLoseThatRecordOnly) {
  const std::vector<std::string> files = three_files();
  std::string bytes = bytes_of(files[1]);
  bytes[2 * 18 + 12] ^= 1;  // in b2
  write("b", bytes);
  const Pass pass = whole_pass(TFRecordDataset(files).plan());
  EXPECT_EQ(pass.records.size(), 14u);
  ASSERT_EQ(pass.errors.size(), 1u);
  EXPECT_NE(pass.errors[0].find(cat("[", files[1], ", byte 36]")), std::string::npos)
      << pass.errors[0];
}

TEST_F(TFRecordDatasets, UserIssue61_WithADamagedLengthGoOnWithTheNextFile) {
  for (int good = 0; good < 5; ++good) {
    const std::vector<std::string> files = three_files();
    std::string bytes = bytes_of(files[1]);
    bytes[static_cast<std::size_t>(good) * 18 + 3] ^= 1;
    write("b", bytes);
    for (int64_t reads : {1, 3}) {
      const Pass pass = whole_pass(TFRecordDataset(files, {.num_parallel_reads = reads}).plan());
      EXPECT_EQ(pass.records.size(), static_cast<std::size_t>(10 + good));
      ASSERT_EQ(pass.errors.size(), 1u);
      EXPECT_NE(pass.errors[0].find(cat("[", files[1], ", byte ", good * 18, "]")),
                std::string::npos)
          << pass.errors[0];
    }
  }
}

TEST_F(TFRecordDatasets, OfAMissingFileGoOnWithTheNextOne) {
  const Pass pass = whole_pass(
      TFRecordDataset({record_file("a", {"a0"}), path("none"), record_file("b", {"b0"})}).plan());
  EXPECT_EQ(pass.records, (Records{"a0", "b0"}));
  ASSERT_EQ(pass.errors.size(), 1u);
  EXPECT_NE(pass.errors[0].find(path("none")), std::string::npos);
}

TEST_F(TFRecordDatasets, GoOnWhereTheyWereSaved) {
  const std::vector<std::string> files = three_files();
  for (int64_t reads : {1, 2, 5})
    expect_restored_everywhere(TFRecordDataset(files, {.num_parallel_reads = reads}).plan());
  expect_restored_everywhere(
      TFRecordDataset({record_file("x", {"a", "", "c"}, "GZIP")}, {.compression_type = "GZIP"})
          .plan());
}

TEST_F(TFRecordDatasets, SavedBehindADamagedLengthDoNotSayItAgain) {
  const std::vector<std::string> files = three_files();
  std::string bytes = bytes_of(files[0]);
  bytes[18] ^= 1;
  write("a", bytes);
  const PlanPtr plan = TFRecordDataset(files).plan();
  const auto pass = plan->iterator();
  pass->next();
  EXPECT_ERROR(pass->next(), DataLoss, "byte 18]");
  const auto again = plan->iterator();
  again->restore(pass->save());
  EXPECT_EQ(again->next()->strings().item(), "b0");
}

TEST_F(TFRecordDatasets, RefuseThePlaceOfAnotherPipeline) {
  const std::vector<std::string> files = three_files();
  const auto saved = [&](const TFRecordDataset& dataset) {
    const auto pass = dataset.plan()->iterator();
    pass->next();
    return pass->save();
  };
  const auto restore = [&](const Nest& state) {
    TFRecordDataset(files).plan()->iterator()->restore(state);
  };
  EXPECT_ERROR(restore(saved(TFRecordDataset({files[0]}))), InvalidArgument, "\"files\"");
  EXPECT_ERROR(restore(saved(TFRecordDataset(files, {.num_parallel_reads = 2}))), InvalidArgument,
               "\"turn\" of another pipeline, expected a place in 3 files, 1 open at once");
  Nest state = saved(TFRecordDataset(files));
  const auto with = [&](const char* key, const Tensor& value) {
    std::map<std::string, Nest> parts;
    for (std::size_t i = 0; i < state.size(); ++i) parts.emplace(state.keys()[i], state.items()[i]);
    parts[key] = value;
    return Nest::map(parts);
  };
  EXPECT_ERROR(restore(with("next_file", at::scalar_tensor(4, at::kLong))), InvalidArgument,
               "\"next_file\"");
  EXPECT_ERROR(restore(with("turn", at::scalar_tensor(-1, at::kLong))), InvalidArgument,
               "\"turn\"");
  EXPECT_ERROR(restore(with("open_files", at::tensor({2, 0}, at::kLong).reshape({1, 2}))),
               InvalidArgument, "\"open_files\"");
  EXPECT_ERROR(restore(with("open_files", at::tensor({0, 5000}, at::kLong).reshape({1, 2}))),
               DataLoss, "ends in front of byte 5000");
  EXPECT_ERROR(restore(with("files", at::tensor({3.0F}))), InvalidArgument, "\"files\"");
}

TEST_F(TFRecordDatasets, AreSharedOutFileByFile) {
  const PlanPtr plan = TFRecordDataset(three_files()).plan();
  EXPECT_EQ(whole_pass(auto_shard(plan, AutoShardPolicy::kFile, 3, 1)).records,
            (Records{"b0", "b1", "b2", "b3", "b4"}));
  EXPECT_EQ(plan->files()->size(), 3u);
}

TEST_F(TFRecordDatasets, AreMappedToTensors) {
  Records serialized;
  for (int64_t i = 0; i < 4; ++i)
    serialized.push_back(train::Example({{"id", train::Int64List{{i}}}}).serialize());
  const auto ids =
      TFRecordDataset({record_file("x", serialized)}).map([](const StringTensor& record) {
        const io::FeatureConfigs configs{{"id", io::FixedLenFeature{{}, at::kLong}}};
        return io::parse_single_example(record.item(), configs)["id"].leaf();
      });
  std::vector<int64_t> found;
  for (const Tensor& batch : ids.batch(2)) found.push_back(batch.sum().item<int64_t>());
  EXPECT_EQ(found, (std::vector<int64_t>{1, 5}));
}

TEST_F(TFRecordDatasets, RefuseWrongOptions) {
  EXPECT_ERROR(TFRecordDataset({}, {.compression_type = "BZ2"}), InvalidArgument, "BZ2");
  EXPECT_ERROR(TFRecordDataset({}, {.num_parallel_reads = 0}), InvalidArgument,
               "num_parallel_reads 0");
}

using FixedLengthRecordDatasets = Readers;

TEST_F(FixedLengthRecordDatasets, GiveTheBodyInRecords) {
  const std::string file = write("x", "HHHabcdefF");
  const FixedLengthRecordDatasetOptions options{.header_bytes = 3, .footer_bytes = 1};
  EXPECT_EQ(all(FixedLengthRecordDataset({file, file}, 2, options)),
            (Records{"ab", "cd", "ef", "ab", "cd", "ef"}));
  EXPECT_EQ(all(FixedLengthRecordDataset({file}, 3, options)), (Records{"abc", "def"}));
  EXPECT_EQ(all(FixedLengthRecordDataset({write("empty", "")}, 3)), Records{});
  EXPECT_EQ(all(FixedLengthRecordDataset({file}, 10)), Records{"HHHabcdefF"});
}

TEST_F(FixedLengthRecordDatasets, AreUnpacked) {
  FixedLengthRecordDatasetOptions options{
      .header_bytes = 3, .footer_bytes = 1, .compression_type = "GZIP"};
  const std::string file = write("x", gzipped("HHHabcdefF"));
  for (int64_t buffer : {1, 4, 1000}) {
    options.buffer_size = buffer;
    EXPECT_EQ(all(FixedLengthRecordDataset({file}, 2, options)), (Records{"ab", "cd", "ef"}));
  }
}

TEST_F(FixedLengthRecordDatasets, OfAFileOfAnotherLengthAreAnErrorBehindWhichThePassGoesOn) {
  const std::string good = write("good", "abcd");
  for (const std::string& bytes : {std::string("abc"), std::string("a")}) {
    const Pass pass = whole_pass(FixedLengthRecordDataset({write("bad", bytes), good}, 2).plan());
    EXPECT_EQ(pass.records, (Records{"ab", "cd"}));
    ASSERT_EQ(pass.errors.size(), 1u);
    EXPECT_NE(pass.errors[0].find(path("bad")), std::string::npos);
    EXPECT_NE(pass.errors[0].find("exact multiple of the record length, 2 bytes"),
              std::string::npos);
  }
  const Pass packed = whole_pass(
      FixedLengthRecordDataset({write("bad", gzipped("abcde"))}, 2, {.compression_type = "GZIP"})
          .plan());
  EXPECT_EQ(packed.records, (Records{"ab", "cd"}));
  EXPECT_EQ(packed.errors.size(), 1u);
}

TEST_F(FixedLengthRecordDatasets, GoOnWhereTheyWereSaved) {
  const std::string bytes = "Habcdef..";
  for (const char* type : {"", "GZIP"}) {
    const std::string file = write("x", *type == '\0' ? bytes : gzipped(bytes));
    expect_restored_everywhere(
        FixedLengthRecordDataset({file, file}, 2,
                                 {.header_bytes = 1, .footer_bytes = 2, .compression_type = type})
            .plan());
  }
}

TEST_F(FixedLengthRecordDatasets, CutAnywhereGiveWholeRecordsOrAnError) {
  const std::string bytes = "HHabcdefF";
  for (const char* type : {"", "GZIP"}) {
    const std::string whole = *type == '\0' ? bytes : gzipped(bytes);
    for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
      SCOPED_TRACE(cat(type, " ", what));
      const bool is_packed = *type != '\0';
      const Pass pass = whole_pass(
          FixedLengthRecordDataset({write("x", damaged)}, 2,
                                   {.header_bytes = 2, .footer_bytes = 1, .compression_type = type})
              .plan());
      EXPECT_LE(pass.errors.size(), 1u);
      for (const std::string& record : pass.records) EXPECT_EQ(record.size(), 2u);
      if (pass.errors.empty() && is_packed && !damaged.empty()) {
        EXPECT_EQ(pass.records, (Records{"ab", "cd", "ef"}));
      }
      if (!is_packed) {
        EXPECT_LE(pass.records.size(), 3u);
        EXPECT_EQ(pass.errors.empty(), damaged.size() % 2 == 1 && damaged.size() >= 3);
      }
    });
  }
}

TEST_F(FixedLengthRecordDatasets, RefuseWrongSizes) {
  EXPECT_ERROR(FixedLengthRecordDataset({}, 0), InvalidArgument, "record_bytes 0");
  EXPECT_ERROR(FixedLengthRecordDataset({}, 1, {.header_bytes = -1}), InvalidArgument, "-1");
}

using TextLinesOfDamagedFiles = Readers;

TEST_F(TextLinesOfDamagedFiles, AreLinesOrAnError) {
  const std::string bytes = "one\r\ntwo\n\nlast";
  for (const bool is_packed : {false, true}) {
    const std::string whole = is_packed ? gzipped(bytes) : bytes;
    for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
      SCOPED_TRACE(what);
      const Pass pass = whole_pass(text_lines({write("x", damaged), write("y", "end")}).plan());
      EXPECT_LE(pass.records.size(), bytes.size() + 1);
      EXPECT_GE(pass.records.size(), 1u);
      EXPECT_LE(pass.errors.size(), 1u);
    });
  }
}

}  // namespace
}  // namespace tutti::data
