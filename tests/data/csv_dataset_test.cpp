#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "support/expect.h"
#include "support/temporary_folder.h"
#include "tutti/data/readers.h"

namespace tutti::data {
namespace {

class CsvDatasets : public testing::TemporaryFolder {
 protected:
  /// Each element as text: numbers as they print, strings as they are.
  static std::vector<std::string> all(const Dataset<Nest>& dataset) {
    std::vector<std::string> rows;
    const auto pass = dataset.plan()->iterator();
    for (int limit = 1000; limit > 0; --limit) {
      try {
        const auto element = pass->next();
        if (!element) return rows;
        rows.push_back(text_of(*element));
      } catch (const InvalidArgument& error) {
        rows.push_back(cat("error: ", error.what()));
      }
    }
    ADD_FAILURE() << "the pass does not end";
    return rows;
  }
  static std::string text_of(const Nest& row) {
    std::vector<std::string> items;
    for (const Nest& item : row.items()) {
      items.push_back(item.is_strings() ? item.strings().item() : cat(item.leaf().item<double>()));
    }
    return join(items, "|");
  }
  static std::string part_of_error(const std::string& text) { return text.substr(0, 5); }
};

using Rows = std::vector<std::string>;

TEST_F(CsvDatasets, GiveTuplesOfScalars) {
  const CsvDataset dataset({write("x", "a,b,c\n1,2.5,x\n2,,\"y,z\"\n")}, {at::kInt, 9.0F, kString},
                           {.header = true});
  EXPECT_EQ(all(dataset), (Rows{"1|2.5|x", "2|9|y,z"}));
  const Nest row = dataset.iterator().get_next();
  EXPECT_EQ(row[0].leaf().scalar_type(), at::kInt);
  EXPECT_EQ(row[0].leaf().dim(), 0);
  EXPECT_EQ(row[1].leaf().scalar_type(), at::kFloat);
  EXPECT_EQ(dataset.element_spec().size(), 3u);
  EXPECT_EQ(dataset.element_spec()[0].leaf(), (TensorSpec{{}, at::kInt}));
  EXPECT_EQ(dataset.cardinality(), kUnknown);
}

TEST_F(CsvDatasets, ReadEveryDtypeWithItsDefault) {
  const CsvDataset dataset({write("x", ",,,,\n-7,9000000000,1e-3,-2.5e300,s\n 5 ,+6, inf,nan,\n")},
                           {1, int64_t{2}, 0.5F, 0.25, "none"});
  EXPECT_EQ(all(dataset),
            (Rows{"1|2|0.5|0.25|none", "-7|9e+09|0.001|-2.5e+300|s", "5|6|inf|nan|none"}));
  EXPECT_EQ(dataset.iterator().get_next()[3].leaf().scalar_type(), at::kDouble);
}

TEST_F(CsvDatasets, SayWhichFieldIsWrongAndGoOn) {
  const CsvDataset dataset(
      {write("x", "1,a\n,b\n3\n4,d,e\nfive,f\n3000000000,g\n7,h\"\n1.0,i\n8,j\n")},
      {at::kInt, kString});
  const Rows rows = all(dataset);
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[0], "1|a");
  EXPECT_EQ(rows[8], "8|j");
  const auto expect_error = [&](std::size_t row, const std::string& part) {
    EXPECT_NE(rows[row].find(part), std::string::npos) << rows[row];
  };
  expect_error(1, cat("[", path("x"), ", record at byte 4]: field 0 is required but missing"));
  expect_error(2, "record at byte 7]: 1 fields, expected 2");
  expect_error(3, "3 fields, expected 2");
  expect_error(4, "field 0 is \"five\", expected a valid int32");
  expect_error(5, "field 0 is \"3000000000\", expected a valid int32");
  expect_error(6, "quote");
  expect_error(7, "expected a valid int32");
}

TEST_F(CsvDatasets, TakeTheSelectedColumnsOnly) {
  const std::string file = write("x", "1,no number,a\n2,,b\n");
  EXPECT_EQ(
      all(CsvDataset({file}, {at::kInt, kString}, {.select_cols = std::vector<int64_t>{0, 2}})),
      (Rows{"1|a", "2|b"}));
  const Rows rows = all(CsvDataset({file}, {kString}, {.select_cols = std::vector<int64_t>{3}}));
  EXPECT_NE(rows[0].find("3 fields, expected more than 3"), std::string::npos) << rows[0];
  for (const std::vector<int64_t>& wrong : std::vector<std::vector<int64_t>>{{0}, {1, 0}, {-1, 0}})
    EXPECT_ERROR(CsvDataset({file}, {at::kInt, kString}, {.select_cols = wrong}), InvalidArgument,
                 "select_cols");
}

TEST_F(CsvDatasets, KnowOtherDelimitersQuotesAndMissingValues) {
  EXPECT_EQ(all(CsvDataset({write("x", "1;\"\n?;b\n")}, {7, kString},
                           {.field_delim = ';', .use_quote_delim = false, .na_value = "?"})),
            (Rows{"1|\"", "7|b"}));
  EXPECT_ERROR(CsvDataset({}, {kString}, {.field_delim = '"'}), InvalidArgument, "field_delim");
  EXPECT_ERROR(CsvDataset({}, {at::kBool}), InvalidArgument, "a column of bool");
  EXPECT_ERROR(CsvDataset({}, {}), InvalidArgument, "no record_defaults");
}

TEST_F(CsvDatasets, PassOverEmptyLinesOfSeveralColumns) {
  EXPECT_EQ(all(CsvDataset({write("x", "1,a\n\n2,b\n\n")}, {at::kInt, kString})),
            (Rows{"1|a", "2|b"}));
  EXPECT_EQ(all(CsvDataset({write("x", "a\n\nb\n")}, {"-"})), (Rows{"a", "-", "b"}));
}

TEST_F(CsvDatasets, PassOverTheHeaderOfEachFileAndUnpack) {
  const std::vector<std::string> files{write("a", gzipped("n\n1\n")),
                                       write("b", gzipped("n\n2\n"))};
  EXPECT_EQ(all(CsvDataset(files, {at::kInt}, {.compression_type = "GZIP", .header = true})),
            (Rows{"1", "2"}));
}

TEST_F(CsvDatasets, GoOnWhereTheyWereSaved) {
  const std::vector<std::string> files{write("a", "n\r\n1\r\n\"2\"\r\n"), write("b", "n\n3"),
                                       write("c", "n\n")};
  const PlanPtr plan = CsvDataset(files, {at::kInt}, {.header = true}).plan();
  const auto pass = plan->iterator();
  for (int done = 0; done <= 3; ++done) {
    const auto again = plan->iterator();
    again->restore(pass->save());
    int expected = done;
    while (auto row = again->next()) EXPECT_EQ((*row)[0].leaf().item<int>(), ++expected);
    EXPECT_EQ(expected, 3);
    pass->next();
  }
  EXPECT_EQ(auto_shard(plan, AutoShardPolicy::kFile, 2, 1)->files()->size(), 1u);
}

TEST_F(CsvDatasets, DamagedAnywhereAreRowsOrErrors) {
  const std::string bytes = "id,x\n1,2.5\n\"2\",\n3,1e3\n";
  for_each_damage(bytes, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    const Rows rows = all(CsvDataset({write("x", damaged)}, {at::kInt, 0.0F}, {.header = true}));
    EXPECT_LE(rows.size(), 5u);
  });
}

// --- make_csv_dataset --------------------------------------------------------------------------

using experimental::make_csv_dataset;

TEST_F(CsvDatasets, OfWholeTablesInferTheirColumns) {
  const std::string file =
      write("x.csv", "i,l,f,d,s,m\n1,5000000000,0.5,1e300,a,\n2,1,,2,\"b,c\",\n");
  const auto dataset = make_csv_dataset(file, 2, {.num_epochs = 1, .shuffle = false});
  std::vector<Nest> batches;
  for (const Nest& batch : dataset) batches.push_back(batch);
  ASSERT_EQ(batches.size(), 1u);
  const Nest& batch = batches[0];
  EXPECT_EQ(batch.keys(), (std::vector<std::string>{"d", "f", "i", "l", "m", "s"}));
  EXPECT_TENSOR_EQ(batch["i"].leaf(), at::tensor({1, 2}));
  EXPECT_EQ(batch["i"].leaf().scalar_type(), at::kInt);
  EXPECT_EQ(batch["l"].leaf().scalar_type(), at::kLong);
  EXPECT_EQ(batch["f"].leaf().scalar_type(), at::kFloat);
  EXPECT_TENSOR_EQ(batch["f"].leaf(), at::tensor({0.5F, 0.0F}));
  EXPECT_EQ(batch["d"].leaf().scalar_type(), at::kDouble);
  EXPECT_EQ(batch["s"].strings(), (StringTensor{"a", "b,c"}));
  EXPECT_EQ(batch["m"].strings(), (StringTensor{"", ""}));
  EXPECT_EQ(dataset.plan()->batch_size(), 2);
}

TEST_F(CsvDatasets, OfWholeTablesSetTheLabelApart) {
  const std::string file = write("x.csv", "a,label,b\n1,0,x\n2,1,y\n3,0,z\n");
  const auto dataset = make_csv_dataset(file, 2,
                                        {.label_name = "label",
                                         .select_columns = std::vector<std::string>{"label", "a"},
                                         .num_epochs = 1,
                                         .shuffle = false});
  std::vector<int64_t> labels, sizes;
  for (const Nest& batch : dataset) {
    EXPECT_EQ(batch[0].keys(), std::vector<std::string>{"a"});
    sizes.push_back(batch[1].leaf().size(0));
    for (int64_t i = 0; i < sizes.back(); ++i) labels.push_back(batch[1].leaf()[i].item<int>());
  }
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 1}));
}

TEST_F(CsvDatasets, OfWholeTablesShuffleAndRepeat) {
  write("a.csv", "n\n1\n2\n3\n");
  write("b.csv", "n\n4\n5\n6\n");
  const auto numbers = [&](const experimental::MakeCsvDatasetOptions& options, int64_t batches) {
    std::vector<int> all;
    for (const Nest& batch : make_csv_dataset(path("*.csv"), 4, options).take(batches)) {
      const Tensor values = batch["n"].leaf();
      for (int64_t i = 0; i < values.size(0); ++i) all.push_back(values[i].item<int>());
    }
    return all;
  };
  const std::vector<int> shuffled = numbers({.num_epochs = 1, .shuffle_seed = 3}, -1);
  EXPECT_EQ(std::set<int>(shuffled.begin(), shuffled.end()).size(), 6u);
  EXPECT_EQ(shuffled, numbers({.num_epochs = 1, .shuffle_seed = 3}, -1));
  EXPECT_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  EXPECT_EQ(numbers({.shuffle = false}, 3), (std::vector<int>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}))
      << "for ever, in whole batches";
  EXPECT_EQ(numbers({.num_epochs = 1, .shuffle = false, .num_parallel_reads = 2}, -1),
            (std::vector<int>{1, 4, 2, 5, 3, 6}));
}

TEST_F(CsvDatasets, OfWholeTablesRefuseWrongNames) {
  const std::string file = write("x.csv", "a,b\n1,2\n");
  const auto make = [&](const experimental::MakeCsvDatasetOptions& options) {
    make_csv_dataset(file, 1, options);
  };
  EXPECT_ERROR(make({.label_name = "c"}), InvalidArgument, "label_name \"c\"");
  EXPECT_ERROR(make({.select_columns = std::vector<std::string>{"c"}}), InvalidArgument,
               "column \"c\", expected one of a, b");
  EXPECT_ERROR(make({.column_names = std::vector<std::string>{"a", "a"}}), InvalidArgument,
               "no name twice");
  EXPECT_ERROR(make({.column_defaults = std::vector<CsvColumn>{1}}), InvalidArgument,
               "1 column_defaults, expected 2");
  EXPECT_ERROR(make({.header = false}), InvalidArgument, "neither column_names nor a header");
  EXPECT_ERROR(make_csv_dataset(std::vector<std::string>{file, write("y.csv", "a,c\n")}, 1),
               InvalidArgument, "the header a, c, expected a, b");
  EXPECT_ERROR(make_csv_dataset(path("none*"), 1), NotFound, "none*");
  EXPECT_ERROR(make_csv_dataset(file, 0), InvalidArgument, "batch_size 0");
}

}  // namespace
}  // namespace tutti::data
