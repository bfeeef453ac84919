// Files of other tools: what each becomes, that the printed form means the same, and where a fault is said to be.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "policy/compiled.h"
#include "policy/io/foreign.h"
#include "policy/io/load.h"

namespace sluice::policy {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kFixtures = std::string(SLUICE_SOURCE_DIR) + "/tests/policy/import/fixtures";

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Fixture {
  fs::path path;
  std::string kind;  ///< of the folder
  std::string name;  ///< "openshell/presets.yaml"
  std::string text;
  std::string only;

  [[nodiscard]] bool is_bad() const { return path.filename().string().starts_with("bad_"); }
  [[nodiscard]] bool is_list() const { return path.extension() == ".txt"; }
  // Only lists need to be told whose they are: everything else is known by its shape.
  [[nodiscard]] Result<Imported> Import() const {
    ForeignOptions options;
    options.only = only;
    if (is_list()) options.kind = ParseImportKind(kind);
    return ReadForeign(text, name, options);
  }
};

std::vector<Fixture> Fixtures() {
  std::vector<Fixture> out;
  for (const auto& entry : fs::recursive_directory_iterator(kFixtures)) {
    const std::string extension = entry.path().extension();
    if (extension != ".yaml" && extension != ".json" && extension != ".txt") continue;
    Fixture fixture;
    fixture.path = entry.path();
    fixture.kind = entry.path().parent_path().filename();
    fixture.name = fixture.kind + "/" + entry.path().filename().string();
    fixture.text = ReadAll(entry.path());
    fixture.only = ReadAll(entry.path().string() + ".only");
    out.push_back(std::move(fixture));
  }
  return out;
}

void ExpectGolden(const fs::path& path, const std::string& text) {
  if (std::getenv("SLUICE_UPDATE_GOLDENS") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(ReadAll(path), text) << path;
}

TEST(ImportFixtures, BecomeWhatStandsBesideThem) {
  size_t good = 0;
  for (const Fixture& fixture : Fixtures()) {
    if (fixture.is_bad()) continue;
    const auto imported = fixture.Import();
    ASSERT_TRUE(imported) << RenderError(imported.error(), false);
    EXPECT_EQ(ImportWord(imported->kind), fixture.kind) << fixture.name;
    ExpectGolden(fixture.path.string() + ".native", WriteNative(*imported, fixture.name));
    ++good;
  }
  EXPECT_GE(good, 25u);
}

TEST(ImportFixtures, AreRefusedWithTheirPlace) {
  size_t bad = 0;
  for (const Fixture& fixture : Fixtures()) {
    if (!fixture.is_bad()) continue;
    const auto imported = fixture.Import();
    ASSERT_FALSE(imported) << fixture.name << "\n" << WriteNative(*imported, fixture.name);
    const Error& error = imported.error();
    ASSERT_TRUE(error.span.has_value()) << fixture.name;
    EXPECT_GT(error.span->line, 0u) << fixture.name;
    ExpectGolden(fixture.path.string() + ".error",
                 std::to_string(error.span->line) + ":" + std::to_string(error.span->column) + ": " + error.message + "\n");
    ++bad;
  }
  EXPECT_GE(bad, 45u);
}

// The printed form, read again, has the same rules: the same digest.
TEST(ImportFixtures, MeanTheSameWhenPrinted) {
  for (const Fixture& fixture : Fixtures()) {
    const auto imported = fixture.Import();
    if (!imported) continue;
    const std::string native = WriteNative(*imported, fixture.name);
    const auto loaded = LoadText(native, "native.yaml");
    ASSERT_TRUE(loaded) << fixture.name << "\n" << RenderError(loaded.error(), false) << "\n" << native;
    EXPECT_TRUE((*loaded)->compiled().origin.empty()) << fixture.name;
    EXPECT_EQ(DigestInput((*loaded)->compiled().rules, Mode::kEnforce), DigestInput(imported->rules, Mode::kEnforce)) << native;
  }
}

// The loader takes them as they are: lint, explain, prove and run see the same rules, at places of the original.
TEST(ImportFixtures, LoadAsTheyAre) {
  for (const Fixture& fixture : Fixtures()) {
    if (fixture.is_list() || !fixture.only.empty()) continue;
    const auto imported = fixture.Import();
    const auto loaded = LoadText(fixture.text, fixture.name);
    ASSERT_EQ(imported.has_value(), loaded.has_value()) << fixture.name;
    if (!loaded) {
      EXPECT_EQ(loaded.error().message, imported.error().message) << fixture.name;
      continue;
    }
    EXPECT_EQ((*loaded)->compiled().origin, ImportTitle(imported->kind));
    EXPECT_EQ((*loaded)->compiled().remarks.size(), imported->remarks.size());
    EXPECT_EQ(DigestInput((*loaded)->compiled().rules, Mode::kEnforce), DigestInput(imported->rules, Mode::kEnforce));
    const auto lines = std::count(fixture.text.begin(), fixture.text.end(), '\n') + 1;
    std::set<std::string> ids;
    for (const Rule& rule : (*loaded)->compiled().rules) {
      EXPECT_EQ(rule.span.file, fixture.name);
      EXPECT_GE(rule.span.line, 1u);
      EXPECT_LE(rule.span.line, lines);
      EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    }
  }
}

TEST(ImportFixtures, ATopFileIsWhatMayBeAnotherTools) {
  // A native policy stays one, whatever words its rules hold.
  const auto native = LoadText("version: 1\nname: services\nrules:\n  - allow: GET a.test\n", "p.yaml");
  ASSERT_TRUE(native);
  EXPECT_TRUE((*native)->compiled().origin.empty());
  const auto own = ReadForeign("version: 1\nrules: []\n", "p.yaml", {});
  ASSERT_FALSE(own);
  EXPECT_THAT(own.error().message, HasSubstr("native policy"));
  const auto unknown = ReadForeign("words: []\n", "p.yaml", {});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("--from"));
}

class ImportFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "import-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

constexpr const char* kOpenShellHead =
    "version: 1\nnetwork_policies:\n  a:\n    endpoints: [{ host: a.test, port: 443 }]\n    binaries:\n";

TEST_F(ImportFiles, ResolveLinksAndSaySo) {
  Write("real", "binary");
  Write("script", "#!/usr/bin/env python3\n");
  fs::create_symlink(folder_ / "real", folder_ / "link");
  const std::string base = folder_.string();
  const std::string text = std::string(kOpenShellHead) + "      - path: " + base + "/link\n      - path: " + base +
                           "/script\n      - path: " + base + "/absent\n";
  const auto loaded = LoadFile(Write("openshell.yaml", text));
  ASSERT_TRUE(loaded) << RenderError(loaded.error(), false);
  const auto& compiled = (*loaded)->compiled();
  ASSERT_EQ(compiled.rules.size(), 1u);
  ASSERT_EQ(compiled.rules[0].under.size(), 3u);
  EXPECT_EQ(compiled.rules[0].under[0].text, fs::canonical(folder_).string() + "/real");
  EXPECT_EQ(compiled.rules[0].under[2].text, base + "/absent");
  std::string said;
  for (const Finding& remark : compiled.remarks) said += remark.message + "\n";
  EXPECT_THAT(said, HasSubstr(base + "/link` is "));
  EXPECT_THAT(said, HasSubstr("script, which no process is"));
  // Elsewhere nothing is resolved.
  LoadOptions elsewhere;
  elsewhere.check_executables = false;
  EXPECT_EQ((*LoadFile(folder_ / "openshell.yaml", elsewhere))->compiled().rules[0].under[0].text, base + "/link");
}

TEST_F(ImportFiles, OwnRulesBesideThemAreHeldToOwnRules) {
  const std::string file = Write("openshell.yaml", std::string(kOpenShellHead) + "      - path: /usr/bin/curl\n");
  LoadOptions options;
  options.extra_allows = {"GET b.test"};
  const auto loaded = LoadFile(file, options);
  ASSERT_TRUE(loaded);
  ASSERT_EQ((*loaded)->rules().size(), 2u);
  EXPECT_EQ((*loaded)->rules()[1].id, "--allow:1");
}

TEST_F(ImportFiles, AnIncludeIsNative) {
  Write("foreign.yaml", std::string(kOpenShellHead) + "      - path: /usr/bin/curl\n");
  const auto loaded = LoadFile(Write("top.yaml", "version: 1\ninclude: [foreign.yaml]\n"));
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("network_policies"));
}

}  // namespace
}  // namespace sluice::policy
