// The file of a gate, and what is held to it.
// Requirements: S1.20, S3.16.
#include "tools/bench/gate_records.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using comm::Collective;

const GatePlace kPlace = {.transport = "mpi",
                          .memory = "cpu",
                          .device = "EPYC",
                          .ranks = 4,
                          .hosts = 2,
                          .most_on_a_host = 2};

// The median of its rounds, and the least.
CommResult result_of(int64_t bytes, double us, int64_t wrong = 0, double least_us = 0) {
  const double seconds = us * 1e-6, least = least_us == 0 ? seconds : least_us * 1e-6;
  return {{.collective = Collective::kAllGather, .bytes = bytes},
          {least, seconds, seconds, seconds},
          wrong,
          static_cast<int>(kPlace.ranks)};
}

GateRecords records_of(const std::vector<CommResult>& results) {
  GateRecords records;
  set_records(records, kPlace, results);
  return records;
}

std::string refusal(const std::string& text) {
  return test::error_of([&] { parse_gate_records(text, "gate.json"); });
}

constexpr std::chrono::milliseconds kNoPause{0};
constexpr int64_t kSmall = 4096, kLarge = 4'000'000;
const auto kNotAgain = [](const CommCase&) -> CommResult { fail("measured again"); };

}  // namespace

TEST_CASE("gate records: the file is read as it was written, a case a line") {
  GateRecords records = records_of({result_of(kLarge, 1000), result_of(kSmall, 50)});
  records.at(gate_case(result_of(kSmall, 50).what, kPlace)).us = 50;  // without rounding
  const std::string text = gate_text(records);
  CHECK(text ==
        "{\"cases\": [\n"
        "  {\"transport\":\"mpi\",\"memory\":\"cpu\",\"device\":\"EPYC\",\"ranks\":4,\"hosts\":2,"
        "\"most_on_a_host\":2,\"collective\":\"all_gather\",\"op\":\"\",\"dtype\":\"f32\","
        "\"buffer\":\"communicator\",\"bytes\":4096,\"busbw_gb_per_s\":0.06144,\"us\":50.0},\n"
        "  {\"transport\":\"mpi\",\"memory\":\"cpu\",\"device\":\"EPYC\",\"ranks\":4,\"hosts\":2,"
        "\"most_on_a_host\":2,\"collective\":\"all_gather\",\"op\":\"\",\"dtype\":\"f32\","
        "\"buffer\":\"communicator\",\"bytes\":4000000,\"busbw_gb_per_s\":3.0,\"us\":1000.0}\n"
        "]}\n");
  const GateRecords again = parse_gate_records(text, "gate.json");
  CHECK(again.size() == 2);
  CHECK(gate_text(again) == text);
  // What is measured again takes its own place only.
  set_records(records, kPlace, {result_of(kLarge, 500)});
  CHECK(records.size() == 2);
  CHECK(records.at(gate_case(result_of(kLarge, 1).what, kPlace)).us == doctest::Approx(500));
  CHECK(records.at(gate_case(result_of(kSmall, 1).what, kPlace)).us == doctest::Approx(50));
  GatePlace elsewhere = kPlace;
  elsewhere.hosts = 1;
  set_records(records, elsewhere, {result_of(kLarge, 500)});
  CHECK(records.size() == 3);
}

TEST_CASE("gate records: a file that is something else is refused with its place") {
  const std::string good = gate_text(records_of({result_of(kLarge, 1000)}));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(test::contains(refusal(""), "gate.json:1: malformed JSON"));
  CHECK(test::contains(refusal(good.substr(0, good.size() / 2)), "malformed JSON"));
  CHECK(test::contains(refusal("[]"), "gate.json: expected the file of a gate"));
  CHECK(test::contains(refusal("{\"cases\": []  , \"a\": 1}"), "expected the file of a gate"));
  CHECK(test::contains(refusal("{\"cases\": [1]}"), "cases[0]: expected an object, got 1"));
  CHECK(test::contains(refusal(changed("\"us\"", "\"ms\"")), "expected a key \"us\", got none"));
  CHECK(test::contains(refusal(changed("\"us\"", "\"a\":1,\"us\"")),
                       "unknown key \"a\"; known: transport, "));
  CHECK(test::contains(refusal(changed("1000.0", "0")), "us: expected a number above 0, got 0"));
  CHECK(test::contains(refusal(changed("\"mpi\"", "7")), "transport: expected a text, got 7"));
  CHECK(
      test::contains(refusal(changed("\"ranks\":4", "\"ranks\":2.5")), "ranks: expected a whole"));
  const std::string line = good.substr(good.find("  {"), good.find("}\n") + 1 - good.find("  {"));
  CHECK(test::contains(refusal("{\"cases\": [" + line + "," + line + "]}"), "the same case again"));
}

TEST_CASE("gate records: a run without its records is not held to others") {
  const GateRecords records = records_of({result_of(kSmall, 50)});
  const CommCase small = {.collective = Collective::kAllGather, .bytes = kSmall + 7};
  CHECK(check_recorded(records, kPlace, {small}, "g.json").status == 0);  // of whole slots
  CommCase plain = small;
  plain.registered = false;
  const GateVerdict missing = check_recorded(records, kPlace, {small, plain}, "g.json");
  CHECK(missing.status == 44);
  CHECK(missing.reason ==
        "g.json: no record of all_gather f32 plain of 4096 bytes for 4 ranks on 2 hosts (at most 2 "
        "on one) by mpi, memory of cpu (EPYC); --update adds it");
  const auto elsewhere = [&](auto GatePlace::*member, auto value) {
    GatePlace other = kPlace;
    other.*member = value;
    const GateVerdict verdict = check_recorded(records, other, {small}, "g.json");
    CHECK(verdict.status == 44);
    return verdict.reason;
  };
  const std::string recorded =
      "; recorded: 4 ranks on 2 hosts (at most 2 on one) by mpi, memory of cpu (EPYC)";
  CHECK(elsewhere(&GatePlace::most_on_a_host, 3) ==
        "g.json: no records exist for 4 ranks on 2 hosts (at most 3 on one) by mpi, memory of "
        "cpu (EPYC)" +
            recorded);
  CHECK(elsewhere(&GatePlace::device, "Xeon") ==
        "g.json: no records exist for 4 ranks on 2 hosts (at most 2 on one) by mpi, memory of "
        "cpu (Xeon)" +
            recorded);
  CHECK(elsewhere(&GatePlace::hosts, 1) ==
        "g.json: no records exist for 4 ranks on 1 host by mpi, memory of cpu (EPYC)" + recorded);
  for (const std::string& reason :
       {elsewhere(&GatePlace::ranks, 8), elsewhere(&GatePlace::hosts, 4),
        elsewhere(&GatePlace::transport, "nccl"), elsewhere(&GatePlace::memory, "cuda")}) {
    CHECK(reason.ends_with(recorded));
  }
  CHECK(check_recorded({}, kPlace, {small}, "g.json").reason.ends_with("recorded: nothing"));
}

TEST_CASE("gate records: large calls are held to bandwidth, small ones to their time") {
  const GateRecords records = records_of({result_of(kLarge, 1000), result_of(kSmall, 50)});
  const auto shortfalls = [&](double large_us, double small_us) {
    const std::vector<CommResult> results = {result_of(kLarge, large_us),
                                             result_of(kSmall, small_us)};
    const auto held =
        hold_to_records(results, records, kPlace, 0.8, kNoPause, [&](const CommCase& what) {
          return result_of(what.bytes, what.bytes == kLarge ? large_us : small_us);
        });
    return std::pair(held[0].shortfall, held[1].shortfall);
  };
  using Texts = std::pair<std::string, std::string>;
  CHECK(shortfalls(1000, 50) == Texts());
  CHECK(shortfalls(1249, 67) == Texts());  // 50 / 0.8 + 5 = 67.5
  CHECK(shortfalls(1, 1) == Texts());
  CHECK(shortfalls(1251, 68) == Texts("expected at least 2.4 GB/s on the bus (0.8 of 3), got 2.398",
                                      "expected at most 67.5 us (50 / 0.8 + 5), got 68"));
}

TEST_CASE("gate records: the median round is recorded, and the best round is held to it") {
  const GateRecords records =
      records_of({result_of(kLarge, 1000, 0, 10), result_of(kSmall, 50, 0, 1)});
  const auto held =
      hold_to_records({result_of(kLarge, 9000, 0, 1200), result_of(kSmall, 900, 0, 60)}, records,
                      kPlace, 0.8, kNoPause, kNotAgain);
  CHECK(check_held(held, "g.json").status == 0);
  CHECK(held[0].best.us == doctest::Approx(1200));
  CHECK(held[0].best.busbw_gb_per_s == doctest::Approx(2.5));
}

TEST_CASE("gate records: what falls short is measured again, and its best time counts") {
  const GateRecords records = records_of({result_of(kLarge, 1000), result_of(kSmall, 50)});
  int measured = 0;
  const auto held = hold_to_records({result_of(kLarge, 9000), result_of(kSmall, 50)}, records,
                                    kPlace, 0.8, kNoPause, [&](const CommCase& what) {
                                      CHECK(what.bytes == kLarge);
                                      return result_of(what.bytes, ++measured == 1 ? 9500 : 1100);
                                    });
  CHECK(measured == 2);
  CHECK(held[0].tries == 3);
  CHECK(held[1].tries == 1);
  CHECK(held[0].shortfall == "");
  CHECK(held[0].best.us == doctest::Approx(1100));
  CHECK(!worst_of(held));
  CHECK(check_held(held, "g.json").status == 0);
  // Wrong data of one try is not forgotten for the next one.
  const auto wrong = hold_to_records({result_of(kLarge, 9000)}, records, kPlace, 0.8, kNoPause,
                                     [](const CommCase&) { return result_of(kLarge, 9100, 3); });
  CHECK(check_held(wrong, "g.json").status == 44);
  CHECK(check_held(wrong, "g.json").reason ==
        "all_gather f32 of 4000000 bytes: 3 elements are wrong");
  CHECK(
      hold_to_records({result_of(kSmall, 50)}, records, kPlace, 0.8, kNoPause, kNotAgain).size() ==
      1);
}

TEST_CASE("gate records: the verdict names the worst bandwidth, and times where those are enough") {
  const GateRecords records =
      records_of({result_of(kLarge, 1000), result_of(2 * kLarge, 1000), result_of(kSmall, 50)});
  const auto verdict_of = [&](double large, double larger, double small) {
    const std::vector<CommResult> results = {
        result_of(kLarge, large), result_of(2 * kLarge, larger), result_of(kSmall, small)};
    return check_held(
        hold_to_records(results, records, kPlace, 0.8, kNoPause,
                        [](const CommCase& what) { return result_of(what.bytes, 1e6); }),
        "g.json");
  };
  CHECK(verdict_of(1000, 1000, 50).status == 0);
  const GateVerdict bandwidth = verdict_of(2000, 4000, 5000);
  CHECK(bandwidth.status == 46);
  CHECK(
      bandwidth.reason ==
      "g.json: all_gather f32 of 8000000 bytes: expected at least 4.8 GB/s on the bus (0.8 of 6), "
      "got 1.5 at best of 3; too slow: 3 of 3 cases");
  const GateVerdict time = verdict_of(1000, 1000, 500);
  CHECK(time.status == 46);
  CHECK(time.reason ==
        "g.json: all_gather f32 of 4096 bytes: expected at most 67.5 us (50 / 0.8 + 5), got 500 at "
        "best of 3; too slow: 1 of 3 cases");
}

}  // namespace fsdp::tools
