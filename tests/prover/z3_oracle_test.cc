// Z3 as an oracle: the reach of both policies as a formula over strings and integers, made from the words of the policy and from
// docs/policy-language.md, without a line of policy/ or prover/. Where Z3 answers, the prover must say the same.
// SLUICE_Z3_PAIRS and SLUICE_Z3_SEED make a longer run.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <z3++.h>

#include <cstdlib>
#include <random>

#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

using Words = std::vector<std::string>;
using Random = std::mt19937_64;
using z3::expr;

constexpr size_t kValues = 3;  // of the key `k`: with two allows on the other side no witness needs more

size_t Below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }
const std::string& Any(Random& random, const Words& words) { return words[Below(random, words.size())]; }

struct Block {
  std::string text;
  uint32_t base;
  unsigned length;
};

struct Entry {
  bool allow = true;
  Words methods{};  ///< none: every one
  std::string host{};
  std::vector<std::pair<int, int>> ports{};  ///< none: an allow's 443, a deny's every one
  std::string path{};
  std::vector<Block> ip{};
  Words values{};  ///< of `k`
};

std::string TextOf(const std::vector<Entry>& policy) {
  std::string text;
  for (const Entry& e : policy) {
    Words ports;
    for (const auto& [first, last] : e.ports)
      ports.push_back(first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last));
    text += fmt::format("  - {}: '{} {}{}{}{}'\n", e.allow ? "allow" : "deny",
                        e.methods.empty() ? "http" : fmt::format("{}", fmt::join(e.methods, ",")), e.allow ? "" : "https://",
                        e.host, ports.empty() ? "" : fmt::format(":{}", fmt::join(ports, ",")), e.path);
    Words blocks;
    for (const Block& block : e.ip) blocks.push_back("'" + block.text + "'");
    if (!blocks.empty()) text += fmt::format("    ip: [{}]\n", fmt::join(blocks, ", "));
    if (!e.values.empty()) text += fmt::format("    query: {{k: ['{}']}}\n", fmt::join(e.values, "', '"));
  }
  return text;
}

Entry DrawEntry(Random& r) {
  static const Words kHosts{"a.ex", "b.ex", "*.ex", "**.ex", "**", "x*.ex", "*y.ex", "*.a.ex", "xn--a.ex", "x*y.*.ex", "**.a.ex"};
  static const Words kPaths{"", "/", "/x", "/x/", "/x/**", "/*", "/**/y", "/x/*/y", "/x*y", "/**/x/**", "/*/*", "/x/y", "/**/y*"};
  static const std::vector<Words> kMethods{{"GET"}, {"GET"}, {"POST"}, {"HEAD"}, {"GET", "POST"}, {}};
  static const std::vector<std::vector<std::pair<int, int>>> kPorts{
      {}, {}, {{443, 443}}, {{443, 443}, {8443, 8443}}, {{8000, 8999}}, {{1, 65535}}, {{400, 8100}}};
  static const std::vector<std::vector<Block>> kBlocks{{},
                                                       {},
                                                       {},
                                                       {},
                                                       {{"10.0.0.0/8", 0x0a000000, 8}},
                                                       {{"10.0.0.0/9", 0x0a000000, 9}, {"10.128.0.0/9", 0x0a800000, 9}},
                                                       {{"10.1.2.0/24", 0x0a010200, 24}},
                                                       {{"8.0.0.0/6", 0x08000000, 6}},
                                                       {{"9.9.9.9/32", 0x09090909, 32}, {"10.1.2.3/32", 0x0a010203, 32}}};
  static const std::vector<Words> kMatchers{{}, {}, {}, {}, {"a"}, {"a*"}, {"*"}, {"a", "b"}, {"*a*"}, {""}};
  Entry e;
  e.allow = Below(r, 3) != 0;
  e.methods = kMethods[Below(r, kMethods.size())];
  e.host = Any(r, kHosts);
  e.ports = kPorts[Below(r, kPorts.size())];
  e.path = Any(r, kPaths);
  e.ip = kBlocks[Below(r, kBlocks.size())];
  e.values = kMatchers[Below(r, kMatchers.size())];
  return e;
}

class Oracle {
 public:
  enum class Answer : uint8_t { kNo, kYes, kUnknown };

  Oracle()
      : host_(c_.constant("host", c_.string_sort())),
        path_(c_.constant("path", c_.string_sort())),
        method_(c_.int_const("method")),
        port_(c_.int_const("port")),
        address_(c_.int_const("address")),
        count_(c_.int_const("count")) {
    for (size_t i = 0; i < kValues; ++i) values_.push_back(c_.constant(fmt::format("value{}", i).c_str(), c_.string_sort()));
  }

  /// Whether some request, or some lookup, is reached under one and not under the other.
  Answer Gains(const std::vector<Entry>& base, const std::vector<Entry>& head) {
    const Answer lookup = Check(Names(head) && !Names(base) && IsName());
    if (lookup == Answer::kYes) return lookup;
    const Answer request = Check(Reach(head) && !Reach(base) && World());
    if (request == Answer::kYes) return request;
    return lookup == Answer::kUnknown || request == Answer::kUnknown ? Answer::kUnknown : Answer::kNo;
  }

 private:
  Answer Check(const expr& question) {
    z3::solver solver(c_);
    z3::params params(c_);
    params.set("timeout", 200u);
    solver.set(params);
    solver.add(question);
    try {
      const z3::check_result result = solver.check();
      return result == z3::sat ? Answer::kYes : result == z3::unsat ? Answer::kNo : Answer::kUnknown;
    } catch (const z3::exception&) {
      return Answer::kUnknown;
    }
  }

  expr Text(const std::string& text) { return z3::to_re(c_.string_val(text)); }
  expr Span(char first, char last) {
    return z3::range(c_.string_val(std::string(1, first)), c_.string_val(std::string(1, last)));
  }
  expr Letter() { return Span('a', 'z') + Span('0', '9'); }  // for `re`, + is union
  static expr Then(const expr& a, const expr& b) { return z3::concat(a, b); }
  expr Both(const expr& a, const expr& b) {
    z3::expr_vector v(c_);
    v.push_back(a);
    v.push_back(b);
    return z3::re_intersect(v);
  }

  // A glob, its stars standing for any number of `of`, and "**" for any number of `deep`.
  expr Glob(const std::string& glob, const expr& of, const expr& deep) {
    expr re = Text("");
    for (size_t i = 0; i < glob.size();) {
      if (glob.compare(i, 2, "**") == 0) {
        re = Then(re, z3::star(deep));
        i += 2;
      } else if (glob[i] == '*') {
        re = Then(re, z3::star(of));
        ++i;
      } else {
        re = Then(re, Text(std::string(1, glob[i++])));
      }
    }
    return re;
  }

  // No digits, so that no name ends in a number.
  expr LabelLetter() { return Span('a', 'z') + Text("-"); }
  expr Label() { return z3::plus(LabelLetter()); }
  expr IsName() { return z3::in_re(host_, Then(Label(), z3::star(Then(Text("."), Label())))); }

  expr Host(const std::string& pattern, bool allow) {
    if (pattern == "**") return c_.bool_val(true);
    expr re = Text("");
    bool first = true;
    std::string rest = pattern;
    while (true) {
      const size_t dot = rest.find('.');
      const std::string label = rest.substr(0, dot);
      if (!first) re = Then(re, Text("."));
      if (label == "**") {
        re = Then(re, Then(Label(), z3::star(Then(Text("."), Label()))));
      } else {
        expr one = Glob(label, LabelLetter(), LabelLetter());
        if (label.find('*') != std::string::npos) one = Both(one, Label());
        // Exact point 9: a star that is only a part of a label never stands for an A-label in an allow.
        if (allow && label != "*" && label.find('*') != std::string::npos)
          one = Both(one, z3::re_complement(Then(Text("xn--"), z3::star(LabelLetter()))));
        re = Then(re, one);
      }
      first = false;
      if (dot == std::string::npos) break;
      rest = rest.substr(dot + 1);
    }
    return z3::in_re(host_, re);
  }

  expr In(const Block& block) {
    const auto last = static_cast<int64_t>(block.base) + (int64_t{1} << (32 - block.length));
    return address_ >= c_.int_val(static_cast<int64_t>(block.base)) && address_ < c_.int_val(last);
  }
  // 10.0.0.0/8 is private: only a block that lies in it leads there.
  expr Private() { return address_ >= c_.int_val(int64_t{0x0a000000}) && address_ < c_.int_val(int64_t{0x0b000000}); }
  expr Address(const Entry& e) {
    expr listed = c_.bool_val(e.ip.empty());
    expr unlocked = c_.bool_val(false);
    for (const Block& block : e.ip) {
      listed = listed || In(block);
      if (block.base >> 24 == 10 && block.length >= 8) unlocked = unlocked || In(block);
    }
    return e.allow ? listed && (!Private() || unlocked) : listed;
  }

  static constexpr std::string_view kMethodNames[] = {"GET", "HEAD", "POST", "PUT", "PROPFIND"};
  expr Method(const Entry& e) {
    if (e.methods.empty()) return c_.bool_val(true);
    expr any = c_.bool_val(false);
    for (const std::string& listed : e.methods)
      for (int i = 0; i < 5; ++i)
        if (kMethodNames[i] == listed || (listed == "GET" && i == 1)) any = any || method_ == i;
    return any;
  }
  expr Port(const Entry& e) {
    if (e.ports.empty()) return e.allow ? port_ == 443 : c_.bool_val(true);
    expr any = c_.bool_val(false);
    for (const auto& [first, last] : e.ports) any = any || (port_ >= first && port_ <= last);
    return any;
  }
  expr Path(const Entry& e) {
    if (e.path.empty()) return c_.bool_val(true);
    const expr segment = Letter() + Text(".");
    return z3::in_re(path_, Glob(e.path, segment, segment + Text("/")));
  }
  expr Query(const Entry& e) {
    if (e.values.empty()) return c_.bool_val(true);
    expr all = count_ > 0;
    expr some = c_.bool_val(false);
    for (size_t i = 0; i < kValues; ++i) {
      expr matches = c_.bool_val(false);
      for (const std::string& glob : e.values) matches = matches || z3::in_re(values_[i], Glob(glob, Letter(), Letter()));
      const expr present = count_ > static_cast<int>(i);
      all = all && (!present || matches);
      some = some || (present && matches);
    }
    return e.allow ? all : some;
  }

  expr Covers(const Entry& e) { return Host(e.host, e.allow) && Port(e) && Method(e) && Path(e) && Address(e) && Query(e); }
  expr Reach(const std::vector<Entry>& policy) {
    expr allowed = c_.bool_val(false);
    expr denied = c_.bool_val(false);
    for (const Entry& e : policy) (e.allow ? allowed : denied) = (e.allow ? allowed : denied) || Covers(e);
    return allowed && !denied;
  }
  expr Names(const std::vector<Entry>& policy) {
    expr any = c_.bool_val(false);
    for (const Entry& e : policy)
      if (e.allow) any = any || Host(e.host, true);
    return any;
  }

  // Canonical paths, names or a literal (no name), ports, addresses around the private block, single-use values.
  expr World() {
    const expr letter = Letter() + Text(".");
    const expr dots = Text(".") + Text("..");
    const expr segment = Both(z3::plus(letter), z3::re_complement(dots));
    const expr path = Then(Text("/"), z3::star(Then(segment, Text("/"))));
    expr world = z3::in_re(path_, Then(path, segment + Text("")));
    world = world && (IsName() || host_ == c_.string_val("")) && port_ >= 1 && port_ <= 65535 && method_ >= 0 && method_ < 5;
    world = world && address_ >= c_.int_val(int64_t{0x01000000}) && address_ < c_.int_val(int64_t{0x0c000000});
    world = world && count_ >= 0 && count_ <= static_cast<int>(kValues);
    for (const expr& value : values_) world = world && z3::in_re(value, z3::star(Letter()));
    return world;
  }

  z3::context c_;
  expr host_, path_, method_, port_, address_, count_;
  std::vector<expr> values_;
};

size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Z3, AgreesWhereItAnswers) {
  const size_t pairs = FromEnvironment("SLUICE_Z3_PAIRS", 40);
  Random random(FromEnvironment("SLUICE_Z3_SEED", 7));
  size_t answered = 0;
  size_t gains = 0;
  for (size_t i = 0; i < pairs; ++i) {
    std::vector<Entry> base;
    for (size_t n = 1 + Below(random, 3); n > 0; --n) base.push_back(DrawEntry(random));
    std::vector<Entry> head = base;
    if (Below(random, 3) == 0) {
      head.push_back(DrawEntry(random));
    } else {
      head[Below(random, head.size())] = DrawEntry(random);
    }
    for (size_t turn = 0; turn < 2; ++turn, std::swap(base, head)) {
      if (std::count_if(base.begin(), base.end(), [](const Entry& e) { return e.allow && !e.values.empty(); }) >= 3) continue;
      Oracle oracle;
      const auto said = oracle.Gains(base, head);
      if (said == Oracle::Answer::kUnknown) continue;
      ++answered;
      const bool gain = said == Oracle::Answer::kYes;
      gains += gain ? 1 : 0;
      const Proof proof = Compare(*Loaded(TextOf(base)), *Loaded(TextOf(head)), {});
      EXPECT_EQ(!proof.gains.empty() || proof.verdict == Verdict::kUnknown, gain) << Shown(proof) << "\nbase:\n"
                                                                                  << TextOf(base) << "head:\n"
                                                                                  << TextOf(head);
    }
  }
  EXPECT_GT(answered, pairs / 4);
  EXPECT_GT(gains, answered / 10);
  EXPECT_LT(gains, answered);
  std::printf("Z3 answered %zu of %zu, %zu of them gains\n", answered, 2 * pairs, gains);
}

}  // namespace
}  // namespace sluice::prover
