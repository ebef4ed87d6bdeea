#include "io/csv_reader.h"

#include "support/expect.h"
#include "support/temporary_folder.h"

namespace tutti::io {
namespace {

using Rows = std::vector<std::vector<std::string>>;

class CsvRecords : public testing::TemporaryFolder {
 protected:
  static Rows all(const std::string& file, const CsvFormat& format = {}, int* mistakes = nullptr) {
    CsvReader reader(file, format);
    std::vector<std::string_view> fields;
    Rows rows;
    for (;;) {
      try {
        if (!reader.next(fields)) return rows;
        rows.emplace_back(fields.begin(), fields.end());
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(file), std::string::npos);
        if (mistakes == nullptr) throw;
        ++*mistakes;
      }
    }
  }
};

TEST_F(CsvRecords, AreSplitAtDelimitersAndEndsOfLine) {
  for (int64_t buffer : {1, 2, 3, 1000}) {
    SCOPED_TRACE(buffer);
    const CsvFormat format{.buffer_size = buffer};
    EXPECT_EQ(all(write("x", "a,b\n1,\n,2\r\n\rlast"), format),
              (Rows{{"a", "b"}, {"1", ""}, {"", "2"}, {""}, {"last"}}));
    EXPECT_EQ(all(write("x", "a,"), format), (Rows{{"a", ""}}));
    EXPECT_EQ(all(write("x", ""), format), Rows{});
    EXPECT_EQ(all(write("x", "\n"), format), Rows{{""}});
    EXPECT_EQ(all(write("x", "\"a,\"\"b\"\"\n\",\"\"\r\n\"c\""), format),
              (Rows{{"a,\"b\"\n", ""}, {"c"}}));
  }
}

TEST_F(CsvRecords, HaveOtherDelimitersAndNoQuotesOnDemand) {
  EXPECT_EQ(all(write("x", "a;\"b\n"), {.field_delim = ';', .use_quote_delim = false}),
            (Rows{{"a", "\"b"}}));
}

TEST_F(CsvRecords, OfWrongQuotesAreRefusedAndTheNextOneIsRead) {
  CsvReader reader(write("x", "a,b\"c\n1,2\n\"a\"b\",3\n4,5\n\"open\n"), {});
  std::vector<std::string_view> fields;
  EXPECT_ERROR(reader.next(fields), InvalidArgument, "byte 0]: a field without quotes");
  EXPECT_TRUE(reader.next(fields));
  EXPECT_EQ(fields[1], "2");
  EXPECT_ERROR(reader.next(fields), InvalidArgument, "byte 10]: a quote inside a quoted field");
  EXPECT_TRUE(reader.next(fields));
  EXPECT_EQ(fields[0], "4");
  EXPECT_ERROR(reader.next(fields), InvalidArgument, "byte 22]: a quoted field that the end");
  EXPECT_FALSE(reader.next(fields));
}

TEST_F(CsvRecords, AreFoundAgainByTheirOffsets) {
  const std::string text = "a,\"x\ny\"\r\nb\nc,d\r\n";
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    const std::string bytes = compression == Compression::kNone ? text : gzipped(text);
    CsvReader reader(write("x", bytes), {.compression = compression});
    std::vector<std::string_view> fields;
    std::vector<int64_t> offsets;
    Rows rows;
    for (;;) {
      offsets.push_back(reader.offset());
      if (!reader.next(fields)) break;
      rows.emplace_back(fields.begin(), fields.end());
    }
    ASSERT_EQ(rows.size(), 3u);
    for (std::size_t i : {1, 0, 2}) {
      reader.seek(offsets[i]);
      ASSERT_TRUE(reader.next(fields));
      EXPECT_EQ(std::vector<std::string>(fields.begin(), fields.end()), rows[i]);
    }
  }
}

TEST_F(CsvRecords, DamagedAnywhereAreFieldsOrAnError) {
  const std::string text = "id,name\r\n1,\"a,\"\"b\"\n2,c\n";
  for_each_damage(text, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    int mistakes = 0;
    const Rows rows = all(write("x", damaged), {}, &mistakes);
    EXPECT_LE(rows.size() + static_cast<std::size_t>(mistakes), 5u);
  });
  const std::string packed = gzipped(text);
  const Rows right = all(write("x", text));
  for_each_damage(packed, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    int mistakes = 0;
    try {
      const Rows rows = all(write("x", damaged), {.compression = Compression::kGzip}, &mistakes);
      EXPECT_TRUE(rows == right || damaged.empty());
    } catch (const DataLoss& error) {
      EXPECT_NE(std::string(error.what()).find("expected whole gzip"), std::string::npos);
    }
  });
}

TEST_F(CsvRecords, OfFieldsWithoutEndAreRefusedBeforeTheyTakeMemory) {
  const std::string packed = write("x", gzipped(std::string(std::size_t{6} << 20, ',')));
  EXPECT_ERROR(all(packed, {.compression = Compression::kGzip}), InvalidArgument,
               "more than 4194304 fields");
}

}  // namespace
}  // namespace tutti::io
