// Bad texts of TF_CONFIG, each with the place and the words that its error must have; and many that
// chance makes.

#include <gtest/gtest.h>

#include <array>

#include "cluster/surroundings.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"
#include "tutti/base/seed.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::throws_saying;

struct Bad {
  std::string text;
  std::string place;
  std::string words;
};

struct BadAddress {
  const char* json;  // the value that stands where an address should
  const char* words;
};

std::vector<BadAddress> address_faults() {
  return {
      {R"("")", "an empty address"},
      {R"("a")", "no port in \"a\""},
      {R"("localhost")", "no port"},
      {R"("a:")", "no port behind the colon"},
      {R"(":2222")", "an empty host"},
      {R"("a:0")", "port \"0\""},
      {R"("a:65536")", "port \"65536\""},
      {R"("a:99999999999999999999")", "port \"99999999999999999999\""},
      {R"("a:-1")", "port \"-1\""},
      {R"("a:+80")", "port \"+80\""},
      {R"("a:080")", "port \"080\""},
      {R"("a:80 ")", "port \"80 \""},
      {R"("a: 80")", "port \" 80\""},
      {R"("a:http")", "port \"http\""},
      {R"("a:1.5")", "port \"1.5\""},
      {R"("a:0x50")", "port \"0x50\""},
      {R"("a:80/path")", "port \"80/path\""},
      {R"(" a:80")", "the character \" \""},
      {R"("a b:80")", "the character \" \""},
      {R"("a/b:80")", "the character \"/\""},
      {R"("user@a:80")", "the character \"@\""},
      {R"("a\u0000b:80")", "the character \"\\x00\""},
      {R"("a\nb:80")", "the character \"\\x0a\""},
      {R"("\u00e4:80")", "the character \"\\xc3\""},
      {R"("grpc://a:80")", "a protocol"},
      {R"("http://a:80")", "a protocol"},
      {R"("-a:80")", "begins or ends with '-'"},
      {R"("a-:80")", "begins or ends with '-'"},
      {R"("a..b:80")", "an empty label"},
      {R"(".a:80")", "an empty label"},
      {R"("a.:80")", "an empty label"},
      {R"("256.0.0.1:80")", "an IPv4 address"},
      {R"("1.2.3:80")", "an IPv4 address"},
      {R"("::1:80")", "in brackets"},
      {R"("[::1]")", "no port"},
      {R"("[::1:80")", "an IPv6 address in the brackets"},
      {R"("[1.2.3.4]:80")", "an IPv6 address in the brackets"},
      {"null", "null, expected a string"},
      {"80", "80, expected a string"},
      {"true", "true, expected a string"},
      {R"(["a:80"])", "a list, expected a string"},
      {R"({"host": "a"})", "an object, expected a string"},
  };
}

std::vector<Bad> bad_addresses() {
  std::vector<Bad> all;
  for (const auto& [json, words] : address_faults()) {
    all.push_back(
        {cat(R"({"cluster": {"worker": ["ok:1", )", json, "]}}"), "$.cluster.worker[1]", words});
    all.push_back({cat(R"({"cluster": {"ps": {"3": )", json, "}}}"), "$.cluster.ps.3", words});
    all.push_back({cat(R"({"cluster": {"chief": [)", json,
                       R"(], "worker": ["w:1"]}, "task": {"type": "worker", "index": 0}})"),
                   "$.cluster.chief[0]", words});
  }
  return all;
}

std::string task(const std::string& json) {
  return cat(R"({"cluster": {"worker": ["a:1", "b:1"], "ps": {"2": "p:1"}}, "task": )", json, "}");
}

std::string nested(int depth, const char* open, const char* close, const char* inside) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += inside;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

std::vector<Bad> bad_json() {
  return {
      {"{", "$", "no JSON at byte 2"},
      {"}", "$", "no JSON at byte 1"},
      {"[", "$", "no JSON"},
      {"nonsense", "$", "no JSON at byte 2"},
      {"{'cluster': {}}", "$", "no JSON at byte 2"},
      {"{\"cluster\": {},}", "$", "no JSON"},
      {"{\"cluster\" {}}", "$", "no JSON"},
      {"{\"cluster\": {}} x", "$", "no JSON"},
      {"{} {}", "$", "no JSON"},
      {"{\"cluster\": {\"worker\": [\"a:1\", ]}}", "$.cluster.worker[1]", "no JSON"},
      {"{\"cluster\": {\"worker\": [\"a:1\" \"b:1\"]}}", "$.cluster.worker[1]", "no JSON"},
      {"{\"cluster\": {\"worker\": [\"a:1", "$.cluster.worker[0]", "no JSON"},
      {"{\"task\": {\"index\": NaN}}", "$.task.index", "no JSON"},
      {"{\"task\": {\"index\": Infinity}}", "$.task.index", "no JSON"},
      {"{\"task\": {\"index\": 01}}", "$.task.index", "no JSON"},
      {"{\"task\": {\"index\": 1e999}}", "$.task.index", "no JSON"},
      {"{\"task\": {\"type\": \"\xff\xfe\"}}", "$.task.type", "no JSON"},
      {"{\"\xc3\x28\": 1}", "$", "no JSON"},
      {"{\"task\": {\"type\": \"\\ud800\"}}", "$.task.type", "no JSON"},
      {std::string("{\"task\": {}\0}", 13), "$.task", "no JSON"},
      {"\xef\xbb\xbf\xef\xbb\xbf{}", "$", "no JSON"},
      {"{\"cluster\": /* none */ {}}", "$.cluster", "no JSON"},
      {"[]", "$", "a list, expected an object"},
      {"null", "$", "null, expected an object"},
      {"1", "$", "1, expected an object"},
      {"\"{}\"", "$", "\"{}\", expected an object"},
      {"true", "$", "true, expected an object"},
      {"{\"cluster\": {}, \"cluster\": {}}", "$.cluster", "a key that is there already"},
      {"{\"cluster\": {\"ps\": [\"a:1\"], \"ps\": [\"b:1\"]}}", "$.cluster.ps",
       "a key that is there already"},
      {"{\"task\": {\"index\": 0, \"index\": 1}}", "$.task.index", "a key that is there already"},
      {"{\"clusters\": {}}", "$.clusters", "an unknown key"},
      {"{\"Cluster\": {}}", "$.Cluster", "an unknown key, expected one of cluster"},
      {"{\"\": {}}", "$[\"\"]", "an unknown key"},
      {"{\"a b\": {}}", "$[\"a b\"]", "an unknown key"},
      {"{\"tasks\": {}}", "$.tasks", "strict = false"},
      {task("{\"type\": \"worker\", \"id\": 0}"), "$.task.id", "an unknown key"},
      {task("{\"type\": \"worker\", \"index\": 0, \"Index\": 1}"), "$.task.Index",
       "an unknown key"},
  };
}

std::vector<Bad> bad_clusters() {
  return {
      {"{\"cluster\": null}", "$.cluster", "null, expected an object"},
      {"{\"cluster\": []}", "$.cluster", "a list, expected an object"},
      {"{\"cluster\": \"a:1\"}", "$.cluster", "\"a:1\", expected an object"},
      {"{\"cluster\": 7}", "$.cluster", "7, expected an object"},
      {"{\"cluster\": {\"worker\": \"a:1\"}}", "$.cluster.worker", "\"a:1\", expected a list"},
      {"{\"cluster\": {\"worker\": null}}", "$.cluster.worker", "null, expected a list"},
      {"{\"cluster\": {\"worker\": 3}}", "$.cluster.worker", "3, expected a list"},
      {"{\"cluster\": {\"worker\": []}}", "$.cluster.worker", "no addresses"},
      {"{\"cluster\": {\"worker\": {}}}", "$.cluster.worker", "no addresses"},
      {"{\"cluster\": {\"workers\": [\"a:1\"]}}", "$.cluster.workers", "the task type \"workers\""},
      {"{\"cluster\": {\"Worker\": [\"a:1\"]}}", "$.cluster.Worker", "the task type \"Worker\""},
      {"{\"cluster\": {\"master\": [\"a:1\"]}}", "$.cluster.master", "call it chief"},
      {"{\"cluster\": {\"\": [\"a:1\"]}}", "$.cluster[\"\"]", "the job \"\""},
      {"{\"cluster\": {\"a b\": [\"a:1\"]}}", "$.cluster[\"a b\"]", "the job \"a b\""},
      {cat("{\"cluster\": {\"", std::string(65, 'x'), "\": [\"a:1\"]}}"), "$.cluster[\"xxx",
       "the job"},
      {"{\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}}", "$.cluster.chief",
       "2 tasks of chief, expected at most one"},
      {"{\"cluster\": {\"evaluator\": [\"a:1\", \"b:1\", \"c:1\"]}}", "$.cluster.evaluator",
       "3 tasks of evaluator, expected at most one"},
      {"{\"cluster\": {\"worker\": [\"a:1\", \"a:1\"]}}", "$.cluster.worker[1]",
       "the address \"a:1\" of $.cluster.worker[0]"},
      {"{\"cluster\": {\"worker\": [\"a:1\", \"A:1\"]}}", "$.cluster.worker[1]",
       "an address of its own"},
      {"{\"cluster\": {\"chief\": [\"a:1\"], \"worker\": [\"b:1\", \"a:1\"]}}",
       "$.cluster.worker[1]", "the address \"a:1\" of $.cluster.chief[0]"},
      {"{\"cluster\": {\"ps\": {\"1\": \"a:1\", \"2\": \"a:1\"}}}", "$.cluster.ps.2",
       "the address \"a:1\" of $.cluster.ps.1"},
      {"{\"cluster\": {\"ps\": {\"-1\": \"a:1\"}}}", "$.cluster.ps.-1", "the index \"-1\""},
      {"{\"cluster\": {\"ps\": {\"x\": \"a:1\"}}}", "$.cluster.ps.x", "the index \"x\""},
      {"{\"cluster\": {\"ps\": {\"\": \"a:1\"}}}", "$.cluster.ps[\"\"]", "the index \"\""},
      {"{\"cluster\": {\"ps\": {\"01\": \"a:1\"}}}", "$.cluster.ps.01", "the index \"01\""},
      {"{\"cluster\": {\"ps\": {\"1.0\": \"a:1\"}}}", "$.cluster.ps[\"1.0\"]", "the index \"1.0\""},
      {"{\"cluster\": {\"ps\": {\"1048576\": \"a:1\"}}}", "$.cluster.ps.1048576", "to 1048575"},
      {"{\"cluster\": {\"ps\": {\"9223372036854775808\": \"a:1\"}}}",
       "$.cluster.ps.9223372036854775808", "the index"},
      {cat("{\"cluster\": {\"worker\": [\"", std::string(64, 'a'), ":1\"]}}"),
       "$.cluster.worker[0]", "a label of 64 characters"},
      {cat("{\"cluster\": {\"worker\": [\"", std::string(300, 'a'), ":1\"]}}"),
       "$.cluster.worker[0]", "a host of 300 characters"},
      {cat("{\"cluster\": {\"worker\": [\"", std::string(100000, 'a'), ":1\"]}}"),
       "$.cluster.worker[0]", "a host of 100000 characters"},
  };
}

std::vector<Bad> bad_tasks() {
  return {
      {task("null"), "$.task", "null, expected an object"},
      {task("[]"), "$.task", "a list, expected an object"},
      {task("\"worker\""), "$.task", "\"worker\", expected an object"},
      {task("0"), "$.task", "0, expected an object"},
      {task("{\"index\": 0}"), "$.task", "an index without a type"},
      {task("{\"type\": \"worker\"}"), "$.task", "a type without an index"},
      {task("{\"type\": null, \"index\": 0}"), "$.task.type", "null, expected a string"},
      {task("{\"type\": 1, \"index\": 0}"), "$.task.type", "1, expected a string"},
      {task("{\"type\": [\"worker\"], \"index\": 0}"), "$.task.type", "a list, expected a string"},
      {task("{\"type\": \"\", \"index\": 0}"), "$.task.type", "the task type \"\""},
      {task("{\"type\": \"Worker\", \"index\": 0}"), "$.task.type", "the task type \"Worker\""},
      {task("{\"type\": \"worker \", \"index\": 0}"), "$.task.type", "the task type \"worker \""},
      {task("{\"type\": \"master\", \"index\": 0}"), "$.task.type", "call it chief"},
      {task("{\"type\": \"gpu\", \"index\": 0}"), "$.task.type",
       "expected chief, worker, ps or evaluator"},
      {task("{\"type\": \"chief\", \"index\": 0}"), "$.task.type",
       "\"chief\", expected a job of the cluster: ps, worker"},
      {task("{\"type\": \"worker\", \"index\": 2}"), "$.task.index",
       "the index 2, expected 0 to 1, the job worker has 2 tasks"},
      {task("{\"type\": \"worker\", \"index\": 1000000}"), "$.task.index", "expected 0 to 1"},
      {task("{\"type\": \"ps\", \"index\": 0}"), "$.task.index",
       "the index 0, expected an index of the job ps"},
      {task("{\"type\": \"evaluator\", \"index\": 1}"), "$.task.index", "there is one evaluator"},
      {task("{\"type\": \"worker\", \"index\": -1}"), "$.task.index", "the index -1"},
      {task("{\"type\": \"worker\", \"index\": 0.0}"), "$.task.index", "the index 0.0"},
      {task("{\"type\": \"worker\", \"index\": 0.5}"), "$.task.index", "the index 0.5"},
      {task("{\"type\": \"worker\", \"index\": 1e0}"), "$.task.index", "the index 1.0"},
      {task("{\"type\": \"worker\", \"index\": 9223372036854775808}"), "$.task.index",
       "the index 9223372036854775808"},
      {task("{\"type\": \"worker\", \"index\": 99999999999999999999999}"), "$.task.index",
       "a whole number"},
      {task("{\"type\": \"worker\", \"index\": null}"), "$.task.index", "the index null"},
      {task("{\"type\": \"worker\", \"index\": true}"), "$.task.index", "the index true"},
      {task("{\"type\": \"worker\", \"index\": []}"), "$.task.index", "the index a list"},
      {task("{\"type\": \"worker\", \"index\": {}}"), "$.task.index", "the index an object"},
      {task("{\"type\": \"worker\", \"index\": \"\"}"), "$.task.index", "the index \"\""},
      {task("{\"type\": \"worker\", \"index\": \"one\"}"), "$.task.index", "the index \"one\""},
      {task("{\"type\": \"worker\", \"index\": \" 0\"}"), "$.task.index", "the index \" 0\""},
      {task("{\"type\": \"worker\", \"index\": \"-1\"}"), "$.task.index", "the index \"-1\""},
      {task("{\"type\": \"worker\", \"index\": \"0x1\"}"), "$.task.index", "the index \"0x1\""},
      {task("{\"type\": \"worker\", \"index\": \"1.0\"}"), "$.task.index", "the index \"1.0\""},
  };
}

std::vector<Bad> bad_others() {
  return {
      {"{\"rpc_layer\": null}", "$.rpc_layer", "null, expected a string"},
      {"{\"rpc_layer\": 1}", "$.rpc_layer", "1, expected a string"},
      {"{\"rpc_layer\": \"grpc://\"}", "$.rpc_layer", "the protocol \"grpc://\""},
      {"{\"rpc_layer\": \"a b\"}", "$.rpc_layer", "the protocol \"a b\""},
      {"{\"rpc_layer\": \"1a\"}", "$.rpc_layer", "the protocol \"1a\""},
      {cat("{\"rpc_layer\": \"", std::string(33, 'a'), "\"}"), "$.rpc_layer", "the protocol"},
      {"{\"session_master\": 5}", "$.session_master", "5, expected a string"},
      {"{\"session_master\": \"host\"}", "$.session_master", "no port in \"host\""},
      {"{\"session_master\": \"grpc://host\"}", "$.session_master", "no port in \"host\""},
      {"{\"session_master\": \"a b://host:1\"}", "$.session_master", "the protocol \"a b\""},
      {"{\"session_master\": \"h:1\\r\\nX: y\"}", "$.session_master", "in brackets"},
      {nested(17, "{\"job\":", "}", "1"), "$.job.job.job", "more than 16 levels deep"},
      {cat("{\"job\": ", nested(100000, "[", "]", ""), "}"), "$.job[0][0]",
       "more than 16 levels deep"},
      {cat("{\"job\": ", std::string(200000, '[')), "$.job[0]", "more than 16 levels deep"},
      {std::string((1 << 20) + 1, ' '), "$", "1048577 bytes, expected at most 1048576"},
      {cat("{\"cluster\": {\"worker\": [\"", std::string(2 << 20, 'a'), ":1\"]}}"), "$",
       "expected at most 1048576"},
  };
}

std::vector<Bad> bad_texts() {
  std::vector<Bad> all = bad_json();
  for (const auto& more : {bad_clusters(), bad_tasks(), bad_others()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Every question a resolver answers of `text`.
void ask_everything(const std::string& text, bool strict) {
  const auto resolver = of_tf_config(text, strict);
  const auto cluster = resolver.cluster_spec();
  EXPECT_EQ(train::ClusterSpec::from_json(cluster.to_json()), cluster);
  resolver.task_type();
  resolver.task_id();
  resolver.rpc_layer();
  resolver.master();
}

TEST(TfConfigBad, EachOfTwoHundredTextsIsRefusedWithItsPlaceAndReason) {
  std::vector<Bad> all = bad_texts();
  for (Bad& bad : bad_addresses()) all.push_back(std::move(bad));
  EXPECT_GE(all.size(), 200U);
  for (const Bad& bad : all) {
    const std::string place = cat("TF_CONFIG [", bad.place);
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { of_tf_config(bad.text).cluster_spec(); },
                                       {place.c_str(), bad.words.c_str(), ", expected ", "; "}))
        << bad.text.substr(0, 200);
  }
}

TEST(TfConfigBad, MessagesStayShortAndPrintable) {
  for (const Bad& bad : bad_texts()) {
    try {
      of_tf_config(bad.text).cluster_spec();
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_LT(message.size(), 700U) << message;
      for (const char c : message) EXPECT_FALSE(c >= 0 && c < 0x20) << message;
    }
  }
}

/// One change by chance to a text.
void mutate(std::string& text, RandomBits& random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   ":",
                                                   ",",
                                                   "null",
                                                   "-1",
                                                   "65536",
                                                   "0",
                                                   "1",
                                                   "\\",
                                                   "\xff",
                                                   "NaN",
                                                   "1e99",
                                                   "[[",
                                                   "{{",
                                                   "true",
                                                   " ",
                                                   ":0",
                                                   "[::1]:1",
                                                   "\"worker\"",
                                                   "\"task\": {}",
                                                   "\"cluster\": {}"};
  const std::size_t at = text.empty() ? 0 : random.below(text.size());
  switch (random.below(5)) {
    case 0:
      text.erase(at, 1 + random.below(8));
      return;
    case 1:
      text.insert(at, kPieces[random.below(kPieces.size())]);
      return;
    case 2:
      if (!text.empty()) text[at] = static_cast<char>(random.below(256));
      return;
    case 3:
      text.insert(at, text.substr(random.below(text.size() + 1), random.below(40)));
      return;
    default:
      text.resize(at);
  }
}

TEST(TfConfigBad, TenThousandChangedTextsAreReadOrRefused) {
  const std::array<std::string, 4> seeds = {
      R"({"cluster": {"chief": ["a:1"], "worker": ["b:2222", "c.d:2222"], "ps": {"1": "[::1]:5"}},)"
      R"( "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"})",
      R"({"cluster": {"worker": ["10.0.0.1:1", "10.0.0.2:1"]}, "task": {"type": "worker",)"
      R"( "index": "0"}, "session_master": "grpc://m:1", "job": {"x": [1, 2, {"y": null}]}})",
      R"({"task": {"type": "evaluator", "index": 0, "trial": "1"}, "environment": "cloud"})",
      R"({})"};
  RandomBits random(20261130);
  int refused = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string text = seeds[random.below(seeds.size())];
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) mutate(text, random);
    try {
      ask_everything(text, i % 2 == 0);
    } catch (const InvalidArgument& error) {
      ++refused;
      const std::string message = error.what();
      const bool typed =
          message.rfind("TF_CONFIG [$", 0) == 0 || message.rfind("ClusterSpec [", 0) == 0;
      EXPECT_TRUE(typed) << message << "\n" << text;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
